package tenure_test

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/tenure"
)

// replica is one hub process, run by hand.
type replica struct {
	*tenure.Tenure
	t     *testing.T
	clock *clocktest.Hand
	inner *lock
	lock  resourcelock.Interface
}

func newReplica(t *testing.T, s *store, identity string) *replica {
	t.Helper()
	r := &replica{t: t, clock: clocktest.NewHand(at(0)), inner: s.lock(identity)}
	r.Tenure = tenure.New(r.clock, h)
	r.lock = r.Lock(r.inner)
	return r
}

// try writes as the elector does: a renewTime, then a request that is sent later and answered later still.
func (r *replica) try(stamp, sent, answered float64) error {
	r.t.Helper()
	_, _, err := r.lock.Get(r.t.Context())
	r.clock.Set(at(sent))
	carried := r.inner.leave
	r.inner.leave = func(ctx context.Context) error {
		r.clock.Set(at(answered))
		return carried(ctx)
	}
	defer func() { r.inner.leave = carried }()
	if err != nil {
		return r.lock.Create(r.t.Context(), claim(r.inner.identity, stamp))
	}
	return r.lock.Update(r.t.Context(), claim(r.inner.identity, stamp))
}

func (r *replica) wins(stamp, sent, answered float64) *replica {
	r.t.Helper()
	if err := r.try(stamp, sent, answered); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// letsGo releases as the elector does, which reads first.
func (r *replica) letsGo(seconds float64) error {
	r.t.Helper()
	if _, _, err := r.lock.Get(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	return r.lock.Update(r.t.Context(), release(seconds))
}

// until fails the test unless renewTimes may be drawn up to that second on both clocks, and no longer on either.
func (r *replica) until(wallEnd, bootEnd float64) {
	r.t.Helper()
	const tick = 0.001
	for _, test := range []struct {
		wall, boot float64
		may        bool
	}{
		{wallEnd - tick, bootEnd - tick, true},
		{wallEnd, bootEnd - tick, false},
		{wallEnd - tick, bootEnd, false},
		{wallEnd - 100, bootEnd - 100, true},
		{wallEnd - 100, bootEnd, false},
		{wallEnd, bootEnd - 100, false},
	} {
		if got := r.MayWrite(lease.Reading{Wall: wall(test.wall), Boot: boot(test.boot)}); got != test.may {
			r.t.Errorf("at %v and %v it may renewTime: %v, want %v", test.wall, test.boot, got, test.may)
		}
	}
}

// Rule 1: the right to write ends h after the renewTime of the last renewal that succeeded.
func TestDeadline(t *testing.T) {
	for name, test := range map[string]func(*replica){
		"without an election there is none": func(r *replica) {
			if r.MayWrite(at(0)) || r.Holds() {
				r.t.Error("it may renewTime")
			}
		},
		"it counts from the renewTime, not from the answer": func(r *replica) {
			r.wins(0, 0, 4).until(6, 6)
		},
		"and not from the send: a process may be paused before it": func(r *replica) {
			r.wins(0, 4, 4).until(6, 6)
		},
		"a renewal extends it": func(r *replica) {
			r.wins(0, 0, 0).wins(2, 2, 3).until(8, 8)
		},
		"a renewTime of some nanoseconds more is what the Lease can store": func(r *replica) {
			r.wins(0.0000009, 0.0000009, 1).until(6, 6)
		},
		"a failed renewal does not extend it": func(r *replica) {
			r.wins(0, 0, 0)
			r.inner.arrive = func(context.Context) error { return errAmbiguous }
			if r.lock.Update(r.t.Context(), claim("a", 2)) == nil {
				r.t.Fatal("the renewal did not fail")
			}
			r.until(6, 6)
		},
		"nor does one that was carried out without an answer": func(r *replica) {
			r.wins(0, 0, 0)
			r.inner.leave = func(context.Context) error { return errAmbiguous }
			if r.lock.Update(r.t.Context(), claim("a", 2)) == nil {
				r.t.Fatal("the renewal did not fail")
			}
			r.until(6, 6)
		},
		"nor one that somebody else was faster than": func(r *replica) {
			r.wins(0, 0, 0)
			other := claim("b", 1)
			r.inner.put(&other)
			if r.lock.Update(r.t.Context(), claim("a", 2)) == nil {
				r.t.Fatal("the renewal did not fail")
			}
			r.until(6, 6)
		},
		"an election without an answer is none": func(r *replica) {
			r.inner.leave = func(context.Context) error { return errAmbiguous }
			_ = r.try(0, 0, 0)
			if r.MayWrite(at(0)) {
				r.t.Error("it may renewTime")
			}
		},
		"a wall clock that is stepped back between renewTime and send lengthens nothing": func(r *replica) {
			_, _, _ = r.lock.Get(r.t.Context())
			r.clock.Set(lease.Reading{Wall: wall(-100), Boot: boot(1)})
			if err := r.lock.Create(r.t.Context(), claim("a", 0)); err != nil {
				r.t.Fatal(err)
			}
			r.until(6, 7) // sent at 1 on the boot clock, and no later
		},
		"Holds asks for this instant": func(r *replica) {
			r.wins(0, 0, 0)
			r.clock.Set(at(5.999))
			if !r.Holds() {
				r.t.Error("it does not hold before the deadline")
			}
			r.clock.Set(at(6))
			if r.Holds() {
				r.t.Error("it holds at the deadline")
			}
		},
	} {
		t.Run(name, func(t *testing.T) { test(newReplica(t, &store{}, "a")) })
	}
}

// Rule 1: a replica stops stamping before it releases its election.
func TestRelease(t *testing.T) {
	t.Run("the source is closed before the request is sent, and the instant read after that", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(-5, -5, -5).wins(0, 0, 0)
		r.clock.Set(lease.Reading{Wall: wall(3).Add(1), Boot: boot(3)})
		requests := 0
		r.inner.arrive = func(context.Context) error {
			if requests++; requests == 2 && r.MayWrite(at(1)) {
				t.Error("it may renewTime while the release is under way")
			}
			return nil
		}
		if err := r.letsGo(1); err != nil {
			t.Fatal(err)
		}
		got := r.inner.get()
		if want := wall(3).Add(time.Microsecond); !got.RenewTime.Time.Equal(want) {
			t.Errorf("released at %v, want %v: the first instant that a Lease can store after the last renewTime", got.RenewTime, want)
		}
		if got.HolderIdentity != "" {
			t.Errorf("the holder is %q", got.HolderIdentity)
		}
	})
	t.Run("also when the release fails", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		r.inner.leave = func(context.Context) error { return errAmbiguous }
		if r.lock.Update(t.Context(), release(1)) == nil {
			t.Fatal("the release did not fail")
		}
		if r.MayWrite(at(1)) {
			t.Error("it may renewTime after the release")
		}
	})
	t.Run("and for good", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		if err := r.letsGo(1); err != nil {
			t.Fatal(err)
		}
		if r.try(2, 2, 2) == nil {
			t.Error("the election was taken back")
		}
		if r.MayWrite(at(2)) {
			t.Error("it may renewTime after the release")
		}
	})
	t.Run("never that of another replica, which client-go's elector does not look at", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(0, 0, 0)
		newReplica(t, s, "b").wins(8, 8, 8)
		before := s.get()
		if r.letsGo(9) == nil {
			t.Error("it was released")
		}
		if after := s.get(); after != before {
			t.Errorf("the Lease says %+v", after)
		}
		if r.MayWrite(at(1)) {
			t.Error("it may renewTime after the release")
		}
	})
	t.Run("its successor inherits that instant", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(-5, -5, -5).wins(0, 0, 0)
		r.clock.Set(at(3))
		if err := r.letsGo(1); err != nil {
			t.Fatal(err)
		}
		_, inherited := newReplica(t, s, "b").wins(4, 4, 4).Started()
		if want := wall(3).Add(time.Microsecond); !inherited.Equal(want) {
			t.Errorf("inherited %v, want %v", inherited, want)
		}
	})
	t.Run("no earlier than its last renewTime, although the wall clock was stepped back since", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(-5, -5, -5).wins(0, 0, 0)
		for _, stamp := range []struct {
			wall float64
			may  bool
		}{{4, true}, {3, true}, {7, false}} {
			if got := r.MayWrite(lease.Reading{Wall: wall(stamp.wall), Boot: boot(2)}); got != stamp.may {
				t.Errorf("may renewTime %v: %v", stamp.wall, got)
			}
		}
		r.clock.Set(at(3))
		if err := r.letsGo(1); err != nil {
			t.Fatal(err)
		}
		if got, want := r.inner.get().RenewTime, wall(4).Add(time.Microsecond); !got.Time.Equal(want) {
			t.Errorf("released at %v, want %v", got, want)
		}
	})
	for name, test := range map[string]struct {
		before *resourcelock.LeaderElectionRecord
		at     float64
		skew   time.Duration // that decisions have allowed for
		marked bool
	}{
		"in order, if it began so":                               {stored(released(-3)), 1, 0, true},
		"in order, when any earlier tenure has ended":            {nil, 6, 0, true},
		"but not before: the one that is unknown may be at work": {nil, 5.999, 0, false},
		"in order, when it has ended by a slow clock":            {nil, 6.25, 250 * time.Millisecond, true},
		"but not before: its clock may be slow":                  {nil, 6.249, 250 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, &store{record: test.before}, "a").wins(0, 0, 0)
			r.Overlap(at(1), test.skew)
			r.clock.Set(at(test.at))
			if err := r.letsGo(1); err != nil {
				t.Fatal(err)
			}
			got := r.inner.get()
			if marked := got.AcquireTime.Time.Equal(got.RenewTime.Add(time.Microsecond)); marked != test.marked {
				t.Errorf("the release is marked: %v, want %v", marked, test.marked)
			}
		})
	}
	t.Run("but nothing earlier than what the released tenure inherited: another one may not have ended yet", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(0, 0, 0) // the Lease was missing: another tenure may renewTime until 6
		r.clock.Set(at(3))
		if err := r.letsGo(3); err != nil {
			t.Fatal(err)
		}
		if _, inherited := newReplica(t, s, "b").wins(4, 4, 4).Started(); inherited.Before(wall(6)) {
			t.Errorf("inherited %v", inherited.Sub(zero))
		}
		if _, inherited := newReplica(t, s, "c").wins(7, 7, 7).Started(); inherited.Before(wall(6)) {
			t.Errorf("inherited %v", inherited.Sub(zero))
		}
	})
}

// Rule 6: until when an earlier tenure can have renewed.
func TestInherited(t *testing.T) {
	change := func(r resourcelock.LeaderElectionRecord, changes ...func(*resourcelock.LeaderElectionRecord)) *resourcelock.LeaderElectionRecord {
		for _, c := range changes {
			c(&r)
		}
		return &r
	}
	lasting := func(seconds int) func(*resourcelock.LeaderElectionRecord) {
		return func(r *resourcelock.LeaderElectionRecord) { r.LeaseDurationSeconds = seconds }
	}
	for name, test := range map[string]struct {
		before *resourcelock.LeaderElectionRecord
		want   float64
	}{
		"h after the last renewal":           {before: change(claim("a", -8)), want: -2},
		"or longer, if the Lease says so":    {before: change(claim("a", -8), lasting(15)), want: 7},
		"not shorter, whoever has edited it": {before: change(claim("a", -8), lasting(1)), want: -2},
		"the instant of an orderly release":  {before: change(released(-3)), want: -3},
		"a release of the same instant":      {before: change(released(5)), want: 5},
		"a holder that was edited away is no release": {
			before: change(claim("a", -3), func(r *resourcelock.LeaderElectionRecord) { r.HolderIdentity = "" }), want: 3,
		},
		"nor is one that has a holder, whatever else it says": {
			before: change(released(-3), func(r *resourcelock.LeaderElectionRecord) { r.HolderIdentity = "a" }), want: 3,
		},
		"not even that of a claim which was never renewed": {before: change(release(-3)), want: 11},
		"without a Lease, h after the start":               {want: 11},
		"also with one that never was renewed": {
			before: change(claim("a", 0), func(r *resourcelock.LeaderElectionRecord) { r.RenewTime = metav1.Time{} }), want: 11,
		},
		"or that says it was in the future": {before: change(claim("a", 5.001)), want: 11},
		"or was released then":              {before: change(released(5.001)), want: 11},
		"or lasts for no time":              {before: change(claim("a", -8), lasting(0)), want: 11},
		"or was made anew and never renewed: the tenure before it may have been renewed since that renewTime": {
			before: change(claim("a", -8), func(r *resourcelock.LeaderElectionRecord) { r.AcquireTime = r.RenewTime }), want: 11,
		},
		"or was taken over and never renewed: the tenure before it may have ended after that renewTime": {
			before: change(claim("a", -8), func(r *resourcelock.LeaderElectionRecord) { r.AcquireTime, r.LeaderTransitions = r.RenewTime, 1 }), want: 11,
		},
		"a renewal of the very instant of the start": {before: change(claim("a", 5)), want: 11},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{record: test.before}
			r := newReplica(t, s, "b").wins(2, 3, 5)
			started, inherited := r.Started()
			if started != at(5) {
				t.Errorf("started at %+v, want the reading after the answer", started)
			}
			if !inherited.Equal(wall(test.want)) {
				t.Errorf("inherited %v, want %v", inherited.Sub(zero), test.want)
			}
			r.wins(7, 7, 8)
			if s, i := r.Started(); s != started || !i.Equal(inherited) {
				t.Errorf("a renewal changed them to %+v, %v", s, i)
			}
		})
	}
}

func TestInheritedByWhatWasReplaced(t *testing.T) {
	t.Run("nothing before the election is won", func(t *testing.T) {
		s := &store{record: stored(claim("a", -8))}
		r := newReplica(t, s, "b")
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if started, inherited := r.Started(); started != (lease.Reading{}) || !inherited.IsZero() {
			t.Errorf("started %+v, inherited %v", started, inherited)
		}
	})
	t.Run("a Lease that has gone since it was seen is missing", func(t *testing.T) {
		s := &store{record: stored(claim("a", -8))}
		r := newReplica(t, s, "b")
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.put(nil)
		if _, inherited := r.wins(2, 3, 5).Started(); !inherited.Equal(wall(11)) {
			t.Errorf("inherited %v", inherited.Sub(zero))
		}
	})
	t.Run("an election that was won without an answer inherits no less", func(t *testing.T) {
		s := &store{record: stored(claim("a", -8))}
		r := newReplica(t, s, "b")
		r.inner.leave = func(context.Context) error { return errAmbiguous }
		if _, _, err := r.lock.Get(t.Context()); err == nil {
			t.Fatal("the read was answered")
		}
		r.inner.leave = func(context.Context) error { return nil }
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.inner.leave = func(context.Context) error { return errAmbiguous }
		if r.lock.Update(t.Context(), claim("b", 0)) == nil {
			t.Fatal("the election was answered")
		}
		r.inner.leave = func(context.Context) error { return nil }
		if _, inherited := r.wins(2, 3, 5).Started(); inherited.Before(wall(-2)) {
			t.Errorf("inherited %v, less than the predecessor's deadline", inherited.Sub(zero))
		}
	})
	// A candidate was paused between its renewTime and its claim, for so long that its predecessor ended after that renewTime
	// and it has no right to write itself. Its Lease must not hide the predecessor from the next.
	t.Run("a claim of long ago hides nobody", func(t *testing.T) {
		s := &store{record: stored(released(8))}
		stale := newReplica(t, s, "b")
		late := claim("b", -2)
		late.AcquireTime, late.LeaderTransitions = late.RenewTime, 1
		stale.clock.Set(at(9))
		if _, _, err := stale.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := stale.lock.Update(t.Context(), late); err != nil {
			t.Fatal(err)
		}
		if stale.MayWrite(at(9)) {
			t.Error("it may renewTime")
		}
		if _, inherited := newReplica(t, s, "c").wins(10, 10, 10).Started(); inherited.Before(wall(8)) {
			t.Errorf("inherited %v, but there were renewTimes until 8 s", inherited.Sub(zero))
		}
	})
	t.Run("what the elector's record says later changes nothing", func(t *testing.T) {
		s := &store{record: stored(claim("a", -8))}
		r := newReplica(t, s, "b").wins(2, 3, 5)
		_, before := r.Started()
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, after := r.Started(); !after.Equal(before) {
			t.Errorf("inherited %v, then %v", before, after)
		}
	})
}

// Rule 6: a renewTime that is later than what was inherited shows that the Lease told an untruth.
func TestDoubt(t *testing.T) {
	for name, test := range map[string]struct {
		before resourcelock.LeaderElectionRecord
		stamps []float64
		want   float64
	}{
		"a renewTime within what was inherited": {before: claim("a", -8), stamps: []float64{-2}, want: -2},
		"a renewTime after it":                  {before: claim("a", -8), stamps: []float64{-1.999}, want: 11},
		"one before does not take it back":      {before: claim("a", -8), stamps: []float64{-1.999, -50}, want: 11},
		"more than h after the start is no use": {before: claim("a", -8), stamps: []float64{500}, want: 11},
		"what was inherited is never shortened": {before: claim("a", 5-0.001), stamps: []float64{10.9995}, want: 11},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReplica(t, &store{record: stored(test.before)}, "b").wins(2, 3, 5)
			for _, s := range test.stamps {
				r.ObserveEarlierRenewTime(wall(s))
			}
			if _, inherited := r.Started(); !inherited.Equal(wall(test.want)) {
				t.Errorf("inherited %v, want %v", inherited.Sub(zero), test.want)
			}
		})
	}
	t.Run("before the election is won there is nothing to doubt", func(t *testing.T) {
		r := newReplica(t, &store{}, "b")
		r.ObserveEarlierRenewTime(wall(1))
		if _, inherited := r.Started(); !inherited.IsZero() {
			t.Errorf("inherited %v", inherited)
		}
	})
	t.Run("an earlier tenure of a longer election can have renewed for as long", func(t *testing.T) {
		before := claim("a", -1)
		before.LeaseDurationSeconds = 60
		r := newReplica(t, &store{record: stored(before)}, "b").wins(2, 3, 5)
		r.ObserveEarlierRenewTime(wall(60))
		if _, inherited := r.Started(); !inherited.Equal(wall(65)) {
			t.Errorf("inherited %v", inherited.Sub(zero))
		}
	})
}

func TestElectionDuration(t *testing.T) {
	if got := tenure.New(&clocktest.Hand{}, h).ElectionDuration(); got != h {
		t.Errorf("h is %v", got)
	}
}
