package member_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

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
	for name, tc := range map[string]struct {
		transport http.RoundTripper
		wrap      []func(http.RoundTripper) http.RoundTripper
		taken     bool
	}{
		"nothing":                              {},
		"CapWrites":                            {wrap: []func(http.RoundTripper) http.RoundTripper{member.CapWrites}, taken: true},
		"another wrapper alone":                {wrap: []func(http.RoundTripper) http.RoundTripper{opening}},
		"CapWrites on another wrapper":         {wrap: []func(http.RoundTripper) http.RoundTripper{closing, member.CapWrites}, taken: true},
		"below a wrapper that is seen through": {wrap: []func(http.RoundTripper) http.RoundTripper{member.CapWrites, opening, opening}, taken: true},
		"below one that is not":                {wrap: []func(http.RoundTripper) http.RoundTripper{member.CapWrites, closing}},
		"in a transport of one's own":          {transport: member.CapWrites(http.DefaultTransport), taken: true},
		"a transport without":                  {transport: http.DefaultTransport},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := &rest.Config{Transport: tc.transport}
			for _, wrap := range tc.wrap {
				cfg.Wrap(wrap)
			}
			_, err := member.New(cfg, member.Options{Registration: &member.Registration{Namespace: home}})
			switch {
			case tc.taken && err != nil:
				t.Error(err)
			case !tc.taken && (err == nil || !strings.Contains(err.Error(), "call cfg.Wrap(member.CapWrites) before the manager or any client is made")):
				t.Errorf("err = %v, want one that says what to do", err)
			}
			if _, err := member.New(cfg, member.Options{}); err != nil {
				t.Errorf("without a registration: %v", err)
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

// Two Members in one process, as when two controllers bring one each, know the same and end apart.
func TestTwoMembersInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newReader(t)
		b := &reader{server: a.server, cluster: a.cluster}
		m, err := member.New(a.config(), member.Options{Namespaces: []string{ns}, Clock: a.cluster.clock})
		if err != nil {
			t.Fatal(err)
		}
		b.Member = m
		stop := a.start(t)
		defer b.start(t)()
		a.put(a.cluster.leaseOf(ns, us, 1))
		if !a.leads(ns) || !b.leads(ns) {
			t.Errorf("leads: %v and %v", a.leads(ns), b.leads(ns))
		}
		of, done, err := a.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		stop()
		if !errors.Is(context.Cause(of), member.ErrLost) || a.leads(ns) {
			t.Error("the work of the one that was stopped goes on")
		}
		if !b.leads(ns) {
			t.Error("the other one has lost its term")
		}
		if _, _, err := b.Context(of, ns); err != nil {
			t.Error(err)
		}
		pass(duration)
	})
}

// Both may register: each has a registration of its own, and releases what it did itself.
func TestTwoRegisteredMembersInOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newRegistered(t)
		b := &reader{server: a.server, cluster: a.cluster}
		cfg := a.config()
		cfg.Wrap(member.CapWrites)
		m, err := member.New(cfg, member.Options{Clock: a.cluster.clock, Registration: &member.Registration{Namespace: home}})
		if err != nil {
			t.Fatal(err)
		}
		b.Member = m
		a.say(ns, us, 7)
		defer a.start(t)()
		defer b.start(t)()
		if synctest.Wait(); len(a.registered()) != 2 {
			t.Errorf("%d registrations, want 2", len(a.registered()))
		}
		_, done, err := a.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		a.say(ns, none, 8)
		pass(time.Second)
		released := 0
		for _, l := range a.registrations(t) {
			if l.HasReleased(ns, 7) {
				released++
			}
		}
		if released != 1 {
			t.Errorf("%d have released while one works, want 1", released)
		}
		done()
		pass(time.Second)
		for _, l := range a.registrations(t) {
			if !l.HasReleased(ns, 7) {
				t.Errorf("%s has not released after the work", l.Identity)
			}
		}
	})
}
