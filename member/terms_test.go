package member_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// event is something that happens to a reader.
type event = func(c *testTerms)

func wrote(holder string, epoch int64, edits ...edit) event {
	return func(c *testTerms) { c.write(ns, holder, epoch, edits...) }
}

func deleted(name string) event       { return func(c *testTerms) { c.Delete(ns, name) } }
func passed(d time.Duration) event    { return func(*testTerms) { pass(d) } }
func suspended(d time.Duration) event { return func(c *testTerms) { c.clock.Suspend(d) } }
func elsewhere(holder string) event {
	return func(c *testTerms) { c.Observe(c.leaseOf("other", holder, 7)) }
}

// stepped sets the wall clock, and listed is a list without a Lease.
func stepped(d time.Duration) event { return func(c *testTerms) { c.clock.Step(d) } }
func listed(namespace string) event { return func(c *testTerms) { c.Replace(namespace, nil) } }

func then(events ...event) event {
	return func(c *testTerms) {
		for _, happens := range events {
			happens(c)
		}
	}
}

func TestTerm_BeginsByALeaseThatNamesThisCluster(t *testing.T) {
	type row struct {
		happens event
		leads   bool
	}
	musttest.Each(t, map[string]row{
		"the Lease names this cluster":                {wrote(us, 7), true},
		"the Lease names another cluster":             {wrote(them, 7), false},
		"the Lease names no cluster":                  {wrote(none, 7), false},
		"there is no Lease":                           {then(), false},
		"the Lease of another namespace":              {elsewhere(us), false},
		"the Lease has no annotation":                 {wrote(us, 7, noCluster), false},
		"the Lease is blank":                          {wrote(us, 7, blank), false},
		"the epoch is below that of one that is gone": {then(wrote(them, 7), deleted(leaseName), wrote(us, 6)), false},
		"a Lease of another name has a higher one":    {then(wrote(them, 8, named("new")), wrote(us, 7)), false},
	}, func(t *testing.T, row row) {
		c := newTestTerms(t)
		row.happens(c)
		if got := c.leads(); got != row.leads {
			t.Errorf("leads = %v, want %v", got, row.leads)
		}
		_, done, err := c.Context(t.Context(), ns)
		if row.leads {
			done()
		} else if !errors.Is(err, member.ErrNotLeader) {
			t.Errorf("Context: err = %v, want ErrNotLeader", err)
		}
	})
}

// outcome is what becomes of a term.
type outcome int

const (
	goesOn   outcome = iota
	ends             // for checks and contexts at once
	endsSoon         // for checks at once, for contexts within 100 ms
	replaced         // at once, by another term of this cluster
)

const (
	gone      = "its Lease is gone"
	nextBegan = "the next one has begun in epoch 8"
	ranOut    = "it ran out: the last Lease was 0.0 s old on arrival, and lasts 15 s"
	lateAfter = " s old on arrival, and lasts 15 s; this machine's clock is ahead of the hub's, or Leases are late"
	hourAhead = "; Lease shop/leasecast in epoch 7: " +
		"its renewTime is 3600.0 s ahead of this clock, allowed 1 s: not believed"
)

// A term of epoch 7 has begun, and then something happens.
func TestTerm_EndsForChecksAndContexts(t *testing.T) {
	refused := func(c *testTerms) {
		if _, _, err := c.Context(c.t.Context(), ns); !errors.Is(err, member.ErrNotLeader) {
			c.t.Errorf("err = %v, want ErrNotLeader", err)
		}
	}
	listedAgain := func(c *testTerms) { c.Replace("", []coordinationv1.Lease{*c.wrote}) }
	many := func(c *testTerms) { // other namespaces
		for i := range 50 {
			c.Observe(c.leaseOf(name(i), us, 7))
		}
	}
	for name, row := range map[string]struct {
		happens event
		want    outcome
		why     string
	}{
		"another cluster is chosen":                    {wrote(them, 8), ends, "west.fleet leads in epoch 8"},
		"the term is revoked":                          {wrote(none, 8), ends, "no cluster leads in epoch 8"},
		"this cluster again":                           {wrote(us, 8), replaced, nextBegan},
		"a lower epoch is seen":                        {wrote(them, 6), goesOn, ""},
		"the Lease is deleted":                         {deleted(leaseName), ends, gone},
		"the Lease loses its label":                    {wrote(us, 7, noLabel), ends, gone},
		"the Lease is away":                            {then(deleted(leaseName), wrote(us, 7)), replaced, gone},
		"another Lease is deleted after a lower epoch": {then(wrote(them, 6), deleted("other")), goesOn, ""},

		"just before the deadline":     {passed(duration - 1), goesOn, ""},
		"the deadline":                 {passed(duration), ends, ranOut},
		"suspended until the deadline": {suspended(duration), endsSoon, ranOut},
		"suspended until just before":  {suspended(duration - 1), goesOn, ""},
		"the wall clock jumps ahead":   {stepped(duration), endsSoon, ranOut},
		"the deadline, just after another term has begun": {
			then(passed(duration-10*time.Millisecond), elsewhere(us), passed(10*time.Millisecond)), ends, ranOut,
		},
		"the deadline, just before those of terms that began later": {
			then(passed(duration/2), wrote(us, 7, ahead(-20*time.Millisecond)), passed(duration-99*time.Millisecond),
				elsewhere(us), passed(10*time.Millisecond), func(c *testTerms) {
					c.Observe(c.leaseOf("third", us, 7, ahead(75*time.Millisecond-duration)))
				}, passed(69*time.Millisecond)), ends, ranOut,
		},

		"renewed just in time": {
			then(passed(duration-time.Microsecond), wrote(us, 7), passed(duration-time.Microsecond)), goesOn, "",
		},
		"the deadline of a late renewal": {
			then(passed(8*time.Second), wrote(us, 7, ahead(-7*time.Second)), passed(duration)),
			ends, "it ran out: the last Lease was 7.0 s old on arrival, and lasts 15 s",
		},
		"renewed at the deadline": {then(passed(duration), wrote(us, 7)), replaced, ranOut},
		"renewed after a suspend": {then(suspended(duration), wrote(us, 7)), replaced, ranOut},
		"the clock jumps and back, with a refusal": {
			then(stepped(duration), refused, stepped(-duration), wrote(us, 7)), replaced, ranOut,
		},
		"its last renewal is taken back after the first deadline": {func(c *testTerms) {
			earlier := c.leaseOf(ns, us, 7)
			then(passed(duration/2), wrote(us, 7), passed(duration/2+37*time.Millisecond))(c)
			c.Observe(earlier)
		}, ends, "it ran out: the last Lease was 15.0" + lateAfter},

		"the same list after a step back": {
			then(stepped(-time.Hour), listedAgain, passed(duration)), ends, ranOut + hourAhead,
		},

		"a list of another namespace":          {listed("other"), goesOn, ""},
		"a list, beside many namespaces":       {then(many, listed("")), ends, gone},
		"a list of its namespace, beside many": {then(many, listed(ns)), ends, gone},
		"a Lease of another name replaces it":  {then(wrote(us, 7, named("new")), deleted(leaseName)), goesOn, ""},
		"a Lease of a later epoch is deleted":  {then(wrote(us, 8, named("new")), deleted("new")), ends, nextBegan},
	} {
		begin := func(t *testing.T) (c *testTerms, first member.Term, ctx context.Context) {
			c = newTestTerms(t)
			c.write(ns, us, 7)
			first, _ = c.Term(ns)
			ctx, done := contextOf(t, c, ns)
			t.Cleanup(done)
			row.happens(c)
			return c, first, ctx
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, first, ctx := begin(t)
				err := member.Check(ctx)
				if goes := row.want == goesOn; first.Holds() != goes || (err == nil) != goes ||
					!goes && (!errors.Is(err, member.ErrNotBegun) || !errors.Is(err, member.ErrLost)) {
					t.Errorf("the term holds = %v, Check = %v", first.Holds(), err)
				}
				now, leads := c.Term(ns)
				if leads != (row.want == goesOn || row.want == replaced) || leads && (now == first) != (row.want == goesOn) {
					t.Errorf("leads = %v, in the same term = %v", leads, now == first)
				}
			})
			synctest.Test(t, func(t *testing.T) { // without a check
				_, _, ctx := begin(t)
				if row.want == endsSoon {
					pass(recheck)
				}
				synctest.Wait() // a timer that is due now has fired
				const over = "the term is over: namespace shop, epoch 7: "
				if cause := context.Cause(ctx); row.want == goesOn && cause != nil ||
					row.want != goesOn && (!errors.Is(cause, member.ErrLost) || cause.Error() != over+row.why) {
					t.Errorf("the context ended because of %v\nwant %s", cause, over+row.why)
				}
			})
		})
	}
}

func TestTerm_StaysTheSameThroughRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestTerms(t)
		c.write(ns, us, 7)
		first, _ := c.Term(ns)
		expect := func(remaining time.Duration) {
			t.Helper()
			if now, _ := c.Term(ns); now != first || first.Epoch() != 7 || first.Cluster() != us ||
				first.Remaining() != remaining {
				t.Errorf("term of %s in epoch %d for %v, want the same for %v",
					first.Cluster(), first.Epoch(), first.Remaining(), remaining)
			}
		}
		pass(5 * time.Second)
		expect(duration - 5*time.Second)
		c.write(ns, us, 7)
		expect(duration)
		asked := strings.Clone(ns)
		if n := testing.AllocsPerRun(100, func() { _, _ = c.Term(asked) }); n > 0 {
			t.Errorf("a check allocates %v times", n)
		}
		c.write(ns, us, 8)
		if next, _ := c.Term(ns); next.Epoch() != 8 || first.Remaining() != 0 {
			t.Errorf("in epoch %d, the term before for %v", next.Epoch(), first.Remaining())
		}
	})
	var zero member.Term
	if zero.Holds() || zero.Remaining() != 0 || zero.Epoch() != 0 || zero.Cluster() != "" {
		t.Errorf("the zero Term holds = %v, for %v, in epoch %d", zero.Holds(), zero.Remaining(), zero.Epoch())
	}
}

// slowClock runs a function while it is read, once.
type slowClock struct {
	*clocktest.Bubble
	during func()
}

func (c *slowClock) Now() lease.Reading {
	if f := c.during; f != nil {
		c.during = nil
		f()
	}
	return c.Bubble.Now()
}

func TestTerm_CountsARenewalThatArrivesDuringACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newTestHub(t)
		clock := &slowClock{Bubble: h.clock}
		terms := member.NewTerms(clock, skew)
		terms.Observe(h.leaseOf(ns, us, 7))
		term, _ := terms.Term(ns)
		h.clock.Suspend(duration / 2)
		clock.during = func() {
			terms.Observe(h.leaseOf(ns, us, 7))
			h.clock.Suspend(duration / 2)
		}
		if !term.Holds() || term.Remaining() != duration/2 {
			t.Errorf("the renewed term holds = %v, for %v", term.Holds(), term.Remaining())
		}
	})
}

// FuzzObserve checks that whatever a Lease says, this cluster leads only where the naive rule of readers in other
// languages agrees, however often and in whatever state of the clock it is observed.
func FuzzObserve(f *testing.F) {
	f.Add(us, us, int32(7), int32(15), int64(0), int64(0), "true")
	f.Add(us, them, int32(7), int32(15), int64(0), int64(0), "true")
	f.Add(us, us, int32(-1), int32(-15), int64(time.Hour), int64(-time.Hour), "true")
	f.Add("", "", int32(1<<30), int32(1<<30), int64(-time.Hour), int64(time.Hour), "")
	f.Fuzz(func(t *testing.T, cluster, holder string, epoch, seconds int32, renewedAgo, stepped int64, label string) {
		c := newTestTerms(t)
		l := c.leaseOf(ns, holder, 1, ahead(-time.Duration(renewedAgo)), lasting(seconds))
		l.Labels[v1alpha1.ManagedLabel], l.Annotations[v1alpha1.ClusterAnnotation] = label, cluster
		l.Spec.LeaseTransitions = &epoch
		for range 2 {
			c.Observe(l)
			now := c.clock.Now().Wall
			says, _ := wire.Read(l)
			naive := holder != "" && holder == cluster && now.Before(says.Deadline())
			if term, ok := c.Term(ns); ok &&
				(!naive || term.Remaining() > says.Deadline().Sub(now) || !lease.PlausibleEpoch(now, term.Epoch())) {
				t.Fatalf("leads in epoch %d for %v where the Lease says %+v at %v", term.Epoch(), term.Remaining(), says, now)
			}
			c.clock.Step(time.Duration(stepped))
		}
	})
}
