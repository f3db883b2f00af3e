package member_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

func TestMember_FollowsItsCluster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestMember(t, member.Options{})
		r.write(ns, us, 7)
		var work context.Context
		for _, step := range []struct {
			when    string
			happens func()
			leads   bool
		}{
			{"before Start", func() {}, false},
			{"listed", func() {
				r.start()
				musttest.Do(t, r.WaitForSync(within(t)))
			}, true},
			{"another cluster is chosen", func() { r.write(ns, them, 8) }, false},
			{"chosen again", func() { r.write(ns, us, 9) }, true},
			{"deleted", func() { r.remove(ns, leaseName) }, false},
			{"repaired", func() { r.write(ns, us, 9) }, true},
			{"stopped", func() {
				ctx, done := contextOf(t, r, ns)
				t.Cleanup(done)
				work = ctx
				r.stop()
			}, false},
			{"a Lease is observed after that", func() { r.Terms().Observe(r.leaseOf(ns, us, 10)) }, false},
		} {
			step.happens()
			if got := r.leads(ns); got != step.leads {
				t.Errorf("%s: leads = %v, want %v", step.when, got, step.leads)
			}
			if has := len(r.Namespaces()) > 0; has != (step.leads || r.State(ns).Leader == them) {
				t.Errorf("%s: a namespace has a Lease = %v", step.when, has)
			}
		}
		if !errors.Is(context.Cause(work), member.ErrLost) {
			t.Errorf("after Start returned, cause = %v, want ErrLost", context.Cause(work))
		}
	})
	if (&member.Member{}).NeedLeaderElection() { // the election of a controller-runtime manager is another one
		t.Error("it runs only where the local election is won")
	}
}

func TestStart_ReturnsWhenWhatItBeganHasEnded(t *testing.T) {
	type row struct {
		server  behavior
		demoted time.Duration // how long a call to a listener takes
		want    time.Duration
	}
	musttest.Each(t, map[string]row{
		"a list is under way":          {hangs, 0, 0},
		"the next list is awaited":     {refuses, 0, 0},
		"a watch is under way":         {works, 0, 0},
		"a request ends a second late": {clings, 0, time.Second},
		"a listener is notified":       {works, time.Minute, time.Minute},
		"a list comes a second late, and a listener is notified": {
			lingers, time.Minute, time.Second + time.Minute,
		},
	}, func(t *testing.T, row row) {
		r := newTestMember(t, member.Options{})
		r.write(ns, us, 7)
		r.become(row.server)
		returned := false
		defer r.Listen(member.Listener{Demoted: func(string, error) { pass(row.demoted); returned = true }})()
		r.start()
		pass(time.Millisecond) // a list is under way
		r.write(ns, us, 7)
		synctest.Wait()
		began := time.Now()
		r.stop()
		notified := row.server == works || row.server == lingers
		if took := time.Since(began); took != row.want || returned != notified {
			t.Errorf("Start returned %v after its context ended, want %v; the listener has returned = %v",
				took, row.want, returned)
		}
		if row.server != refuses {
			r.log.expect(t, "the end is no failure", 0, "Cannot")
		}
	})
}

func TestMember_MethodsFail(t *testing.T) {
	const notWatched = "the namespace is not watched: namespace typo: " +
		"the Options.Namespaces of this Member are ledger, shop"
	watching := member.Options{Namespaces: []string{ns, "ledger"}}
	type row struct {
		begin     func(t *testing.T) *testMember
		namespace string
		want      error
		text      string
		why       string // of its State
	}
	musttest.Each(t, map[string]row{
		"it has stopped after it led": {func(t *testing.T) *testMember {
			r := startTestMember(t, watching)
			r.write(ns, us, 1)
			r.expectState(t, "before", true, "", "")
			r.stop()
			return r
		}, ns, member.ErrStopped, "", "the Member has stopped"},
		"it has stopped when it was refused": {func(t *testing.T) *testMember {
			r := newTestMember(t, watching)
			r.become(refuses)
			r.start()
			r.expectState(t, "before", false, missingRights, missingRights)
			r.stop()
			return r
		}, ns, member.ErrStopped, "", "the Member has stopped"},
		"its context had ended before": {func(t *testing.T) *testMember {
			r := newTestMember(t, watching)
			r.write(ns, us, 1)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			if err := r.Start(ended); err != nil || len(r.requests("")) > 0 {
				t.Errorf("Start = %v after the requests %q", err, r.requests(""))
			}
			return r
		}, ns, member.ErrStopped, "", "the Member has stopped"},
		"the namespace has no name": {func(t *testing.T) *testMember { return startTestMember(t, member.Options{}) },
			"", member.ErrMisused, "the name of the namespace is empty", "there is no Lease of a hub"},
		"the namespace is not watched": {func(t *testing.T) *testMember { return startTestMember(t, watching) },
			"typo", member.ErrNotWatched, notWatched, "the namespace is not watched"},
	}, func(t *testing.T, row row) {
		r := row.begin(t)
		began := time.Now()
		_, _, ofContext := r.Context(t.Context(), row.namespace)
		failures := map[string]error{
			"Context": ofContext,
			"Lead":    r.Lead(within(t), row.namespace, func(context.Context) error { return nil }),
		}
		for what, err := range failures {
			if errors.Is(err, member.ErrNotLeader) != errors.Is(row.want, member.ErrStopped) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if row.namespace == ns { // otherwise the Member works
			failures["WaitForSync"], failures["Healthz"] = r.WaitForSync(within(t)), r.Healthz(nil)
		}
		for what, err := range failures {
			if !errors.Is(err, row.want) || !strings.Contains(err.Error(), row.text) {
				t.Errorf("%s: %v, want %v with %q", what, err, row.want, row.text)
			}
		}
		if s := r.State(row.namespace); s.Leads || !strings.HasPrefix(s.Why, row.why) || s.Trouble != "" {
			t.Errorf("State = %+v", s)
		}
		if err := r.Start(within(t)); !errors.Is(err, member.ErrMisused) ||
			!strings.Contains(err.Error(), "cannot be started twice: add it to one manager only") {
			t.Errorf("Start = %v", err)
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("it took %v", took)
		}
		if _, ok := r.Term(row.namespace); ok {
			t.Error("leads")
		}
		r.Listen(member.Listener{})()
	})
}

func TestWaitForSync_NamesWhatIsMissing(t *testing.T) {
	type row struct {
		starts bool
		want   string
	}
	musttest.Each(t, map[string]row{
		"not started": {false, "member: " + notStarted + ": "},
		"not listed":  {true, "member: the Leases of namespace shop cannot be followed: list leases: "},
	}, func(t *testing.T, row row) {
		r := newTestMember(t, member.Options{Namespaces: []string{ns}})
		r.become(hangs)
		if row.starts {
			r.start()
		}
		short, cancel := context.WithTimeout(t.Context(), staleAfter)
		defer cancel()
		err := r.WaitForSync(short)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), row.want) {
			t.Errorf("err = %v, want a deadline and %q", err, row.want)
		}
	})
}

func TestMember_CallsThatWaitReturnWhenItStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestMember(t, member.Options{Namespaces: []string{ns}})
		r.become(hangs)
		r.start()
		results := make(chan error, 2)
		go func() { results <- r.WaitForSync(within(t)) }()
		go func() { results <- r.Lead(within(t), ns, func(context.Context) error { return nil }) }()
		synctest.Wait()
		began := time.Now()
		r.stop()
		for range 2 {
			if err := <-results; !errors.Is(err, member.ErrStopped) || time.Since(began) > 0 {
				t.Errorf("err = %v after %v", err, time.Since(began))
			}
		}
	})
}
