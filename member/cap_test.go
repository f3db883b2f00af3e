package member_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
)

// wireEnd is the end of a client: it keeps the last request that reached it.
type wireEnd struct{ last *http.Request }

func (w *wireEnd) RoundTrip(req *http.Request) (*http.Response, error) {
	w.last = req
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// body knows whether it was closed.
type body struct {
	io.Reader
	closed bool
}

func (b *body) Close() error {
	b.closed = true
	return nil
}

func send(ctx context.Context, t *testing.T, method, query string) (sent *http.Request, b *body, err error) {
	t.Helper()
	b = &body{Reader: strings.NewReader("{}")}
	req, err := http.NewRequestWithContext(ctx, method, "http://member/apis/v1/things/x"+query, b)
	if err != nil {
		t.Fatal(err)
	}
	w := &wireEnd{}
	resp, err := member.CapWrites(w).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if got := req.URL.RawQuery; "?"+got != query && got != query {
		t.Errorf("the caller's request was changed to %q", got)
	}
	return w.last, b, err
}

func TestCapWritesLowersTheTimeoutToWhatRemains(t *testing.T) {
	cases := map[string]struct {
		method, query string
		gated         bool
		want          string
	}{
		"a create":                      {http.MethodPost, "", true, "timeout=10s"},
		"an update":                     {http.MethodPut, "", true, "timeout=10s"},
		"a patch keeps its parameters":  {http.MethodPatch, "?force=true", true, "force=true&timeout=10s"},
		"a deletion":                    {http.MethodDelete, "", true, "timeout=10s"},
		"a longer timeout":              {http.MethodPost, "?timeout=30s", true, "timeout=10s"},
		"no limit at all":               {http.MethodPost, "?timeout=0s", true, "timeout=10s"},
		"a shorter timeout stays":       {http.MethodPost, "?timeout=3s", true, "timeout=3s"},
		"a read passes as it is":        {http.MethodGet, "", true, ""},
		"work without a term passes":    {http.MethodPost, "", false, ""},
		"and keeps the timeout it asks": {http.MethodPost, "?timeout=30s", false, "timeout=30s"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.write(ns, us, 7)
				ctx := t.Context()
				if tc.gated {
					gated, cancel := c.context(ns)
					defer cancel()
					ctx = gated
				}
				pass(duration - 10*time.Second - 999*time.Microsecond)
				sent, _, err := send(ctx, t, tc.method, tc.query)
				if err != nil {
					t.Fatal(err)
				}
				if got := sent.URL.RawQuery; got != tc.want {
					t.Errorf("sent with %q, want %q", got, tc.want)
				}
			})
		})
	}
}

func TestCapWritesFollowsRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.write(ns, us, 7)
		ctx, cancel := c.context(ns)
		defer cancel()
		pass(10 * time.Second)
		c.write(ns, us, 7)
		sent, _, err := send(ctx, t, http.MethodPost, "")
		if err != nil || sent.URL.RawQuery != "timeout=15s" {
			t.Errorf("sent with %q, err %v, want the renewed term's 15s", sent.URL.RawQuery, err)
		}
	})
}

func TestCapWritesSendsNothingAfterTheTerm(t *testing.T) {
	cases := map[string]func(c *cluster){
		"demoted":               func(c *cluster) { c.write(ns, them, 8) },
		"a new term has begun":  func(c *cluster) { c.write(ns, us, 8) },
		"suspended just before": func(c *cluster) { c.clock.Suspend(duration) },
		"less than 1ms is left": func(*cluster) { pass(duration - 999*time.Microsecond) },
	}
	for name, happens := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				c.write(ns, us, 7)
				ctx, cancel := c.context(ns)
				defer cancel()
				happens(c)
				sent, body, err := send(ctx, t, http.MethodPut, "")
				if !errors.Is(err, member.ErrLost) || !errors.Is(err, member.ErrNotBegun) || sent != nil || !body.closed {
					t.Errorf("err = %v, sent = %v, body closed = %v; want ErrNotBegun with ErrLost, nothing sent and the body closed",
						err, sent != nil, body.closed)
				}
				if member.Check(ctx) == nil {
					t.Error("who was told that the term is over finds it standing")
				}
			})
		})
	}
}
