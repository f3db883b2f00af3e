package metrics

import (
	"strings"
	"testing"
)

func TestServer_MissingCertificateIsAnError(t *testing.T) {
	_, err := Server(":0", t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "tls.crt") || !strings.Contains(err.Error(), "mount a Secret") {
		t.Errorf("%v", err)
	}
}
