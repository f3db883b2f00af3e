package metrics

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"path/filepath"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasecast/leasecast/api/lease"
)

// A certificate that the hub signs itself is valid for certLife, and replaced when certFresh of that has passed.
const (
	certLife  = 7 * 24 * time.Hour
	certFresh = 24 * time.Hour
)

// Server returns the options by which metrics are served: by HTTPS, to whoever may get /metrics by the RBAC of the
// management cluster. certDir holds tls.crt and tls.key, which may change at any time. If it is empty, the hub
// signs its certificates itself.
func Server(address, certDir string, clock lease.Clock) (server.Options, error) {
	o := server.Options{
		BindAddress: address, SecureServing: true, FilterProvider: authorized, CertDir: certDir,
	}
	if certDir == "" {
		c := &selfSigned{clock: clock}
		o.TLSOpts = append(o.TLSOpts, func(t *tls.Config) { t.GetCertificate = c.get })
		return o, nil
	}
	// Without these files the server would sign its own certificate silently.
	if _, err := tls.LoadX509KeyPair(filepath.Join(certDir, "tls.crt"), filepath.Join(certDir, "tls.key")); err != nil {
		return o, fmt.Errorf("certificate for metrics: %w: mount a Secret of type kubernetes.io/tls there", err)
	}
	return o, nil
}

// selfSigned makes certificates. Nobody can verify them: they only protect against passive listeners.
type selfSigned struct {
	clock lease.Clock

	mu   sync.Mutex
	made time.Duration // boot reading
	cert *tls.Certificate
}

func (s *selfSigned) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	if s.cert != nil && now.Boot-s.made < certFresh {
		return s.cert, nil
	}
	cert, err := sign(now.Wall)
	if err != nil {
		return nil, fmt.Errorf("certificate for metrics: %w", err)
	}
	s.cert, s.made = cert, now.Boot
	return cert, nil
}

func sign(now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "leasecast-hub"}, DNSNames: []string{"leasecast-hub", "localhost"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(certLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
