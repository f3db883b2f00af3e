package member_test

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

const staleAfter = 40 * time.Second

// testMember is a Member of a fake API server, in a bubble.
type testMember struct {
	*member.Member
	*fakeServer
	*testHub
	log  *testLog
	stop func() // returns when Start has
}

// newTestMember returns a Member that is not started. Where it registers, Leases last an hour, so that the
// registration bounds its terms.
func newTestMember(t *testing.T, o member.Options) *testMember {
	t.Helper()
	r := &testMember{fakeServer: newFakeServer(), testHub: newTestHub(t), log: &testLog{}}
	if o.Registration != nil {
		r.lasts = time.Hour
	}
	o.Clock, o.Logger, o.StaleAfter = r.clock, r.log.logger(), cmp.Or(o.StaleAfter, staleAfter)
	m := musttest.Get(member.New(&rest.Config{Host: "http://member", Transport: r.fakeServer}, o))(t)
	r.Member = m
	return r
}

// startTestMember returns a Member that has been started and waits for something.
func startTestMember(t *testing.T, o member.Options) *testMember {
	t.Helper()
	r := newTestMember(t, o)
	r.start()
	synctest.Wait()
	return r
}

// started runs f with a Member that follows its cluster, in a bubble.
func started(t *testing.T, o member.Options, f func(t *testing.T, r *testMember)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, startTestMember(t, o)) })
}

// registered runs f with a Member that is registered and leads, in a bubble.
func registered(t *testing.T, f func(t *testing.T, r *testMember)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, startRegistered(t)) })
}

// startRegistered returns a Member that is registered and leads.
func startRegistered(t *testing.T) *testMember {
	t.Helper()
	r := startTestMember(t, registering(t))
	if r.write(ns, us, 7); !r.leads(ns) {
		t.Fatal("does not lead")
	}
	return r
}

// registering returns the options of a Member that registers.
func registering(t *testing.T, namespaces ...string) member.Options {
	t.Helper()
	return member.Options{
		Namespaces:   namespaces,
		Registration: &member.Registration{Namespace: home, Client: clientOf(t, member.CapWrites)},
	}
}

// clientOf returns the client of a configuration with these wrappers.
func clientOf(t *testing.T, wrappers ...func(http.RoundTripper) http.RoundTripper) *http.Client {
	t.Helper()
	cfg := &rest.Config{Host: "http://member", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	for _, w := range wrappers {
		cfg.Wrap(w)
	}
	c := musttest.Get(rest.HTTPClientFor(cfg))(t)
	return c
}

// start runs the Member until the test is over, or until stop is called.
func (r *testMember) start() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- r.Start(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Error(err)
		}
	})
	r.t.Cleanup(r.stop)
}

// write has the hub write a Lease of now.
func (r *testMember) write(namespace, holder string, epoch int64, edits ...edit) {
	r.t.Helper()
	r.put(r.leaseOf(namespace, holder, epoch, edits...))
}

// lists returns how many lists were asked for so far.
func (r *testMember) lists() int { return len(r.requests("list ")) }

func (r *testMember) leads(namespace string) bool {
	synctest.Wait()
	_, ok := r.Term(namespace)
	return ok
}

// expectState fails the test unless State has these reasons. An empty text stands for none.
func (r *testMember) expectState(t *testing.T, when string, leads bool, why, trouble string) {
	t.Helper()
	synctest.Wait()
	if s := r.State(ns); s.Leads != leads || !contains(s.Why, why) || !contains(s.Trouble, trouble) {
		t.Errorf("%s: State = %+v, want leads = %v, because of %q, trouble %q", when, s, leads, why, trouble)
	}
}

// contains reports whether a text contains another one, and whether both are empty or none.
func contains(text, part string) bool {
	return (text == "") == (part == "") && strings.Contains(text, part)
}

// testLog has the lines that a Member has logged.
type testLog struct {
	mu    sync.Mutex
	lines []string
}

func (l *testLog) logger() logr.Logger {
	return funcr.New(func(_, line string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}, funcr.Options{})
}

// with returns the lines that contain all the texts, and forgets none.
func (l *testLog) with(texts ...string) (lines []string) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			lines = append(lines, line)
		}
	}
	return lines
}

// expect fails the test unless so many lines contain all the texts.
func (l *testLog) expect(t *testing.T, when string, n int, texts ...string) {
	t.Helper()
	if got := l.with(texts...); len(got) != n {
		t.Errorf("%s: %d lines with %q, want %d; all:\n%s", when, len(got), texts, n, strings.Join(l.with(), "\n"))
	}
}
