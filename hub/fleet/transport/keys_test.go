package transport

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"math/big"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// number is an odd number of so many bits.
func number(bits int) *big.Int {
	n := new(big.Int).Lsh(big.NewInt(1), uint(bits-1))
	return n.SetBit(n, 0, 1)
}

// rsaCertificate is a certificate in PEM for an RSA key with a modulus.
func rsaCertificate(t *testing.T, n *big.Int) []byte {
	t.Helper()
	issuer := musttest.Get(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der := musttest.Get(x509.CreateCertificate(rand.Reader, template, template, &rsa.PublicKey{N: n, E: 65537}, issuer))(t)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// rsaKey is a private key in PKCS #1, with the parts that have so many bits and no others.
func rsaKey(t *testing.T, n, d, p, q int) []byte {
	t.Helper()
	der := musttest.Get(asn1.Marshal(struct {
		Version int
		N       *big.Int
		E       int
		D, P, Q *big.Int
	}{0, number(n), 65537, number(d), number(p), number(q)}))(t)
	return der
}

// inPKCS8 wraps a key of PKCS #1.
func inPKCS8(t *testing.T, key []byte) []byte {
	t.Helper()
	der := musttest.Get(asn1.Marshal(struct {
		Version   int
		Algorithm pkix.AlgorithmIdentifier
		Key       []byte
	}{0, pkix.AlgorithmIdentifier{
		Algorithm:  asn1.ObjectIdentifier{1, 2, 840, 113549, 1, 1, 1},
		Parameters: asn1.NullRawValue,
	}, key}))(t)
	return der
}

// inPEM is a private key in PEM.
func inPEM(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

// Whoever computes with the large ones of these keys takes minutes or hours.
func TestWhichKeysAreUsed(t *testing.T) {
	own := musttest.Get(rsa.GenerateKey(rand.Reader, 2048))(t)
	ownCert := rsaCertificate(t, own.N)
	const none, large = "no PEM certificate with its key", "RSA key of more than 4096 bits"
	for name, tc := range map[string]struct {
		ca, cert, key []byte // in PEM
		wantErr       string
	}{
		"an RSA key":            {nil, ownCert, inPEM(x509.MarshalPKCS1PrivateKey(own)), ""},
		"an RSA key in PKCS #8": {nil, ownCert, inPEM(inPKCS8(t, x509.MarshalPKCS1PrivateKey(own))), ""},
		"a CA of 4,096 bits":    {rsaCertificate(t, number(4096)), nil, nil, ""},
		"a CA of 4,097 bits": {
			ca:      rsaCertificate(t, number(4097)),
			wantErr: "certificate-authority-data holds an " + large,
		},
		"a CA of 65,536 bits behind others": {
			ca:      append(rsaCertificate(t, number(2048)), rsaCertificate(t, number(65536))...),
			wantErr: large,
		},
		"a client certificate of 65,536 bits": {
			cert:    rsaCertificate(t, number(65536)),
			key:     inPEM(rsaKey(t, 2048, 2048, 1024, 1024)),
			wantErr: "client-certificate-data holds an " + large,
		},
		"an issuer of it of 65,536 bits": {
			cert:    append(ownCert, rsaCertificate(t, number(65536))...),
			key:     inPEM(x509.MarshalPKCS1PrivateKey(own)),
			wantErr: large,
		},
		"a key of 4,097 bits":                   {nil, ownCert, inPEM(rsaKey(t, 4097, 2048, 1024, 1024)), large},
		"a key of 4,097 bits in PKCS #8":        {nil, ownCert, inPEM(inPKCS8(t, rsaKey(t, 4097, 2048, 1024, 1024))), large},
		"numbers of 4,096 bits that are no key": {nil, ownCert, inPEM(rsaKey(t, 4096, 4096, 2048, 2048)), none},
		"a key whose first prime is too large":  {nil, ownCert, inPEM(rsaKey(t, 2048, 2048, 30000, 1024)), large},
		"a key whose second prime is too large": {nil, ownCert, inPEM(rsaKey(t, 2048, 2048, 1024, 30000)), large},
		"a key with much behind its numbers": {
			cert:    ownCert,
			key:     inPEM(append(rsaKey(t, 2048, 2048, 1024, 1024), make([]byte, maxKey)...)),
			wantErr: "more than 3072 bytes",
		},
		"a large key behind something else": {
			cert:    ownCert,
			key:     append(pem.EncodeToMemory(&pem.Block{Type: "X"}), inPEM(rsaKey(t, 65536, 65536, 32768, 32768))...),
			wantErr: large,
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, err := ParseKubeconfig(kubeconfig(t, func(k *kubeFile) {
				k.cluster.CertificateAuthorityData, k.user.ClientCertificateData, k.user.ClientKeyData = tc.ca, tc.cert, tc.key
			}))
			checkError(t, err, tc.wantErr)
			if c := a.tlsConfig(); err == nil &&
				((c.RootCAs != nil) != (tc.ca != nil) || (len(c.Certificates) > 0) != (tc.cert != nil)) {
				t.Errorf("roots %v, %d certificates", c.RootCAs, len(c.Certificates))
			}
		})
	}
}
