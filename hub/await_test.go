package hub

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

func TestTheHubWaitsForItsAPIServer(t *testing.T) {
	silent := func(ctx context.Context) error {
		<-ctx.Done()
		return ctx.Err()
	}
	refuses := func(context.Context) error { return errors.New("forbidden") }
	cases := map[string]struct {
		before  func(context.Context) error // what it does until it answers
		answers time.Duration
		least   time.Duration // that the hub waits
		most    time.Duration
		lines   int // of the log
	}{
		"it answers at once": {before: refuses},
		"it refuses for ten minutes": {
			before:  refuses,
			answers: 10 * time.Minute,
			least:   10 * time.Minute,
			most:    10*time.Minute + askEvery,
			lines:   20,
		},
		"it says nothing to one of requests": {before: silent, answers: 1, least: askTimeout, most: askTimeout, lines: 1},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, lines := time.Now(), 0
				logger := funcr.New(func(string, string) { lines++ }, funcr.Options{})
				answer, err := await(logr.NewContext(t.Context(), logger), func(ctx context.Context) (string, error) {
					if time.Since(began) < c.answers {
						return "", c.before(ctx)
					}
					return "uid", nil
				})
				if answer != "uid" || err != nil {
					t.Errorf("answer %q, %v", answer, err)
				}
				if waited := time.Since(began); waited < c.least || waited > c.most {
					t.Errorf("it waited for %v, want %v to %v", waited, c.least, c.most)
				}
				if lines != c.lines {
					t.Errorf("it said so in %d lines, want %d", lines, c.lines)
				}
			})
		})
	}
}

func TestTheEndOfTheContextEndsTheWaitAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := await(ctx, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", errors.New("no answer")
		})
		if waited := time.Since(began); err == nil || waited != time.Minute {
			t.Errorf("it ended after %v with %v", waited, err)
		}
	})
}

// The API server refuses, as one does that has just started. Meanwhile the probes say what a kubelet must know.
func TestWhileItWaitsTheHubIsAliveAndNotReady(t *testing.T) {
	var allows atomic.Bool
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !allows.Load() {
			http.Error(w, "not yet", http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"kube-system","uid":"uid"}}`)
	}))
	t.Cleanup(s.Close)
	address := fleet.FreeAddress(t)
	cfg := &rest.Config{Host: s.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	type outcome struct {
		id  string
		err error
	}
	ended := make(chan outcome)
	go func() {
		id, err := awaitHubID(t.Context(), cfg, Options{Namespace: "hub", ProbeAddress: address})
		ended <- outcome{id, err}
	}()
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if got := statusOf(t, "http://"+address+path); got != want {
			t.Errorf("%s: status %d, want %d", path, got, want)
		}
	}
	allows.Store(true)
	if o := <-ended; o.err != nil || o.id != seal.Mark("uid", "hub") {
		t.Errorf("mark %q, %v", o.id, o.err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the manager cannot answer the probes: %v", err)
	}
	_ = l.Close()
}

// statusOf gets a URL as soon as somebody listens there.
func statusOf(t *testing.T, url string) int {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; <-time.After(10 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			_ = resp.Body.Close()
			return resp.StatusCode
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}
