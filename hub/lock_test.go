package hub

import (
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/proxy"
)

func TestTheElectionIsRenewedInTimeAfterItsConnectionDiedSilently(t *testing.T) {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"coordination.k8s.io/v1","kind":"Lease",`+
			`"metadata":{"name":"leasecast-hub"},"spec":{"holderIdentity":"us"}}`)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	p, err := proxy.New(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	lock, err := electionLock(&rest.Config{
		Host:            "https://" + p.Addr(),
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}, "hub", "us")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.Strand()
	ctx, cancel := context.WithTimeout(t.Context(), renewDeadline)
	defer cancel()
	for began := time.Now(); ; <-time.After(50 * time.Millisecond) {
		_, _, err := lock.Get(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("not reached for %v: %v", time.Since(began), err)
		}
	}
}
