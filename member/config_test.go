package member_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member"
)

// wrapper is somebody's own: a log, or a proxy.
type wrapper struct {
	next http.RoundTripper
	seen atomic.Int64
}

func (w *wrapper) RoundTrip(req *http.Request) (*http.Response, error) {
	w.seen.Add(1)
	return w.next.RoundTrip(req)
}

// open is a wrapper that can be seen through.
type open struct{ *wrapper }

func (o open) WrappedRoundTripper() http.RoundTripper { return o.next }

func closing(next http.RoundTripper) http.RoundTripper { return &wrapper{next: next} }
func opening(next http.RoundTripper) http.RoundTripper { return open{&wrapper{next: next}} }

func TestARegistrationIsRefusedWithoutCapWrites(t *testing.T) {
	late := &rest.Config{Host: "http://member", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	made, err := rest.HTTPClientFor(late)
	if err != nil {
		t.Fatal(err)
	}
	late.Wrap(member.CapWrites) // its clients are made already
	for name, tc := range map[string]struct {
		client *http.Client
		taken  bool
	}{
		"no client":                            {},
		"one without wrappers":                 {client: client(t)},
		"CapWrites":                            {client: client(t, member.CapWrites), taken: true},
		"another wrapper alone":                {client: client(t, opening)},
		"CapWrites on another wrapper":         {client: client(t, closing, member.CapWrites), taken: true},
		"below a wrapper that is seen through": {client: client(t, member.CapWrites, opening, opening), taken: true},
		"below one that is not":                {client: client(t, member.CapWrites, closing)},
		"in a transport of one's own": {
			client: &http.Client{Transport: member.CapWrites(http.DefaultTransport)},
			taken:  true,
		},
		"a transport without":             {client: &http.Client{Transport: http.DefaultTransport}},
		"no transport":                    {client: &http.Client{}},
		"put on when the client was made": {client: made},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := member.New(late, member.Options{Registration: &member.Registration{Namespace: home, Client: tc.client}})
			switch {
			case tc.taken && err != nil:
				t.Error(err)
			case !tc.taken && (!errors.Is(err, member.ErrMisused) ||
				!strings.Contains(err.Error(), "call cfg.Wrap(member.CapWrites) before the manager or any client is made")):
				t.Errorf("err = %v, want one that says what to do", err)
			}
		})
	}
}

// A Member made with a configuration that already has a wrapper asks through it.
func TestAMemberKeepsTheWrappersOfItsConfiguration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := newReader(t), &wrapper{}
		cfg := r.config()
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { w.next = next; return w })
		cfg.Wrap(member.CapWrites)
		m, err := member.New(cfg, member.Options{Clock: r.cluster.clock})
		if err != nil {
			t.Fatal(err)
		}
		r.Member = m
		defer r.start(t)()
		r.put(r.cluster.leaseOf(ns, us, 1))
		if !r.leads(ns) || w.seen.Load() == 0 {
			t.Errorf("leads = %v after %d requests through the wrapper: %s", r.leads(ns), w.seen.Load(), r.State(ns).Why)
		}
	})
}
