package transport

import (
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/asn1"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
)

const (
	// maxRSA bounds RSA keys, in bits: what they cost grows with the third power. A key of 8,192 bits takes 0.2 s of CPU
	// at each try to connect. crypto/tls has that bound for the certificates of servers, and none for a client's own key
	// or for CAs.
	maxRSA = 4096
	// maxKey bounds a private key, in bytes. An RSA key of 4,096 bits has 2,375.
	maxKey = 3 << 10
)

// errLargeKey is returned before anything is computed with such a key.
var errLargeKey = fmt.Errorf("holds an RSA key of more than %d bits, or a private key of more than %d bytes: "+
	"use a smaller one", maxRSA, maxKey)

// parseCA returns the pool of the certificates in PEM, or nil for no text.
func parseCA(text string) (*x509.CertPool, error) {
	if text == "" {
		return nil, nil
	}
	all, err := certificates(text)
	if err != nil {
		return nil, fmt.Errorf("certificate-authority-data %w", err)
	}
	if len(all) == 0 {
		return nil, errors.New("certificate-authority-data holds no PEM certificate")
	}
	pool := x509.NewCertPool()
	for _, c := range all {
		pool.AddCert(c)
	}
	return pool, nil
}

// parsePair returns a client certificate with its key, both in PEM, or nil for no text.
func parsePair(cert, key string) (*tls.Certificate, error) {
	if cert == "" {
		return nil, nil
	}
	if _, err := certificates(cert); err != nil {
		return nil, fmt.Errorf("client-certificate-data %w", err)
	}
	for block, rest := pem.Decode([]byte(key)); block != nil; block, rest = pem.Decode(rest) {
		if isLargeKey(block.Bytes) {
			return nil, fmt.Errorf("client-key-data %w", errLargeKey)
		}
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, errors.New("client-certificate-data and client-key-data are no PEM certificate with its key")
	}
	return &pair, nil
}

// certificates returns those in a text in PEM. Like x509.CertPool, it skips what is no certificate.
func certificates(text string) (all []*x509.Certificate, err error) {
	for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || err != nil {
			continue
		}
		if k, ok := c.PublicKey.(*rsa.PublicKey); ok && k.N.BitLen() > maxRSA {
			return nil, errLargeKey
		}
		all = append(all, c)
	}
	return all, nil
}

// isLargeKey reports whether a private key must not be parsed by crypto/x509, which computes with its primes. It
// decodes what all RSA keys begin with, in PKCS #1 or in PKCS #8. Keys of other kinds have a fixed size.
func isLargeKey(der []byte) bool {
	if len(der) > maxKey {
		return true
	}
	var pkcs8 struct {
		Version   int
		Algorithm asn1.RawValue
		Key       []byte
	}
	if _, err := asn1.Unmarshal(der, &pkcs8); err == nil {
		der = pkcs8.Key
	}
	var key struct {
		Version int
		N       *big.Int
		E       int
		D, P, Q *big.Int
	}
	_, err := asn1.Unmarshal(der, &key)
	return err == nil && (key.N.BitLen() > maxRSA || max(key.P.BitLen(), key.Q.BitLen()) > maxRSA/2)
}
