package tenure_test

import (
	"context"
	"errors"
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
	found *electionRecord // by the last step "found"
	// refuses is the error with which it refuses to win or renew the election, or nil.
	refuses error
}

func newReplica(t *testing.T, s *store, identity string) *replica {
	t.Helper()
	r := &replica{t: t, clock: clocktest.NewHand(at(0)), inner: s.lock(identity)}
	r.Tenure = tenure.New(r.clock, h)
	r.RefuseIf(func() error { return r.refuses })
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

// recordOf reads a record, as in "a -8 later": its holder, its renewTime and options. Others are "released -3",
// "release -3" and "none".
func recordOf(text string) *electionRecord {
	words := strings.Fields(text)
	if words[0] == "none" {
		return nil
	}
	renewed, _ := strconv.ParseFloat(words[1], 64)
	r := claim(words[0], renewed)
	switch words[0] {
	case "released":
		r = released(renewed)
	case "release":
		r = release(renewed)
	}
	for _, option := range words[2:] {
		switch name, value, _ := strings.Cut(option, "="); name {
		case "later": // by one term
			r.LeaderTransitions++
		case "never-renewed":
			r.AcquireTime = r.RenewTime
		case "no-renewTime":
			r.RenewTime = metav1.Time{}
		case "held-by":
			r.HolderIdentity = value
		case "acquired":
			n, _ := strconv.ParseFloat(value, 64)
			r.AcquireTime = metav1.NewTime(wall(n))
		case "for":
			r.LeaseDurationSeconds, _ = strconv.Atoi(value)
		}
	}
	return &r
}

// play runs the steps of a script on a replica. Times are seconds.
//
//   - wins: it wins or renews the election, with a renewTime, the time when the request is sent and the time of its
//     answer. A time that is left out is the one before;
//   - read, claims, creates, release: it reads the Lease, or sends a record or a release without a read;
//   - fails: the request after that must fail, and otherwise it must succeed;
//   - lost, unanswered, answered: the outcome of requests from now on;
//   - refuse, accept: whether its Leases would be useless;
//   - found: this record is there. "successor" goes on with the next replica, which wins;
//   - clock, wall: the time on both clocks, or on each.
//
// The others are conditions: "until" by both clocks, "never", "holds" and "not-holds" at a time.
func (r *replica) play(script string) {
	r.t.Helper()
	for step := range strings.SplitSeq(script, "; ") {
		do, fails := strings.CutPrefix(step, "fails ")
		err := r.step(strings.Fields(do))
		if (err != nil) != fails || fails && r.refuses != nil && !errors.Is(err, r.refuses) {
			r.t.Fatalf("%s: %v", step, err)
		}
	}
}

func (r *replica) step(words []string) error {
	r.t.Helper()
	n, rest := [4]float64{}, strings.Join(words[1:], " ")
	for i := 1; i < len(n); i++ {
		if n[i] = n[i-1]; i < len(words) {
			n[i], _ = strconv.ParseFloat(words[i], 64)
		}
	}
	is := func(is bool) {
		r.t.Helper()
		if started, inherited := r.Started(); !is {
			r.t.Errorf("not so: %q; started %v, inherited %v", words, started.Wall.Sub(zero), inherited.Sub(zero))
		}
	}
	_, inherited := r.Started()
	switch words[0] {
	case "wins":
		return r.try(n[1], n[2], n[3])
	case "read":
		_, _, err := r.lock.Get(r.t.Context())
		return err
	case "claims":
		return r.lock.Update(r.t.Context(), *recordOf(rest))
	case "creates":
		return r.lock.Create(r.t.Context(), *recordOf(rest))
	case "release":
		return r.lock.Update(r.t.Context(), release(n[1]))
	case "lost":
		r.inner.arrive = func(context.Context) error { return errAmbiguous }
	case "unanswered":
		r.inner.leave = func(context.Context) error { return errAmbiguous }
	case "answered":
		r.answered()
	case "found":
		if r.found = recordOf(rest); r.found != nil {
			r.found = stored(*r.found)
		}
		r.inner.put(r.found)
	case "untouched":
		is(r.inner.get() == *r.found)
	case "refuse":
		r.refuses = errors.New("the clock is wrong: set it right")
	case "accept":
		r.refuses = nil
	case "successor":
		*r = *newReplica(r.t, r.inner.store, "successor")
		return r.try(n[1], n[1], n[1])
	case "overlap":
		r.Overlap(at(1), time.Duration(n[1]*float64(second)))
	case "observe":
		r.ObserveEarlier(wall(n[1]))
	case "clock":
		r.clock.Set(at(n[1]))
	case "wall":
		r.clock.Set(lease.Reading{Wall: wall(n[1]), Boot: boot(n[2])})
	case "until":
		r.writesUntil(n[1], n[2])
	case "never":
		r.mayNotWrite(n[1])
	case "holds", "not-holds":
		r.clock.Set(at(n[1]))
		is(r.Holds() == (words[0] == "holds"))
	case "orderly", "disorderly":
		left := r.inner.get()
		is(left.AcquireTime.Time.Equal(left.RenewTime.Add(time.Microsecond)) == (words[0] == "orderly"))
	case "inherited":
		is(inherited.Equal(wall(n[1])))
	case "inherited-least":
		is(!inherited.Before(wall(n[1])))
	case "not-started":
		started, _ := r.Started()
		is(started == lease.Reading{} && inherited.IsZero())
	default:
		r.t.Fatalf("no such step: %q", words)
	}
	return nil
}

// playEach runs each script on a replica of its own.
func playEach(t *testing.T, scripts map[string]string) {
	t.Helper()
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { newReplica(t, &store{}, "a").play(script) })
	}
}

// Rule 1: the right to write ends h after the renewTime of the last renewal that succeeded.
func TestDeadline(t *testing.T) {
	playEach(t, map[string]string{
		"elected, the answer takes 4 s": "wins 0 0 4; until 6 6; holds 5; not-holds 6",
		"elected, unanswered":           "unanswered; fails wins 0; never 0",
		"renewed":                       "wins 0; wins 2 2 3; until 8 8; holds 7; not-holds 8",
		"the wall clock was stepped back before the request was sent, at 1 s": "fails read; wall -100 1; creates a 0; " +
			"until 6 7",
	})
}

// Rule 1: a tenure is one unbroken right to write. client-go's elector tries on when a renewal fails. So it may take
// the election back from a replica that had it in between.
func TestTenureGoesOnOnlyUnbroken(t *testing.T) {
	playEach(t, map[string]string{
		"renewed at the deadline, wall clock":   "wins 0; read; clock 2; fails claims a 6; until 6 6",
		"renewed, sent at the deadline":         "wins 0; read; clock 6; fails claims a 5; until 6 6",
		"another replica holds the election":    "wins 0; found b 0; read; clock 2; fails claims a 2; until 6 6",
		"another term of the own":               "wins 0; found a 0 later; read; clock 2; fails claims a 2; until 6 6",
		"the elector acquires it again":         "wins 0; read; clock 2; fails claims a 2 never-renewed; until 6 6",
		"the Lease was deleted: created again":  "wins 0; found none; fails read; clock 1; fails creates a 1; until 6 6",
		"the acquisition has nanoseconds":       "creates a 0 acquired=0.0000009; read; claims a 2 acquired=0",
		"the renewTime of the start, truncated": "wins 0 0 0.0000019; wins 0.0000019 0.1",
		"a renewTime before what was inherited, from which a successor counts": "found b -1 for=10; wins 0 4; " +
			"fails wins 2.9 5; wins 3 5",
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
		r.play("read; release 1")
		if got := r.inner.get(); got.HolderIdentity != "" {
			t.Errorf("released by %q", got.HolderIdentity)
		}
		r.answered()
		r.play("successor 4; inherited 3.000001")
	})
	t.Run("its instant is after the last write, although the wall clock was stepped back", func(t *testing.T) {
		r := elected(t)
		for wallAt, may := range map[float64]bool{4: true, 7: false} {
			if got := r.MayWrite(lease.Reading{Wall: wall(wallAt), Boot: boot(2)}); got != may {
				t.Errorf("may write at %v: %v", wallAt, got)
			}
		}
		r.MayWrite(at(2))
		r.play("clock 3; read; release 1")
		if got, want := r.inner.get().RenewTime, wall(4).Add(time.Microsecond); !got.Time.Equal(want) {
			t.Errorf("released at %v, want %v", got, want)
		}
	})
	const ends = "; never 1; answered; fails wins 2; never 2"
	playEach(t, map[string]string{
		"ends the tenure for good, lost":         "wins 0; read; lost; fails release 1" + ends,
		"right after it was won, without a read": "wins 0; release 1",
		"not after a read that failed":           "wins 0; lost; fails read; answered; fails release 1",
		// client-go's elector releases whatever it reads last. An old request may also be applied late, while another
		// replica has the right to write.
		"not another replica's":           "wins 0; found b 8; read; fails release 9; untouched; never 1",
		"not the own, of an earlier term": "wins 0; found a 0 acquired=-200; read; fails release 9; untouched; never 1",
		"not the own, of an older write":  "wins 0; found a -0.001; read; fails release 9; untouched; never 1",
		"not orderly, the release before it was wrong": "found released -3; wins 0; observe -2; clock 1; read; release 1; " +
			"disorderly",
		"orderly, it began in order":            "found released -3; wins 0; overlap 0; clock 1; read; release 1; orderly",
		"orderly, any earlier tenure has ended": "wins 0; overlap 0; clock 6; read; release 6; orderly",
		"not orderly, an earlier tenure may be at work by a slow clock for 1 ms": "wins 0; overlap 0.25; overlap 0; " +
			"clock 6.249; read; release 6.249; disorderly; successor 6.249; inherited-least 6",
	})
}
