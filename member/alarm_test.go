package member

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
)

// handClock shows what a test sets.
type handClock struct{ *clocktest.Hand }

func newHandClock() *handClock { return &handClock{clocktest.NewHand(clocktest.Start)} }

// leaseOf is a Lease in the cluster "us" of now.
func (c *handClock) leaseOf(t *testing.T, namespace, holder string, epoch int64, lasts time.Duration) *coordinationv1.Lease {
	t.Helper()
	l, now := &coordinationv1.Lease{}, c.Now().Wall
	err := wire.Write(lease.Content{
		Term:      lease.Term{Holder: holder, Epoch: epoch, AcquireTime: now, RenewTime: now, Duration: lasts},
		Namespace: namespace, Name: "lease", Cluster: "us", ClusterUID: "uid", Hub: "hub",
	}, "", l)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNewsAreMissingWhenLessThanAThirdIsLeftOfATermThatGoesOn(t *testing.T) {
	const lasts = 15 * time.Second
	for name, tc := range map[string]struct {
		after  time.Duration // the renewal
		of     string
		looked bool // somebody has found out that the term is over
		want   time.Duration
	}{
		"all of it is left":               {after: 0, of: "shop"},
		"exactly a third is":              {after: 10 * time.Second, of: "shop"},
		"less is":                         {after: 10*time.Second + 1, of: "shop", want: 5*time.Second - 1},
		"less is, of all":                 {after: 10*time.Second + 1, of: allNamespaces, want: 5*time.Second - 1},
		"less is, elsewhere":              {after: 10*time.Second + 1, of: "other"},
		"next to nothing is":              {after: lasts - 1, of: "shop", want: 1},
		"it has run out":                  {after: lasts, of: "shop"},
		"it has run out long ago":         {after: time.Hour, of: "shop"},
		"it has, and somebody has looked": {after: lasts, of: "shop", looked: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := newHandClock()
				terms := NewTerms(clock, time.Second)
				terms.Observe(clock.leaseOf(t, "shop", "us", 7, lasts))
				clock.Advance(tc.after)
				if tc.looked {
					terms.Term("shop")
				}
				left, duration, found := terms.scarce(tc.of)
				if found != (tc.want > 0) || left != tc.want || found && duration != lasts {
					t.Errorf("%v of %v is left, missing = %v; want %v", left, duration, found, tc.want)
				}
			})
		})
	}
}

func TestOfManyTermsTheOneThatEndsFirstCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newHandClock()
		terms := NewTerms(clock, time.Second)
		const many = 100
		for i := range many {
			terms.Observe(clock.leaseOf(t, fmt.Sprint("team-", i), "us", 7, time.Duration(many+i)*time.Second))
		}
		clock.Advance((many - 1) * time.Second)
		for range many { // in another order each time
			if left, duration, found := terms.scarce(allNamespaces); left != time.Second || duration != many*time.Second || !found {
				t.Fatalf("%v of %v is left, missing = %v; want 1s of %v", left, duration, found, many*time.Second)
			}
		}
	})
}

func TestATermLastsAsLongAsTheLeasesThatItRestsOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := newHandClock()
		terms := NewTerms(clock, time.Second)
		const longest = 100
		for seconds := range longest {
			l := clock.leaseOf(t, "shop", "us", 7, time.Duration(seconds+1)*time.Second)
			l.Name = fmt.Sprint("lease-", seconds)
			terms.Observe(l)
		}
		past, others := clock.leaseOf(t, "shop", "us", 6, time.Hour), clock.leaseOf(t, "shop", "them", 7, time.Hour)
		past.Name, others.Name = "past", "others"
		terms.Observe(past)
		terms.Observe(others)
		n := terms.lookup("shop")
		for epoch, want := range map[int64]time.Duration{7: longest * time.Second, 6: time.Hour, 8: 0} {
			if got := n.duration(epoch); got != want {
				t.Errorf("a term of epoch %d lasts %v, want %v", epoch, got, want)
			}
		}
	})
}

func TestAnAlarmRingsOnceForEachRenewalThatIsMissing(t *testing.T) {
	for name, of := range map[string]string{"of the namespace": "shop", "of all": allNamespaces} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				clock := newHandClock()
				terms := NewTerms(clock, time.Second)
				a, elsewhere := terms.alarm(of), terms.alarm("other")
				rang := func(want int, when string) {
					t.Helper()
					if got := len(a.rings); got != want {
						t.Errorf("%s: rings %d times, want %d", when, got, want)
					}
					if got := len(elsewhere.rings); got != 0 {
						t.Errorf("%s: the alarm of another namespace rings", when)
					}
					for len(a.rings) > 0 {
						<-a.rings
					}
				}
				for range 2 {
					terms.Observe(clock.leaseOf(t, "shop", "us", 7, 15*time.Second))
					clock.Advance(10 * time.Second)
					terms.Check()
					rang(0, "a third is left")
					clock.Advance(time.Microsecond)
					terms.Check()
					rang(1, "less is left")
					terms.Check()
					rang(0, "it has rung")
				}
			})
		})
	}
}

func TestWhoHearsNothingUntilTheFirstTermIsOverIsSilent(t *testing.T) {
	const long = time.Hour
	type alarms = func(a *alarm)
	rings := func(at, over time.Duration) alarms { return func(a *alarm) { a.ring(at, over) } }
	hears := func(at time.Duration) alarms { return func(a *alarm) { a.hear(at) } }
	for name, tc := range map[string]struct {
		happens []alarms
		from    time.Duration // silent; long: never
	}{
		"nothing is missing":                {nil, long},
		"a term ends":                       {[]alarms{rings(20, 25)}, 25},
		"two do, the first one last":        {[]alarms{rings(20, 30), rings(21, 25)}, 25},
		"two do, one after the other":       {[]alarms{rings(20, 25), rings(21, 30)}, 25},
		"something is heard":                {[]alarms{rings(20, 25), hears(22)}, long},
		"something is heard as it rings":    {[]alarms{rings(20, 25), hears(20)}, long},
		"it was heard before":               {[]alarms{hears(19), rings(20, 25)}, 25},
		"it rings again after that":         {[]alarms{rings(20, 25), hears(22), rings(23, 50)}, 50},
		"it rings again right after that":   {[]alarms{rings(20, 25), hears(20), rings(21, 50)}, 50},
		"the term that was over is renewed": {[]alarms{rings(20, 25), hears(22), rings(23, 50), rings(24, 40)}, 40},
	} {
		t.Run(name, func(t *testing.T) {
			a := &alarm{rings: make(chan struct{}, 1)}
			for _, f := range tc.happens {
				f(a)
			}
			if got := a.unheard(); got != (tc.from != long) {
				t.Errorf("unheard = %v", got)
			}
			for _, at := range []time.Duration{24, 25, 26, 39, 40, 49, 50, long - 1} {
				if err := a.silent(at); (err != nil) != (at >= tc.from) {
					t.Errorf("at %d: %v, want silence from %d on", at, err, tc.from)
				}
			}
		})
	}
}

func TestSilenceSaysHowLongItIs(t *testing.T) {
	a := &alarm{rings: make(chan struct{}, 1)}
	a.hear(10 * time.Second)
	a.ring(20*time.Second, 25*time.Second)
	if err := a.silent(30 * time.Second); err == nil || !strings.Contains(err.Error(), "ran out 5s ago") || !strings.HasSuffix(err.Error(), "for 20s by now") {
		t.Errorf("silent = %v", err)
	}
}
