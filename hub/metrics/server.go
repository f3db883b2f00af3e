package metrics

import (
	"crypto/tls"
	"fmt"
	"path/filepath"

	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Server returns the options of the metrics server. It serves HTTPS to clients that may get /metrics by the RBAC of
// the management cluster. certDir holds tls.crt and tls.key, which may change at any time. If certDir is empty,
// controller-runtime signs a certificate at each start.
func Server(address, certDir string) (server.Options, error) {
	o := server.Options{BindAddress: address, SecureServing: true, FilterProvider: authorized, CertDir: certDir}
	if certDir == "" {
		return o, nil
	}
	// Without these files controller-runtime would sign a certificate and log nothing.
	if _, err := tls.LoadX509KeyPair(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key")); err != nil {
		return o, fmt.Errorf("certificate for metrics: %w: mount a Secret of type kubernetes.io/tls there", err)
	}
	return o, nil
}
