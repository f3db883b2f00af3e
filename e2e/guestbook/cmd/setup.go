package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/member"
)

func manager(cfg *rest.Config, f flags) (ctrl.Manager, error) {
	s := runtime.NewScheme()
	if err := webappv1.AddToScheme(s); err != nil {
		return nil, err
	}
	namespaces := map[string]cache.Config{}
	for _, ns := range split(f.namespaces) {
		namespaces[ns] = cache.Config{}
	}
	return ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                        s,
		Cache:                         cache.Options{DefaultNamespaces: namespaces},
		Metrics:                       metricsserver.Options{BindAddress: f.metricsAddr},
		HealthProbeBindAddress:        f.healthAddr,
		LeaderElection:                f.elect,
		LeaderElectionID:              "guestbook",
		LeaderElectionNamespace:       f.electIn,
		LeaderElectionReleaseOnCancel: true,
	})
}

func registration(mgr ctrl.Manager, f flags) *member.Registration {
	if f.register == "" {
		return nil
	}
	return &member.Registration{Namespace: f.register, Client: mgr.GetHTTPClient()}
}

func split(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// openLog opens the act log; without a file it goes nowhere. In a folder it is a new file.
func openLog(f flags) (*acts.Log, func() error, error) {
	if f.acts == "" {
		return acts.NewLog(f.cluster, io.Discard), func() error { return nil }, nil
	}
	if f.cluster == "" {
		return nil, nil, errors.New("-acts needs -cluster, the name of this cluster in the log")
	}
	open := func() (*os.File, error) { return os.OpenFile(f.acts, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644) }
	if strings.HasSuffix(f.acts, "/") {
		open = func() (*os.File, error) { return acts.Create(f.acts) }
	}
	file, err := open()
	if err != nil {
		return nil, nil, fmt.Errorf("act log: %w", err)
	}
	return acts.NewLog(f.cluster, file), file.Close, nil
}
