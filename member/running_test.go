package member_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/leasecast/leasecast/member"
)

// A registered Member tells the hub that its term is over, and knows nothing of what another Member's work still does.
func TestTwoMembersOfWhichOneIsRegisteredDoNotRunInOneProcess(t *testing.T) {
	for name, tc := range map[string]struct {
		first, second []string
		registered    bool // the first one
		other         string
		refused       bool
	}{
		"the same namespace":                    {first: []string{ns}, second: []string{ns}, refused: true},
		"the registered one comes first":        {first: []string{ns}, second: []string{ns}, registered: true, refused: true},
		"all, and one of them":                  {second: []string{ns}, refused: true},
		"one of all, and then all":              {first: []string{ns}, refused: true},
		"one in common":                         {first: []string{"a", ns}, second: []string{ns, "z"}, refused: true},
		"nothing in common":                     {first: []string{"a"}, second: []string{ns}},
		"the same namespace of another cluster": {first: []string{ns}, second: []string{ns}, other: "http://another"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := newReader(t)
				of := func(namespaces []string, registers bool, host string) *member.Member {
					cfg, o := a.config(), member.Options{Namespaces: namespaces, Clock: a.cluster.clock}
					if registers {
						o.Registration = registration(t)
					}
					if host != "" {
						cfg.Host = host
					}
					m, err := member.New(cfg, o)
					if err != nil {
						t.Fatal(err)
					}
					return m
				}
				first := &reader{Member: of(tc.first, tc.registered, ""), server: a.server, cluster: a.cluster}
				second := &reader{Member: of(tc.second, !tc.registered, tc.other), server: a.server, cluster: a.cluster}
				third := &reader{Member: of(tc.second, !tc.registered, ""), server: a.server, cluster: a.cluster}
				stop := first.start(t)
				synctest.Wait()
				if tc.refused {
					err := second.Start(within(t))
					if !errors.Is(err, member.ErrMisused) || !strings.Contains(err.Error(), "one of them is registered and the other is not") {
						t.Errorf("Start = %v", err)
					}
					if s := second.State(ns); s.Leads || s.Why != member.ErrStopped.Error() {
						t.Errorf("State = %+v", s)
					}
				} else {
					second.start(t)()
				}
				stop()
				third.start(t)() // nobody is left beside it
			})
		})
	}
}
