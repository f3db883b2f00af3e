package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// theLease is what an elector writes.
func theLease(holder, acquired, renewed string) string {
	return fmt.Sprintf(`{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"stock"},
		"spec":{"holderIdentity":%q,"acquireTime":"2026-01-01T00:00:%s.000000Z",
		"renewTime":"2026-01-01T00:00:%s.000000Z"}}`, holder, acquired, renewed)
}

func TestWhatAnElectorAsksFor(t *testing.T) {
	const leases = "/apis/coordination.k8s.io/v1/namespaces/till/leases/stock"
	for name, test := range map[string]struct {
		method, path, body string
		want               lockWrite
	}{
		"it takes a lock that is there": {http.MethodPut, leases, theLease("a", "05", "05"), acquisition},
		"it makes its lock":             {http.MethodPost, leases, theLease("a", "05", "05"), acquisition},
		"it renews its lock":            {http.MethodPut, leases, theLease("a", "05", "07"), renewal},
		"it releases its lock":          {http.MethodPut, leases, theLease("", "07", "07"), giveUp},
		"it reads its lock":             {http.MethodGet, leases, "", other},
		"it writes an event":            {http.MethodPost, "/api/v1/namespaces/till/events", "{}", other},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
			if got := actOf(r); got != test.want {
				t.Errorf("it is taken for %q, want %q", got, test.want)
			}
			if body, err := io.ReadAll(r.Body); err != nil || string(body) != test.body {
				t.Errorf("the request became %q, %v", body, err)
			}
		})
	}
}

func TestAnAnswerComesAsLateAsItMay(t *testing.T) {
	example := limits{renew: 10 * time.Second}
	bounded := limits{renew: 10 * time.Second, timeout: 5 * time.Second}
	for name, test := range map[string]struct {
		limits limits
		what   lockWrite
		want   time.Duration // after the request was received, and sent on 2 s later
	}{
		"nothing but the API server ends an acquisition": {example, acquisition, 62 * time.Second},
		"the renew deadline ends a renewal":              {example, renewal, 10 * time.Second},
		"the renew deadline ends a release":              {example, giveUp, 10 * time.Second},
		"the client's timeout ends an acquisition":       {bounded, acquisition, 5 * time.Second},
		"the client's timeout ends a renewal":            {bounded, renewal, 5 * time.Second},
		"the client's timeout ends a release":            {bounded, giveUp, 5 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			received := time.Now()
			got := test.limits.latest(test.what, received, received.Add(2*time.Second)).Sub(received)
			if want := test.want - margin; got != want {
				t.Errorf("after %v, want %v", got, want)
			}
		})
	}
}
