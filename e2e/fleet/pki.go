package fleet

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"sigs.k8s.io/cluster-api/util/certs"
)

// authority signs the certificates of one server and of its users.
type authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newAuthority makes an authority that is valid since an hour ago, so that a drill may set a clock back.
func newAuthority(name string) (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	ca, err := cert.NewSelfSignedCACert(cert.Config{CommonName: name, NotBefore: time.Now().Add(-time.Hour)}, key)
	return &authority{ca, key}, err
}

func (a *authority) pem() []byte { return certs.EncodeCertPEM(a.cert) }

// sign makes a private key and its certificate.
func (a *authority) sign(config certs.Config) (pair certs.KeyPair, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pair, err
	}
	signed, err := config.NewSignedCert(key, a.cert, a.key)
	if err != nil {
		return pair, fmt.Errorf("sign the certificate of %s: %w", config.CommonName, err)
	}
	pair.Cert = certs.EncodeCertPEM(signed)
	pair.Key, err = keyutil.MarshalPrivateKeyToPEM(key)
	return pair, err
}
