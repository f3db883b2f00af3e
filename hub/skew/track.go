package skew

import (
	"fmt"
	"slices"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	// confirm is how many samples in a row must prove that a clock is beyond ε.
	confirm = 2
	// Calm is for how long nothing may have proved more than ¾ ε before a verdict ends.
	Calm = 10 * time.Second
	// longCalm is for how long if the clock cannot be proved to be within ¾ ε, because the round trip to the
	// member is too long.
	longCalm = time.Minute
)

// State is the verdict on a member under one ε.
type State int

// The three verdicts.
const (
	// Unknown: not measured closely enough yet.
	Unknown State = iota
	// Within: the API server's clock was measured to be within ε, and nothing has disproved that of any clock
	// since.
	Within
	// Beyond: a clock was proved to be beyond ε, and the verdict has not ended yet.
	Beyond
)

// Verdict is what a [Track] says under one ε.
type Verdict struct {
	State State
	// Clock names the clock that is Beyond, for people: "the API server", "host <name>" or
	// "API server <name>".
	Clock string
	// Offset is how far that clock was ahead of the hub's when that was proved last.
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

// String says which clock is how far off, for people.
func (v Verdict) String() string {
	if v.State != Beyond {
		return "no clock is known to be off"
	}
	where, from, to := "ahead of", v.Offset.Lo, v.Offset.Hi
	if to < 0 {
		where, from, to = "behind", -to, -from
	}
	if to >= century {
		return fmt.Sprintf("the clock of %s is at least %v %s the hub's", v.Clock, round(from), where)
	}
	return fmt.Sprintf("the clock of %s is %v to %v %s the hub's", v.Clock, round(from), round(to), where)
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Millisecond) }

// Track measures the clocks of one member. The zero Track has seen nothing. It is not safe
// for concurrent use.
type Track struct {
	server          Estimate
	hosts, servers  others
	listed          *time.Duration // when the last list of API servers was sent
	several         bool           // more than one API server renews its Lease
	host, apiserver string         // the farthest of them
	judgements      []judgement
}

// judgement is what is known under one ε.
type judgement struct {
	eps     time.Duration
	verdict Verdict
	// proofs is how many samples in a row proved that a clock is beyond ε.
	proofs int
	// clear is since when no sample does. within is since when the API server's clock is proved to be within
	// ¾ ε too.
	clear, within *time.Duration
}

// Judge sets the ε under which the member is judged from now on.
func (t *Track) Judge(now lease.Reading, eps []time.Duration) {
	var gates []judgement
	for _, e := range eps {
		i := slices.IndexFunc(t.judgements, func(g judgement) bool { return g.eps == e })
		if i >= 0 {
			gates = append(gates, t.judgements[i])
			continue
		}
		g := judgement{eps: e, proofs: max(0, min(t.server.samples, confirm)-1)}
		t.judge(&g, now)
		gates = append(gates, g)
	}
	t.judgements = gates
}

// Reset forgets all measurements: another cluster is behind the name.
func (t *Track) Reset() {
	fresh := Track{}
	for _, g := range t.judgements {
		fresh.judgements = append(fresh.judgements, judgement{eps: g.eps})
	}
	*t = fresh
}

// Answer adds the sample of an answer of the API server.
func (t *Track) Answer(s Sample, now lease.Reading) {
	t.server.Observe(s)
	t.update(now)
}

// Hosts adds the Leases of the member's hosts, as a list showed them that was answered at now. The list may
// come from a cache.
func (t *Track) Hosts(rs []Renewal, now lease.Reading) {
	if !t.server.Known() {
		return
	}
	if t.hosts == nil {
		t.hosts = others{}
	}
	t.hosts.hosts(rs, &t.server, now)
	t.host = t.hosts.farthest(now)
	t.update(now)
}

// Servers adds the Leases of the member's API servers, as a consistent list showed them that was sent at sent
// and answered at now.
func (t *Track) Servers(rs []Renewal, sent, now lease.Reading) {
	if t.servers == nil {
		t.servers = others{}
	}
	t.servers.servers(rs, t.listed, now)
	t.listed = &sent.Boot
	t.several = len(t.servers) > 1
	t.apiserver = t.servers.farthest(now)
	t.update(now)
}

func (t *Track) update(now lease.Reading) {
	for i := range t.judgements {
		t.judge(&t.judgements[i], now)
	}
}

// farthest is the clock with the greatest proved distance from the hub's.
func (t *Track) farthest(now lease.Reading, eps time.Duration) (clock string, off Interval) {
	if t.server.Known() {
		clock, off = "the API server", t.server.Offset(now)
	}
	if o := t.servers[t.apiserver]; o != nil && o.offset(now).Least() > off.Least() {
		clock, off = "API server "+t.apiserver, o.offset(now)
	}
	if o := t.hosts[t.host]; o != nil {
		of := o.offset(now)
		if t.several {
			// Another API server than the one that answers the hub may have admitted it, with a
			// clock that may rightly differ by ε.
			of = of.widened(eps)
		}
		if of.Least() > off.Least() {
			clock, off = "host "+t.host, of
		}
	}
	return clock, off
}

// judge updates a judgement.
func (t *Track) judge(g *judgement, now lease.Reading) {
	clock, off := t.farthest(now, g.eps)
	beyond := off.Least() > g.eps
	if !beyond {
		g.proofs = 0
	} else if g.proofs++; g.proofs >= confirm {
		g.verdict = Verdict{State: Beyond, Clock: clock, Offset: off}
	}
	inner := g.eps * 3 / 4
	since(&g.clear, off.Least() <= inner, now.Boot)
	since(&g.within, off.Least() <= inner && t.server.Known() && t.server.Offset(now).Most() <= inner, now.Boot)
	switch {
	case g.verdict.State == Unknown && t.server.Known() && t.server.Offset(now).Most() <= g.eps && !beyond:
		g.verdict.State = Within
	case g.verdict.State == Beyond && (lasts(g.within, Calm, now.Boot) || lasts(g.clear, longCalm, now.Boot)):
		g.verdict = Verdict{}
	}
}

// since notes when something began, or that it ended.
func since(at **time.Duration, is bool, boot time.Duration) {
	switch {
	case !is:
		*at = nil
	case *at == nil:
		*at = &boot
	}
}

func lasts(at *time.Duration, d, boot time.Duration) bool { return at != nil && boot-*at >= d }

// Verdict is the judgement under an ε that [Track.Judge] was given, and Unknown under any other one.
func (t *Track) Verdict(eps time.Duration) Verdict {
	for i := range t.judgements {
		if t.judgements[i].eps == eps {
			return t.judgements[i].verdict
		}
	}
	return Verdict{}
}

// Worst is the verdict under the largest ε under which a clock is Beyond, with that ε. Both are zero if there
// is none.
func (t *Track) Worst() (Verdict, time.Duration) {
	var v Verdict
	var eps time.Duration
	for i := range t.judgements {
		g := &t.judgements[i]
		if g.verdict.State == Beyond && (v.State != Beyond || g.eps > eps) {
			v, eps = g.verdict, g.eps
		}
	}
	return v, eps
}

// States are the verdicts under all ε in the order in which Judge was given them.
func (t *Track) States() []State {
	states := make([]State, 0, len(t.judgements))
	for i := range t.judgements {
		states = append(states, t.judgements[i].verdict.State)
	}
	return states
}

// Server is the estimate of the API server's clock at now, and false if there is none.
func (t *Track) Server(now lease.Reading) (Interval, bool) {
	if !t.server.Known() {
		return Interval{}, false
	}
	return t.server.Offset(now), true
}

// Aim is that of the API server's estimate.
func (t *Track) Aim(from time.Duration) (time.Duration, bool) { return t.server.Aim(from) }
