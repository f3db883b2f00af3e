package fleet

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/cluster-api/util/certs"

	"github.com/leasecast/leasecast/e2e/must"
)

// authority signs the certificates of one server and of its users.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes an authority that is valid since an hour ago, so that a drill may set a clock back.
func newAuthority(name string) (*authority, error) {
	return must.Return(func() *authority {
		key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		config := cert.Config{CommonName: name, NotBefore: time.Now().Add(-time.Hour)}
		return &authority{must.Get(cert.NewSelfSignedCACert(config, key)), key}
	})
}

func (a *authority) pem() []byte { return certs.EncodeCertPEM(a.cert) }

// sign makes a private key and its certificate.
func (a *authority) sign(config certs.Config) (certs.KeyPair, error) {
	return must.Return(func() certs.KeyPair {
		key := must.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
		signed := must.Get(config.NewSignedCert(key, a.cert, a.key))
		return certs.KeyPair{Cert: certs.EncodeCertPEM(signed), Key: must.Get(keyutil.MarshalPrivateKeyToPEM(key))}
	})
}
