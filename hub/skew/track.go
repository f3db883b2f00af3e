package skew

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	// confirm is how many answers must agree before they prove that a clock is off.
	confirm = 2
	// Calm is how long a clock must not have been proved to be off by more than ¾ ε before the verdict ends.
	Calm = 10 * time.Second
)

// State is the verdict on a member under one ε.
type State int

// The four verdicts.
const (
	// Unknown: not measured closely enough.
	Unknown State = iota
	// Within: the clock is proved to be within ε of the hub's. It was within ¾ ε when this verdict began.
	Within
	// Beyond: the clock was proved to be farther than ε from the hub's, and farther than ¾ ε within the last Calm.
	Beyond
	// Suspected: no two answers have agreed yet, and the latest one proves more than ε.
	Suspected
)

// Verdict is what a [Track] proves under one ε.
type Verdict struct {
	State State
	// Offset is how far the clock is ahead of the hub's, if State is Beyond or Suspected.
	Offset Interval
}

// Behind is how far the clock may be behind the hub's if it was proved to be behind by more than ε, and zero
// otherwise. It is rounded up to a tenth of a second, so that it does not change with every sample.
func (v Verdict) Behind() time.Duration {
	const tenth = time.Second / 10
	if v.State != Beyond || v.Offset.Hi >= 0 {
		return 0
	}
	return (-v.Offset.Lo + tenth - 1).Truncate(tenth)
}

// String describes how far the clock is off.
func (v Verdict) String() string {
	if v.State != Beyond && v.State != Suspected {
		return "the API server's clock is not known to be off"
	}
	where, from, to := "ahead of", v.Offset.Lo, v.Offset.Hi
	if to < 0 {
		where, from, to = "behind", -to, -from
	}
	return fmt.Sprintf("the API server's clock is %v to %v %s the hub's", round(from), round(to), where)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// Track measures the clock of one member and judges it under the ε of each policy. The zero Track has no sample. It is
// not safe for concurrent use.
type Track struct {
	clock Estimate
	// confirmed reports whether enough answers have ever agreed.
	confirmed bool
	under     []judgement
}

// judgement is what is known under one ε.
type judgement struct {
	eps time.Duration
	// proof is the last estimate that proved the clock to be farther off than beyond, and proved is the boot reading then.
	proof  Estimate
	proved time.Duration
	// state is the verdict at the last sample.
	state State
}

// Judge sets the ε under which the member is judged from now on.
func (t *Track) Judge(now lease.Reading, eps []time.Duration) {
	under := make([]judgement, len(eps))
	for i, e := range eps {
		under[i] = judgement{eps: e}
		if j := t.find(e); j != nil {
			under[i] = *j
		}
	}
	t.under = under
	t.update(now)
}

// Reset forgets all measurements: another cluster is behind the name.
func (t *Track) Reset() {
	t.clock, t.confirmed = Estimate{}, false
	for i := range t.under {
		t.under[i] = judgement{eps: t.under[i].eps}
	}
}

// Observe adds the sample of an answer.
func (t *Track) Observe(s Sample, now lease.Reading) {
	t.clock.Observe(s)
	t.confirmed = t.confirmed || t.clock.samples >= confirm
	t.update(now)
}

func (t *Track) update(now lease.Reading) {
	for i := range t.under {
		j := &t.under[i]
		if t.clock.proves(now, j.beyond()) {
			j.proof, j.proved = t.clock, now.Boot
		}
		j.state = t.judge(j, now).State
	}
}

// proves reports whether the clock is farther than eps from the hub's for certain.
func (e *Estimate) proves(now lease.Reading, eps time.Duration) bool {
	return e.samples >= confirm && e.Offset(now).Least() > eps
}

// beyond is the distance from which on the verdict is Beyond, and within the one up to which it is Within. A verdict
// that has begun at one end of the band from ¾ ε to ε ends at the other one. So a clock near ε does not flap.
func (j *judgement) beyond() time.Duration {
	if j.state == Beyond {
		return j.eps * 3 / 4
	}
	return j.eps
}

func (j *judgement) within() time.Duration {
	if j.state == Within {
		return j.eps
	}
	return j.eps * 3 / 4
}

// judge returns the verdict at now. An earlier proof counts by the hub's present clock. So when the hub's clock was
// wrong and is right again, no proof is left of that.
func (t *Track) judge(j *judgement, now lease.Reading) Verdict {
	switch {
	case t.clock.proves(now, j.beyond()):
		return Verdict{State: Beyond, Offset: t.clock.Offset(now)}
	case now.Boot-j.proved < Calm && j.proof.proves(now, j.beyond()):
		return Verdict{State: Beyond, Offset: j.proof.Offset(now)}
	case !t.confirmed && t.clock.Known() && t.clock.Offset(now).Least() > j.eps:
		return Verdict{State: Suspected, Offset: t.clock.Offset(now)}
	case t.clock.Known() && t.clock.Offset(now).Most() <= j.within():
		return Verdict{State: Within}
	default:
		return Verdict{}
	}
}

func (t *Track) find(eps time.Duration) *judgement {
	if i := slices.IndexFunc(t.under, func(j judgement) bool { return j.eps == eps }); i >= 0 {
		return &t.under[i]
	}
	return nil
}

// Verdict is the verdict at now under an ε that [Track.Judge] was given, and Unknown under any other one.
func (t *Track) Verdict(now lease.Reading, eps time.Duration) Verdict {
	j := t.find(eps)
	if j == nil {
		return Verdict{}
	}
	return t.judge(j, now)
}

// Worst is the verdict at now under the largest ε under which the clock is Beyond, and that ε. Both are zero if it is
// Beyond under none.
func (t *Track) Worst(now lease.Reading) (worst Verdict, eps time.Duration) {
	for i := range t.under {
		if v := t.judge(&t.under[i], now); v.State == Beyond && t.under[i].eps >= eps {
			worst, eps = v, t.under[i].eps
		}
	}
	return worst, eps
}

// States are the verdicts at the last sample, in the order in which Judge was given the ε.
func (t *Track) States() []State {
	states := make([]State, 0, len(t.under))
	for i := range t.under {
		states = append(states, t.under[i].state)
	}
	return states
}

// Offset is how far the clock is from the hub's at now, and false if there is no sample.
func (t *Track) Offset(now lease.Reading) (Interval, bool) {
	if !t.clock.Known() {
		return Interval{}, false
	}
	return t.clock.Offset(now), true
}
