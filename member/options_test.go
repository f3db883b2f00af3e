package member_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// transport is an http.RoundTripper.
type transport func(req *http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

// wrapper is a transport of a program's own, such as a proxy or a log.
type wrapper struct {
	next http.RoundTripper
	seen atomic.Int64
}

func (w *wrapper) RoundTrip(req *http.Request) (*http.Response, error) {
	w.seen.Add(1)
	return w.next.RoundTrip(req)
}

// open is a wrapper that shows what it wraps.
type open struct{ *wrapper }

func (o open) WrappedRoundTripper() http.RoundTripper { return o.next }

func closing(next http.RoundTripper) http.RoundTripper { return &wrapper{next: next} }
func opening(next http.RoundTripper) http.RoundTripper { return open{&wrapper{next: next}} }

func TestNew_RejectsWhatCannotWork(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "ca.crt")
	cfg := &rest.Config{}
	late := &rest.Config{Host: "http://member", TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	made := musttest.Get(rest.HTTPClientFor(late))(t)
	late.Wrap(member.CapWrites) // its clients are made already
	watching := func(namespace string) member.Options { return member.Options{Namespaces: []string{"a", namespace}} }
	registration := func(c *http.Client, namespace string) member.Options {
		return member.Options{Registration: &member.Registration{Namespace: namespace, Client: c}}
	}
	client := func(wrappers ...func(http.RoundTripper) http.RoundTripper) member.Options {
		return registration(clientOf(t, wrappers...), home)
	}
	const uncapped = "call cfg.Wrap(member.CapWrites) before the manager or any client is made"
	capped := &http.Client{Transport: member.CapWrites(http.DefaultTransport)}
	for name, row := range map[string]struct {
		cfg  *rest.Config
		o    member.Options
		want string // empty: it is accepted
	}{
		"no options":                      {cfg, member.Options{}, ""},
		"the shortest StaleAfter":         {cfg, member.Options{StaleAfter: 10 * time.Second}, ""},
		"a shorter one":                   {cfg, member.Options{StaleAfter: 10*time.Second - 1}, "want at least 10s"},
		"the largest skew of a policy":    {cfg, member.Options{MaxClockSkew: time.Hour}, ""},
		"more skew than that":             {cfg, member.Options{MaxClockSkew: 2 * time.Hour}, "no policy allows more"},
		"negative skew":                   {cfg, member.Options{MaxClockSkew: -1}, "must not be negative"},
		"an empty namespace":              {cfg, watching(""), "an empty name; to watch all, leave Namespaces empty"},
		"no configuration":                {nil, member.Options{}, "New needs the configuration of a client, and got none"},
		"an address that is none":         {&rest.Config{Host: "http://no such host"}, member.Options{}, "member: clients"},
		"CapWrites":                       {late, client(member.CapWrites), ""},
		"CapWrites below open wrappers":   {late, client(member.CapWrites, opening, opening), ""},
		"CapWrites below a closed one":    {late, client(member.CapWrites, closing), uncapped},
		"no client to register with":      {late, registration(nil, home), uncapped},
		"CapWrites came after the client": {late, registration(made, home), uncapped},
		"a registration elsewhere": {late, registration(capped, "My Home"),
			`Registration.Namespace is "My Home", and no namespace has that name`},
		"a CA that is missing": {
			&rest.Config{Host: "https://member", TLSClientConfig: rest.TLSClientConfig{CAFile: missing}}, member.Options{},
			"member: connect to the API server: open " + missing,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := member.New(row.cfg, row.o)
			misused := !strings.HasPrefix(row.want, "member: ")
			switch {
			case row.want == "" && (err != nil || m.Healthz(nil) != nil):
				t.Error(err)
			case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want) ||
				errors.Is(err, member.ErrMisused) != misused):
				t.Errorf("err = %v, want one with %q, of the program: %v", err, row.want, misused)
			}
		})
	}
}

func TestRegistration_IsInTheNamespaceOfThePod(t *testing.T) {
	file := filepath.Join(t.TempDir(), "namespace")
	defer member.SetNamespaceFile(file)()
	inFile := "Registration.Namespace in " + file + " is "
	for _, row := range []struct{ content, want string }{
		{"", "Registration.Namespace is empty, and this is no Pod that knows its own"},
		{"My Home", inFile + `"My Home", and no namespace has that name`},
		{" \n", inFile + "an empty name"},
		{home + "\n", ""},
	} {
		if row.content != "" {
			musttest.Do(t, os.WriteFile(file, []byte(row.content), 0o600))
		}
		asked := &member.Registration{Client: clientOf(t, member.CapWrites)}
		if row.want != "" {
			_, err := member.New(&rest.Config{}, member.Options{Registration: asked})
			if !errors.Is(err, member.ErrMisused) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%q: err = %v, want one with %q", row.content, err, row.want)
			}
			continue
		}
		started(t, member.Options{Registration: asked}, func(t *testing.T, r *testMember) {
			if got := r.registered(); len(got) != 1 || got[0].Namespace != home || asked.Namespace != "" {
				t.Errorf("registered %v, want one in %s; the caller's options: %+v", got, home, asked)
			}
		})
	}
}

func TestNew_KeepsWrappersAndDropsLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, h := newFakeServer(), newTestHub(t)
		proxy := &wrapper{}
		cfg := &rest.Config{
			Host: "http://member", QPS: 0.001, Burst: 1, Timeout: time.Second,
			ContentConfig: rest.ContentConfig{ContentType: "application/json"},
			Transport: transport(func(req *http.Request) (*http.Response, error) {
				if accept := req.Header.Get("Accept"); !strings.HasSuffix(req.UserAgent(), "/leasecast-member") ||
					!strings.Contains(accept, "protobuf") {
					t.Errorf("a request of %q for %q", req.UserAgent(), accept)
				}
				return s.RoundTrip(req)
			}),
		}
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { proxy.next = next; return proxy })
		cfg.Wrap(member.CapWrites)
		m := musttest.Get(member.New(cfg, member.Options{Clock: h.clock}))(t)
		r := &testMember{Member: m, fakeServer: s, testHub: h}
		r.start()
		pass(10 * time.Minute)
		r.write(ns, us, 7)
		// By default a list comes after half of 2 min at most.
		if lists := r.lists(); !r.leads(ns) || lists < 10 || lists > 21 || int(proxy.seen.Load()) != len(r.requests("")) {
			t.Errorf("leads = %v after %d lists; %d requests through the wrapper", r.leads(ns), lists, proxy.seen.Load())
		}
		if cfg.UserAgent != "" || cfg.QPS != 0.001 || cfg.Timeout != time.Second || cfg.ContentType != "application/json" {
			t.Errorf("the caller's configuration was changed: %v", cfg)
		}
	})
}

func TestNew_LogsToKlogByDefault(t *testing.T) {
	l := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	klog.SetLogger(l)
	defer klog.ClearLogger()
	synctest.Test(t, func(t *testing.T) {
		_ = musttest.Get(member.New(&rest.Config{}, member.Options{}))(t)
		pass(time.Minute)
	})
	if text := l.GetSink().(ktesting.Underlier).GetBuffer().String(); !strings.Contains(text, "is not started") {
		t.Errorf("klog was given:\n%s", text)
	}
}

// The smaller one of the option and the policy counts.
func TestOptions_MaxClockSkew(t *testing.T) {
	const s = time.Second
	type row struct {
		option, policy, ahead time.Duration
		leads                 bool
	}
	musttest.Each(t, map[string]row{
		"1 s by default":                 {0, s, s, true},
		"no more than 1 s by default":    {0, s, s + time.Millisecond, false},
		"the policy's, below the option": {2 * s, s / 4, s / 2, false},
		"the option, below the policy's": {s / 4, 2 * s, s / 2, false},
		"the option alone":               {s, 0, s / 2, true},
	}, func(t *testing.T, row row) {
		r := startTestMember(t, member.Options{MaxClockSkew: row.option})
		r.write(ns, us, 7, allowing(t, row.policy), ahead(row.ahead))
		if leads := r.leads(ns); leads != row.leads {
			t.Errorf("leads = %v; %s", leads, r.State(ns).Why)
		}
	})
}
