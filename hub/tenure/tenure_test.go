package tenure_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/tenure"
)

type electionRecord = resourcelock.LeaderElectionRecord

// replica is one hub process with a clock that the test sets.
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
func (r *replica) try(renewTime, sent, answered float64) error {
	r.t.Helper()
	_, _, err := r.lock.Get(r.t.Context())
	r.clock.Set(at(sent))
	leave := r.inner.leave
	r.inner.leave = func(ctx context.Context) error {
		r.clock.Set(at(answered))
		return leave(ctx)
	}
	defer func() { r.inner.leave = leave }()
	if err != nil {
		return r.lock.Create(r.t.Context(), claim(r.inner.identity, renewTime))
	}
	return r.lock.Update(r.t.Context(), claim(r.inner.identity, renewTime))
}

func (r *replica) wins(renewTime, sent, answered float64) *replica {
	r.t.Helper()
	if err := r.try(renewTime, sent, answered); err != nil {
		r.t.Fatal(err)
	}
	return r
}

// readsAndUpdates writes a record after reading, as the elector does.
func (r *replica) readsAndUpdates(record electionRecord) error {
	r.t.Helper()
	r.play("read")
	return r.lock.Update(r.t.Context(), record)
}

func (r *replica) releases(seconds float64) error {
	r.t.Helper()
	return r.readsAndUpdates(release(seconds))
}

func (r *replica) answered() {
	r.inner.arrive = func(context.Context) error { return nil }
	r.inner.leave = r.inner.arrive
}

// writesUntil fails the test unless the replica may write up to that second on both clocks, and no longer on either.
func (r *replica) writesUntil(wallEnd, bootEnd float64) {
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
			r.t.Errorf("at %v and %v it may write: %v, want %v", test.wall, test.boot, got, test.may)
		}
	}
}

// mayNotWrite fails the test if the replica may write at that second.
func (r *replica) mayNotWrite(seconds float64) {
	r.t.Helper()
	if r.MayWrite(at(seconds)) {
		r.t.Errorf("it may write at %v s", seconds)
	}
}

// play runs the steps of a script on a replica. Times are seconds.
//
//   - wins: it wins or renews the election, with a renewTime, the time when the request is sent and the time of its
//     answer. A time that is left out is the one before;
//   - read, update, release: it reads the Lease, or sends a renewTime or a release without a read;
//   - fails: the request after that must fail, and otherwise it must succeed;
//   - lost, unanswered, answered: the outcome of requests from now on;
//   - found: another replica has won the election;
//   - clock, wall: the time on both clocks, or on each.
//
// The others are conditions: "until" by both clocks, "never", "holds" and "not-holds" at a time.
func (r *replica) play(script string) {
	r.t.Helper()
	for step := range strings.SplitSeq(script, "; ") {
		words := strings.Fields(step)
		fails := words[0] == "fails"
		if fails {
			words = words[1:]
		}
		if err := r.step(words); (err != nil) != fails {
			r.t.Fatalf("%s: %v", step, err)
		}
	}
}

func (r *replica) step(words []string) error {
	r.t.Helper()
	n := [4]float64{}
	for i := 1; i < len(n); i++ {
		if n[i] = n[i-1]; i < len(words) {
			n[i], _ = strconv.ParseFloat(words[i], 64)
		}
	}
	switch words[0] {
	case "wins":
		return r.try(n[1], n[2], n[3])
	case "read":
		_, _, err := r.lock.Get(r.t.Context())
		return err
	case "update":
		return r.lock.Update(r.t.Context(), claim("a", n[1]))
	case "release":
		return r.lock.Update(r.t.Context(), release(n[1]))
	case "lost":
		r.inner.arrive = func(context.Context) error { return errAmbiguous }
	case "unanswered":
		r.inner.leave = func(context.Context) error { return errAmbiguous }
	case "answered":
		r.answered()
	case "found":
		n[2], _ = strconv.ParseFloat(words[2], 64)
		r.inner.put(stored(claim(words[1], n[2])))
	case "clock":
		r.clock.Set(at(n[1]))
	case "wall":
		r.clock.Set(lease.Reading{Wall: wall(n[1]), Boot: boot(n[2])})
	case "until":
		r.writesUntil(n[1], n[2])
	case "never":
		r.mayNotWrite(n[1])
	case "holds", "not-holds":
		if r.clock.Set(at(n[1])); r.Holds() != (words[0] == "holds") {
			r.t.Errorf("at %v s it holds: %v", n[1], r.Holds())
		}
	default:
		r.t.Fatalf("no such step: %q", words)
	}
	return nil
}

// changed returns a record with changes.
func changed(r electionRecord, changes ...func(*electionRecord)) electionRecord {
	for _, change := range changes {
		change(&r)
	}
	return r
}

func lasting(seconds int) func(*electionRecord) {
	return func(r *electionRecord) { r.LeaseDurationSeconds = seconds }
}

func heldBy(name string) func(*electionRecord) {
	return func(r *electionRecord) { r.HolderIdentity = name }
}

func neverRenewed(r *electionRecord) { r.AcquireTime = r.RenewTime }

func oneTermLater(r *electionRecord) { r.LeaderTransitions++ }

// Rule 1: the right to write ends h after the renewTime of the last renewal that succeeded.
func TestDeadline(t *testing.T) {
	for name, script := range map[string]string{
		"not elected":                      "never 0",
		"elected, the answer takes 4 s":    "wins 0 0 4; until 6 6; holds 5; not-holds 6",
		"elected, sent 4 s late":           "wins 0 4; until 6 6; holds 5; not-holds 6",
		"elected, by nanoseconds more":     "wins 0.0000009 0.0000009 1; until 6 6; holds 5; not-holds 6",
		"elected, unanswered":              "unanswered; fails wins 0; never 0",
		"renewed":                          "wins 0; wins 2 2 3; until 8 8; holds 7; not-holds 8",
		"renewed 1 ms before the deadline": "wins 0; wins 5.999; until 11.999 11.999",
		"the renewal is lost":              "wins 0; lost; fails update 2; until 6 6",
		"the renewal is unanswered":        "wins 0; unanswered; fails update 2; until 6 6",
		"another replica was faster":       "wins 0; found b 1; fails update 2; until 6 6",
	} {
		t.Run(name, func(t *testing.T) { newReplica(t, &store{}, "a").play(script) })
	}
	t.Run("the wall clock was stepped back before the request was sent, at 1 s", func(t *testing.T) {
		r := newReplica(t, &store{}, "a")
		r.play("fails read; wall -100 1")
		if err := r.lock.Create(t.Context(), claim("a", 0)); err != nil {
			t.Fatal(err)
		}
		r.play("until 6 7")
	})
}

// Rule 1: a tenure is one unbroken right to write. client-go's elector tries on when a renewal fails. So it may take
// the election back from a replica that had it in between.
func TestTenureGoesOnOnlyUnbroken(t *testing.T) {
	var none *electionRecord
	won := func(r electionRecord) *electionRecord { return &r }
	for name, test := range map[string]struct {
		found  *electionRecord // in the place of the own one
		sent   electionRecord
		at     lease.Reading
		goesOn bool
	}{
		"renewed":                              {won(claim("a", 0)), claim("a", 2), at(2), true},
		"renewed at the deadline, wall clock":  {won(claim("a", 0)), claim("a", 6), at(2), false},
		"renewed, sent at the deadline":        {won(claim("a", 0)), claim("a", 5), at(6), false},
		"another replica holds the election":   {won(claim("b", 0)), claim("a", 2), at(2), false},
		"another replica released it":          {won(released(1)), claim("a", 2), at(2), false},
		"another replica held it, counted":     {won(claim("b", 1)), changed(claim("a", 2), oneTermLater), at(2), false},
		"another term of the own":              {won(changed(claim("a", 0), oneTermLater)), claim("a", 2), at(2), false},
		"the elector counts another term":      {won(claim("a", 0)), changed(claim("a", 2), oneTermLater), at(2), false},
		"the elector acquires it again":        {won(claim("a", 0)), changed(claim("a", 2), neverRenewed), at(2), false},
		"the Lease was deleted: created again": {none, claim("a", 1), at(1), false},
	} {
		t.Run(name, func(t *testing.T) {
			s := &store{}
			r := newReplica(t, s, "a").wins(0, 0, 0)
			s.put(test.found)
			_, _, err := r.lock.Get(t.Context())
			r.clock.Set(test.at)
			write := r.lock.Update
			if err != nil {
				write = r.lock.Create
			}
			if err := write(t.Context(), test.sent); (err == nil) != test.goesOn {
				t.Errorf("got %v", err)
			}
			if !test.goesOn {
				r.writesUntil(6, 6)
			}
		})
	}
	for name, test := range map[string]struct {
		before *electionRecord
		script string
	}{
		"after a read that failed, by compare-and-swap": {nil, "wins 0; lost; fails read; answered; update 2"},
		"with a renewTime from which a successor counts what was inherited, and not with an older one": {
			stored(changed(claim("b", -1), lasting(10))), "wins 0 4; fails wins 2.9 5; wins 3 5"}, // it may write until 9 s
		"with the renewTime of the start, less its nanoseconds": {nil, "wins 0 0 0.0000019; wins 0.0000019 0.1"},
		"not if it was not won: the request was lost":           {nil, "lost; fails wins 0"},
	} {
		t.Run(name, func(t *testing.T) { newReplica(t, &store{record: test.before}, "a").play(test.script) })
	}
	t.Run("with the acquisition as the Lease stores it", func(t *testing.T) {
		r := newReplica(t, &store{}, "a")
		first := claim("a", 0)
		first.AcquireTime = metav1.NewTime(wall(0.0000009))
		if err := r.lock.Create(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		next := claim("a", 2)
		next.AcquireTime = r.inner.get().AcquireTime
		if err := r.readsAndUpdates(next); err != nil {
			t.Errorf("it does not go on: %v", err)
		}
	})
}

// Rule 1: a replica stops writing before it releases its election, and never takes it back.
func TestRelease(t *testing.T) {
	elected := func(t *testing.T) *replica { return newReplica(t, &store{}, "a").wins(-5, -5, -5).wins(0, 0, 0) }
	t.Run("writing stops before the request is sent, which has the first storable instant after that", func(t *testing.T) {
		r, requests := elected(t), 0
		r.clock.Set(lease.Reading{Wall: wall(3).Add(1), Boot: boot(3)})
		r.inner.arrive = func(context.Context) error {
			if requests++; requests == 2 {
				r.mayNotWrite(1)
			}
			return nil
		}
		if err := r.releases(1); err != nil {
			t.Fatal(err)
		}
		want := wall(3).Add(time.Microsecond)
		if got := r.inner.get(); !got.RenewTime.Time.Equal(want) || got.HolderIdentity != "" {
			t.Errorf("released at %v by %q, want %v", got.RenewTime, got.HolderIdentity, want)
		}
		if _, inherited := newReplica(t, r.inner.store, "b").wins(4, 4, 4).Started(); !inherited.Equal(want) {
			t.Errorf("the successor inherits %v, want %v", inherited, want)
		}
	})
	t.Run("its instant is after the last write, although the wall clock was stepped back", func(t *testing.T) {
		r := elected(t)
		for wallAt, may := range map[float64]bool{4: true, 7: false} {
			if got := r.MayWrite(lease.Reading{Wall: wall(wallAt), Boot: boot(2)}); got != may {
				t.Errorf("may write at %v: %v", wallAt, got)
			}
		}
		r.MayWrite(at(2))
		r.clock.Set(at(3))
		if err := r.releases(1); err != nil {
			t.Fatal(err)
		}
		if got, want := r.inner.get().RenewTime, wall(4).Add(time.Microsecond); !got.Time.Equal(want) {
			t.Errorf("released at %v, want %v", got, want)
		}
	})
	for name, script := range map[string]string{
		"ends the tenure for good, carried out": "read; release 1; never 1; answered; fails wins 2; never 2",
		"ends the tenure for good, lost":        "read; lost; fails release 1; never 1; answered; fails wins 2; never 2",
		"ends the tenure for good, unanswered": "read; unanswered; fails release 1; never 1; answered; fails wins 2; " +
			"never 2",
		"right after it was won, without a read": "release 1",
		"not after a read that failed":           "lost; fails read; answered; fails release 1",
	} {
		t.Run(name, func(t *testing.T) { elected(t).play(script) })
	}
	// client-go's elector releases whatever it reads last. An old request may also be applied late, while another
	// replica has the right to write.
	own := claim("a", 0)
	for name, found := range map[string]electionRecord{
		"another replica's":           claim("b", 8),
		"the own, of an earlier term": changed(own, func(r *electionRecord) { r.AcquireTime = metav1.NewTime(wall(-200)) }),
		"the own, of an older write":  changed(own, func(r *electionRecord) { r.RenewTime = metav1.NewTime(wall(-0.001)) }),
		"the own, of a later term":    changed(own, oneTermLater),
	} {
		t.Run("not of another election: "+name, func(t *testing.T) {
			s := &store{}
			r := newReplica(t, s, "a").wins(0, 0, 0)
			s.put(&found)
			if r.releases(9) == nil || s.get() != found {
				t.Errorf("it was released: %+v", s.get())
			}
			r.mayNotWrite(1)
		})
	}
	for name, test := range map[string]struct {
		before  *electionRecord
		seconds float64
		skew    time.Duration // that decisions have allowed for
		orderly bool
	}{
		"it began in order":                                         {stored(released(-3)), 1, 0, true},
		"any earlier tenure has ended":                              {nil, 6, 0, true},
		"an earlier tenure may be at work for 1 ms":                 {nil, 5.999, 0, false},
		"any earlier tenure has ended by a slow clock":              {nil, 6.25, 250 * time.Millisecond, true},
		"an earlier tenure may be at work by a slow clock for 1 ms": {nil, 6.249, 250 * time.Millisecond, false},
	} {
		t.Run("orderly or not: "+name, func(t *testing.T) {
			s := &store{record: test.before}
			r := newReplica(t, s, "a").wins(0, 0, 0)
			r.Overlap(at(1), test.skew)
			r.clock.Set(at(test.seconds))
			if err := r.releases(test.seconds); err != nil {
				t.Fatal(err)
			}
			got := s.get()
			if orderly := got.AcquireTime.Time.Equal(got.RenewTime.Add(time.Microsecond)); orderly != test.orderly {
				t.Errorf("an orderly release: %v, want %v", orderly, test.orderly)
			}
			_, inherited := newReplica(t, s, "b").wins(test.seconds, test.seconds, test.seconds).Started()
			if !test.orderly && inherited.Before(wall(6)) {
				t.Errorf("the successor inherits %v", inherited.Sub(zero))
			}
		})
	}
}
