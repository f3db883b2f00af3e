package hostile

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/fleet"
)

// bombs writes kubeconfigs that take much memory or time once they are parsed or used, each for a Cluster of its own.
func bombs(ctx context.Context, s *scene) error {
	c, err := s.hubTenant(ctx)
	if err != nil {
		return err
	}
	large, err := s.withLargeKey()
	if err != nil {
		return err
	}
	all := map[string][]byte{"aliases": aliases(), "large-key": large}
	for name, kubeconfig := range all {
		secret := secretOf(name+"-kubeconfig", 0)
		secret.Data["value"] = kubeconfig
		if err := errors.Join(c.Create(ctx, secret), c.Create(ctx, clusterOf(name, "1"))); err != nil {
			return unlessEnded(ctx, err)
		}
	}
	for n := 0; ctx.Err() == nil; n++ { // each version is parsed again
		for name, kubeconfig := range all {
			secret := secretOf(name+"-kubeconfig", 0)
			secret.Data["value"] = fmt.Appendf(nil, "%s\n# %d\n", kubeconfig, n)
			if err := c.Update(ctx, secret); err != nil {
				return unlessEnded(ctx, err)
			}
		}
		wait(ctx, time.Second)
	}
	return nil
}

// aliases is a kubeconfig of 33 KiB that names one long text thousands of times.
func aliases() []byte {
	return fmt.Appendf(nil, "apiVersion: v1\nkind: Config\nlong: &a %q\nlist: [%s]\n",
		strings.Repeat("a", 16<<10), strings.Repeat("*a, ", 4_000)+"*a")
}

// withLargeKey is a kubeconfig for an honest member, with a client certificate whose RSA key has some 64,000 bits.
func (s *scene) withLargeKey() ([]byte, error) {
	cert, key, err := largeKey()
	if err != nil {
		return nil, err
	}
	config := s.Fleet.Member("east").AdminConfig()
	config.CertData, config.KeyData, config.BearerToken = cert, key, ""
	return fleet.Kubeconfig("large-key", config)
}

// largeKey is a certificate with an RSA key of some 64,000 bits. Its primes are known ones, of Mersenne.
func largeKey() (cert, key []byte, err error) {
	one := big.NewInt(1)
	mersenne := func(bits uint) *big.Int { return new(big.Int).Sub(new(big.Int).Lsh(one, bits), one) }
	p, q := mersenne(44_497), mersenne(19_937)
	n := new(big.Int).Mul(p, q)
	phi := new(big.Int).Mul(new(big.Int).Sub(p, one), new(big.Int).Sub(q, one))
	e, d := 65_537, (*big.Int)(nil)
	for ; d == nil; e += 2 {
		d = new(big.Int).ModInverse(big.NewInt(int64(e)), phi)
	}
	e -= 2
	der, err := asn1.Marshal(struct {
		Version int
		N       *big.Int
		E       int
		D, P, Q *big.Int
	}{0, n, e, d, p, q})
	if err != nil {
		return nil, nil, err
	}
	issuer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: one,
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: n, E: e}, issuer)
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: signed})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: der})
	return certPEM, keyPEM, err
}
