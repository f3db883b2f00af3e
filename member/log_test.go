package member_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

func TestLog_OfTheLeaderAndEveryChange(t *testing.T) {
	started(t, member.Options{}, func(t *testing.T, r *testMember) {
		follows := func(epoch int, leader, reason string) string {
			return fmt.Sprintf(`"msg"="This cluster does not lead" "namespace"="shop" "epoch"=%d "leader"=%q "reason"=%q`,
				epoch, leader, reason)
		}
		for _, step := range []struct {
			when    string
			happens func()
			line    string
		}{
			{"at first", func() { r.write(ns, them, 1) }, follows(1, them, "west.fleet leads in epoch 1")},
			{"nothing has changed", func() { r.write(ns, them, 1); pass(10 * staleAfter) },
				follows(1, them, "west.fleet leads in epoch 1")},
			{"another leads", func() { r.write(ns, "south.fleet", 2) },
				follows(2, "south.fleet", "south.fleet leads in epoch 2")},
			{"no cluster leads", func() { r.write(ns, none, 3) }, follows(3, "", "no cluster leads in epoch 3")},
			{"an API server was away", func() {
				r.become(broken)
				r.fail()
				pass(time.Second)
				r.become(works)
				pass(10 * staleAfter)
			}, follows(3, "", "no cluster leads in epoch 3")},
			{"the Lease is gone", func() { r.remove(ns, leaseName) }, follows(3, "", gone)},
			{"it is back", func() { r.write(ns, them, 4) }, follows(4, them, "west.fleet leads in epoch 4")},
			{"promoted", func() { r.write(ns, us, 5) },
				`"msg"="This cluster leads" "namespace"="shop" "epoch"=5 "cluster"="east.fleet"`},
			{"demoted", func() { r.write(ns, them, 6) }, `"msg"="This cluster does not lead any more" "namespace"="shop" ` +
				`"epoch"=6 "leader"="west.fleet" "reason"="west.fleet leads in epoch 6"`},
		} {
			step.happens()
			r.log.expect(t, step.when, 1, `"level"=0 `+step.line)
		}
	})
}

func TestLog_OfMissingRights(t *testing.T) {
	const refused = "Cannot follow leases: " + missingRights
	for _, leads := range []bool{false, true} {
		started(t, member.Options{}, func(t *testing.T, r *testMember) {
			if leads {
				r.write(ns, us, 1)
				synctest.Wait()
			}
			r.become(refuses)
			r.fail()
			pass(time.Second)
			r.log.expect(t, "at once", 1, refused, `"scope"="all namespaces"`)
			pass(58 * time.Second)
			r.log.expect(t, "within the minute", 1, refused)
			pass(9*time.Minute + 10*time.Second)
			if n := len(r.log.with(refused)); n < 9 || n > 10 {
				t.Errorf("%d lines in ten minutes, want one a minute", n)
			}
			if leads {
				r.log.expect(t, "its term", 1, "This cluster does not lead any more",
					ranOut+"; the Leases of all namespaces cannot be followed: "+missingRights)
			}
			r.become(works)
			pass(2 * time.Minute)
			r.log.expect(t, "with rights", 1, "Follows leases again")
		})
	}
}

// A reader cannot distinguish a namespace that is missing from one in no policy.
func TestLog_OfANamespaceWithoutALease(t *testing.T) {
	const why = "there is no Lease of a hub (the namespace is missing, or no LeadershipPolicy selects it)"
	type row struct {
		watches []string
		happens func(t *testing.T, r *testMember)
		line    string // logged once
	}
	const inTypo = `"level"=0 "msg"="This cluster does not lead" "namespace"="typo" "epoch"=0 "leader"="" "reason"="` +
		why + `"`
	musttest.Each(t, map[string]row{
		"it is among the options": {[]string{"typo", ns}, func(t *testing.T, r *testMember) {
			if s := r.State("typo"); s.Why != why || s.Leads || s.Leader != "" {
				t.Errorf("State = %+v", s)
			}
		}, inTypo},
		"a context is asked for": {nil, func(t *testing.T, r *testMember) {
			for range 3 {
				if _, _, err := r.Context(t.Context(), "typo"); !errors.Is(err, member.ErrNotLeader) {
					t.Errorf("err = %v", err)
				}
			}
		}, inTypo},
		"Lead waits for it": {nil, func(t *testing.T, r *testMember) {
			ctx, cancel := context.WithCancel(t.Context())
			t.Cleanup(cancel)
			go func() { _ = r.Lead(ctx, "typo", func(context.Context) error { return nil }) }()
		}, inTypo},
		"a list lacks a follower's": {[]string{ns}, func(_ *testing.T, r *testMember) {
			r.write(ns, them, 2)
			synctest.Wait()
			r.strand()
			r.remove(ns, leaseName)
		}, `"msg"="This cluster does not lead" "namespace"="shop" "epoch"=2 "leader"="" "reason"="` + gone},
		"the cluster has none": {nil, func(_ *testing.T, r *testMember) { r.remove(ns, leaseName) },
			"There are no Leases of a hub in this cluster"},
	}, func(t *testing.T, row row) {
		r := newTestMember(t, member.Options{Namespaces: row.watches})
		r.write(ns, us, 1)
		r.start()
		synctest.Wait()
		row.happens(t, r)
		pass(10 * staleAfter)
		r.log.expect(t, "once", 1, row.line)
	})
}

// A Lease that no hub can have written ends the term. Other Leases that are not believed leave the term until it runs
// out.
func TestLog_OfALeaseThatIsNotBelieved(t *testing.T) {
	const of7, of8 = "Lease shop/leasecast in epoch 7", "Lease shop/leasecast in epoch 8"
	const edited = ", which no hub writes: not believed"
	noEpoch := func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil }
	noRenewTime := func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }
	noDuration := func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }
	type row struct {
		epoch int64
		edit  edit
		ends  bool
		text  string
	}
	musttest.Each(t, map[string]row{
		"no epoch":            {8, noEpoch, true, "Lease shop/leasecast in epoch 0 has leaseTransitions 0 or none" + edited},
		"epoch 0":             {0, nil, true, "Lease shop/leasecast in epoch 0 has leaseTransitions 0 or none" + edited},
		"no renewTime":        {8, noRenewTime, true, of8 + " has no renewTime" + edited},
		"no duration":         {8, noDuration, true, of8 + " has leaseDurationSeconds 0 or none" + edited},
		"a negative duration": {8, lasting(-3), true, of8 + " has leaseDurationSeconds -3 or none" + edited},
		"a huge duration":     {8, lasting(86_401), true, of8 + " has leaseDurationSeconds 86401 or none" + edited},
		"no cluster":          {8, noCluster, true, of8 + " has no annotation leasecast.dev/cluster" + edited},
		"a lower epoch":       {7, nil, false, of7 + " comes after one in epoch 8: not believed"},
		"an absurd epoch": {2_000_000_000, nil, false,
			"Lease shop/leasecast in epoch 2000000000: no hub can have given that epoch by this clock: not believed"},
		"a renewTime in the future": {8, ahead(2 * time.Second), false,
			of8 + ": its renewTime is 2.0 s ahead of this clock, allowed 1 s: not believed"},
	}, func(t *testing.T, row row) {
		r := startTestMember(t, member.Options{})
		refused := func() {
			var edits []edit
			if row.edit != nil {
				edits = append(edits, row.edit)
			}
			l := r.leaseOf(ns, us, max(row.epoch, 1), edits...)
			if row.epoch == 0 {
				*l.Spec.LeaseTransitions = 0
			}
			r.put(l)
			synctest.Wait()
		}
		if row.epoch != 7 {
			refused()
			r.expectState(t, "the first Lease", false, row.text, row.text)
		}
		r.write(ns, us, 8)
		r.expectState(t, "a Lease of a hub", true, "", "")
		line := `"level"=0 "msg"="` + row.text + `" "namespace"="shop"`
		before := len(r.log.with(line))
		for range 2 {
			refused()
			if row.ends {
				r.expectState(t, "in a term", false, row.text, row.text)
			} else {
				r.expectState(t, "in a term", true, "", row.text)
			}
		}
		r.log.expect(t, "once more", before+1, line)
		if row.ends {
			r.log.expect(t, "the term", 1, "This cluster does not lead any more", row.text)
			r.write(ns, us, 8, ahead(2*time.Second))
			r.expectState(t, "a renewTime in the future after it", false, "not believed", "not believed")
		}
		r.write(ns, them, 9)
		r.expectState(t, "a Lease that is believed", false, "west.fleet leads in epoch 9", "")
		refused()
		r.remove(ns, leaseName)
		r.expectState(t, "the Lease is gone", false, gone, "")
	})
}

// A clock that is ahead by little costs as much of each term. One that is ahead by nearly D makes terms run out. The
// hub renews every third of D.
func TestLog_OfAClockThatIsAhead(t *testing.T) {
	musttest.Each(t, map[string]time.Duration{"2 s": 2 * time.Second, "12 s": 12 * time.Second},
		func(t *testing.T, off time.Duration) {
			r := startTestMember(t, member.Options{})
			r.clock.Step(off)
			const renewals = 100
			for range renewals {
				r.write(ns, us, 7, ahead(-off))
				pass(duration / 3)
			}
			late, lost := 0, 0
			if off > duration/2 {
				late, lost = 1, renewals
			}
			r.log.expect(t, "the clock", late, "A Lease was 12.0 s old on arrival, and lasts 15 s: "+
				"this machine's clock is ahead of the hub's, or the hub does not renew it")
			r.log.expect(t, "terms that end", lost, "any more", "it ran out: the last Lease was 12.0 s old on arrival, "+
				"and lasts 15 s; this machine's clock is ahead of the hub's")
			pass(duration)
			if s := r.State(ns); s.Leads || s.Leader != us {
				t.Errorf("State = %+v", s)
			}
		})
}

// Programs that are built on a Member log where it does, unless their context has a logger.
func TestContext_CarriesALogger(t *testing.T) {
	started(t, member.Options{}, func(t *testing.T, r *testMember) {
		r.write(ns, us, 1)
		synctest.Wait()
		own := &testLog{}
		for parent, want := range map[context.Context]*testLog{
			t.Context(): r.log,
			logr.NewContext(t.Context(), own.logger()): own,
		} {
			ctx, done, err := r.Context(parent, ns)
			musttest.Do(t, err)
			logr.FromContextOrDiscard(ctx).Info("work")
			want.expect(t, "once", 1, `"msg"="work"`)
			done()
		}
	})
}
