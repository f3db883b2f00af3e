package member_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member"
)

func TestAMemberThatNewDidNotMakeSaysSo(t *testing.T) {
	var m member.Member
	if _, ok := m.Term(ns); ok {
		t.Error("it leads")
	}
	_, _, ofContext := m.Context(t.Context(), ns)
	for what, err := range map[string]error{
		"Start":       m.Start(within(t)),
		"Context":     ofContext,
		"WaitForSync": m.WaitForSync(within(t)),
		"Healthz":     m.Healthz(nil),
		"Lead":        m.Lead(within(t), ns, func(context.Context) error { return nil }),
	} {
		if !errors.Is(err, member.ErrMisused) || !strings.Contains(err.Error(), "was not made by New") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if s := m.State(ns); s.Leads || !strings.Contains(s.Why, "was not made by New") {
		t.Errorf("State = %+v", s)
	}
	m.Listen(member.Listener{})()
}

func TestNobodyLeadsANamespaceWithoutAName(t *testing.T) {
	r := newReader(t)
	_, _, ofContext := r.Context(t.Context(), "")
	for what, err := range map[string]error{
		"Context": ofContext,
		"Lead":    r.Lead(within(t), "", func(context.Context) error { return nil }),
	} {
		if !errors.Is(err, member.ErrMisused) || errors.Is(err, member.ErrNotLeader) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestNewWithoutAConfigurationIsRefused(t *testing.T) {
	if _, err := member.New(nil, member.Options{}); !errors.Is(err, member.ErrMisused) {
		t.Errorf("err = %v", err)
	}
}

// Pings are what finds out that a connection has died without a word, and a Transport of somebody else may send none.
func TestATransportThatNobodyPingsIsTold(t *testing.T) {
	for name, test := range map[string]struct {
		cfg  rest.Config
		told int
	}{
		"a configuration with a Transport": {rest.Config{Host: "http://member", Transport: http.DefaultTransport}, 1},
		"one without":                      {rest.Config{Host: "http://member"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &logged{}
				if _, err := member.New(&test.cfg, member.Options{Logger: l.logger()}); err != nil {
					t.Fatal(err)
				}
				l.expect(t, "the Transport", test.told, "has a Transport of its own")
			})
		})
	}
}

func TestCapWritesWithoutATransportFailsEachRequest(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		for _, sent := range []*body{{Reader: strings.NewReader("x")}, nil} {
			req, err := http.NewRequestWithContext(t.Context(), method, "http://member", nil)
			if err != nil {
				t.Fatal(err)
			}
			if sent != nil {
				req.Body = sent
			}
			resp, err := member.CapWrites(nil).RoundTrip(req)
			if resp != nil {
				_ = resp.Body.Close()
			}
			if !errors.Is(err, member.ErrMisused) || sent != nil && !sent.closed {
				t.Errorf("%s: err = %v; want ErrMisused, and the body %+v closed", method, err, sent)
			}
		}
	}
}

func TestNewRefusesOptionsThatCannotWork(t *testing.T) {
	for name, tc := range map[string]struct {
		options member.Options
		want    string
	}{
		"negative skew": {member.Options{MaxClockSkew: -1}, "MaxClockSkew is -1ns"},
		"more skew than a policy allows": {
			options: member.Options{MaxClockSkew: 2 * time.Hour},
			want:    "MaxClockSkew is 2h0m0s: no policy allows more than 1h0m0s",
		},
		"stale before a watch ends": {member.Options{StaleAfter: time.Second}, "StaleAfter is 1s: want at least 10s"},
		"an empty namespace": {
			options: member.Options{Namespaces: []string{"a", ""}},
			want:    "Namespaces contains an empty name; to watch all, leave Namespaces empty",
		},
		"a star for all": {
			options: member.Options{Namespaces: []string{"*"}},
			want:    `Namespaces contains "*", and no namespace has that name`,
		},
		"a space": {
			options: member.Options{Namespaces: []string{" shop"}},
			want:    `Namespaces contains " shop", and no namespace has that name`,
		},
		"a path": {
			options: member.Options{Namespaces: []string{"shop?watch=true"}},
			want:    `Namespaces contains "shop?watch=true"`,
		},
		"two in one": {
			options: member.Options{Namespaces: []string{"one,another"}},
			want:    `Namespaces contains "one,another"`,
		},
		"a home that is none": {
			member.Options{Registration: &member.Registration{Namespace: "My Home", Client: client(t, member.CapWrites)}},
			`Registration.Namespace is "My Home", and no namespace has that name`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := member.New(&rest.Config{}, tc.options); !errors.Is(err, member.ErrMisused) ||
				!strings.Contains(err.Error(), tc.want) {
				t.Errorf("err = %v, want one about %q", err, tc.want)
			}
		})
	}
	if _, err := member.New(&rest.Config{}, member.Options{MaxClockSkew: time.Hour}); err != nil {
		t.Errorf("the most that a policy allows: %v", err)
	}
}

func TestWhatWaitsForAMemberReturnsWhenItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReader(t, ns)
		r.become(hangs)
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan error, 1)
		go func() { started <- r.Start(ctx) }()
		waits := make(chan error, 2)
		go func() { waits <- r.WaitForSync(within(t)) }()
		go func() { waits <- r.Lead(within(t), ns, func(context.Context) error { return nil }) }()
		synctest.Wait()
		began := time.Now()
		cancel()
		for range 2 {
			if err := <-waits; !errors.Is(err, member.ErrStopped) || time.Since(began) > 0 {
				t.Errorf("err = %v after %v", err, time.Since(began))
			}
		}
		if err := <-started; err != nil {
			t.Error(err)
		}
	})
}

// Nothing is known for sure any more, and nothing will be led.
func TestAMemberThatHasStoppedSaysSo(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, r *reader){
		"after it has led": func(t *testing.T, r *reader) {
			stop := r.start(t)
			synctest.Wait()
			if s := r.State(ns); !s.Leads {
				t.Errorf("State = %+v", s)
			}
			stop()
		},
		"when its context had ended before": func(t *testing.T, r *reader) {
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Start(ended); err != nil {
				t.Error(err)
			}
			if asked := r.requests(); len(asked) > 0 {
				t.Errorf("it asked for %q", asked)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(t, ns)
				r.put(r.cluster.leaseOf(ns, us, 1))
				before(t, r)
				began := time.Now()
				_, _, ofContext := r.Context(t.Context(), ns)
				for what, err := range map[string]error{
					"Context":     ofContext,
					"WaitForSync": r.WaitForSync(within(t)),
					"Healthz":     r.Healthz(nil),
					"Lead":        r.Lead(within(t), ns, func(context.Context) error { return nil }),
				} {
					if !errors.Is(err, member.ErrStopped) {
						t.Errorf("%s: %v", what, err)
					}
				}
				if !errors.Is(ofContext, member.ErrNotLeader) {
					t.Errorf("Context: %v is no word that it does not lead", ofContext)
				}
				if s := r.State(ns); s.Leads || s.Why != "the Member has stopped" {
					t.Errorf("State = %+v", s)
				}
				if err := r.Start(within(t)); !errors.Is(err, member.ErrMisused) {
					t.Errorf("Start once more: %v", err)
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

func TestAPodWhoseNamespaceIsNoneIsRefused(t *testing.T) {
	for content, want := range map[string]string{
		"My Home": `is "My Home", and no namespace has that name`,
		" \n":     "is an empty name",
		"home\n":  "",
	} {
		file := filepath.Join(t.TempDir(), "namespace")
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		restore := member.SetNamespaceFile(file)
		o := member.Options{Registration: &member.Registration{Client: client(t, member.CapWrites)}}
		_, err := member.New(&rest.Config{}, o)
		restore()
		switch {
		case want == "" && err != nil:
			t.Errorf("%q: %v", content, err)
		case want != "" &&
			(!errors.Is(err, member.ErrMisused) || !strings.Contains(err.Error(), "Registration.Namespace in "+file+" "+want)):
			t.Errorf("%q: err = %v, want one about %q", content, err, want)
		}
	}
}

func TestAMemberWithoutANamespaceForItsRegistrationSaysSo(t *testing.T) {
	defer member.SetNamespaceFile(filepath.Join(t.TempDir(), "namespace"))()
	o := member.Options{Registration: &member.Registration{Client: client(t, member.CapWrites)}}
	_, err := member.New(&rest.Config{}, o)
	if err == nil || !strings.Contains(err.Error(), "Registration.Namespace is empty") {
		t.Errorf("err = %v", err)
	}
}
