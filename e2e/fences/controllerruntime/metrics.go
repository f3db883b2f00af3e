//go:build !runtime15

package main

import (
	ctrl "sigs.k8s.io/controller-runtime"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func withoutMetrics(o ctrl.Options) ctrl.Options {
	o.Metrics = metricsserver.Options{BindAddress: "0"}
	return o
}
