package metrics

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// stands is a clock that somebody moves.
type stands struct{ at time.Duration }

func (s *stands) Now() lease.Reading { return lease.Reading{Wall: start.Add(s.at), Boot: s.at} }

func TestACertificateIsReplacedLongBeforeItExpires(t *testing.T) {
	clock := &stands{}
	c := &selfSigned{clock: clock}
	valid := func() *x509.Certificate {
		t.Helper()
		cert, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := x509.ParseCertificate(cert.Certificate[0])
		if err != nil {
			t.Fatal(err)
		}
		if now := clock.Now().Wall; now.Before(parsed.NotBefore) || parsed.NotAfter.Sub(now) < certLife-certFresh {
			t.Errorf("at %v the certificate is valid from %v to %v", now, parsed.NotBefore, parsed.NotAfter)
		}
		return parsed
	}
	first := valid()
	clock.at = certFresh - time.Second
	if again := valid(); !again.Equal(first) {
		t.Error("a fresh certificate was replaced")
	}
	clock.at = certFresh
	if next := valid(); next.Equal(first) {
		t.Error("an old certificate is still in use")
	}
}

func TestACertificateThatIsNotThereIsAnError(t *testing.T) {
	_, err := Server(":0", t.TempDir(), &stands{})
	if err == nil || !strings.Contains(err.Error(), "tls.crt") || !strings.Contains(err.Error(), "mount a Secret") {
		t.Errorf("%v", err)
	}
}
