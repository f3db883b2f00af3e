//go:build runtime15

package main

import ctrl "sigs.k8s.io/controller-runtime"

func withoutMetrics(o ctrl.Options) ctrl.Options {
	o.MetricsBindAddress = "0"
	return o
}
