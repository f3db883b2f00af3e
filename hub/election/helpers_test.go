package election_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// The tables tell time in seconds after zero, which is 20 s before the seconds that epochs start from are counted. The
// boot clock is 1000 s then. D is 15 s and ε 1 s, and the records are of epoch 20.
var zero = time.Date(2024, time.December, 31, 23, 59, 40, 0, time.UTC)

const (
	second = time.Second
	epoch  = 20
)

func wall(seconds float64) time.Time {
	return zero.Add(time.Duration(seconds * float64(second)))
}

func at(seconds float64) lease.Reading {
	return lease.Reading{Wall: wall(seconds), Boot: boot(seconds)}
}

func boot(seconds float64) time.Duration {
	return 1000*second + time.Duration(seconds*float64(second))
}

func timings(d time.Duration) lease.Timings {
	return lease.Timings{Duration: d, Renew: 5 * second, Timeout: 3 * second, Skew: second}
}

func policy(changes ...func(*election.Policy)) *election.Policy {
	p := &election.Policy{Timings: timings(15 * second), LeaseName: "leasecast"}
	for _, change := range changes {
		change(p)
	}
	return p
}

func duration(d time.Duration) func(*election.Policy) {
	return func(p *election.Policy) { p.Timings = timings(d) }
}

// settled is a tenure that began long ago.
func settled() election.Tenure {
	return election.Tenure{Started: at(-500), Inherited: wall(-500)}
}

// young is a tenure that began at zero; its predecessor can have renewed until then.
func young() election.Tenure {
	return election.Tenure{Started: at(0), Inherited: wall(0)}
}

// afterOutage is a tenure that begins at zero, long after the last one: all promises have passed.
func afterOutage() election.Tenure {
	return election.Tenure{Started: at(0), Inherited: wall(-500)}
}

// sent is what this tenure promised by a renewTime of that second under a D of 15 s.
func sent(seconds float64) election.Sent {
	return election.Sent{Until: wall(seconds + 15), BootUntil: boot(seconds + 15), Skew: second, Final: true}
}

// under is what was sent under a policy of that ε.
func under(skew time.Duration, s election.Sent) election.Sent {
	s.Skew = skew
	return s
}

// stopping is what was sent under a policy whose locks take that long to stop.
func stopping(stop time.Duration, s election.Sent) election.Sent {
	s.Stop = stop
	return s
}

// after is a promise beside earlier ones that end at an instant, with their own ε and stop time.
func after(seconds float64, s election.Sent) election.Sent {
	s.EarlierEnd, s.BootEarlierEnd = wall(seconds), boot(seconds)
	return s
}

// behind is a state in which the leader's clock is that late.
func behind(late time.Duration, s election.State) election.State {
	s.Behind = late
	return s
}

// locks are fenced, and take that long to stop.
func locks(stop time.Duration) func(*election.Policy) {
	return func(p *election.Policy) { p.StopTime = stop }
}

func closed() election.Sent { return election.Sent{Final: true} }

func open(s election.Sent) election.Sent {
	s.Final = false
	return s
}

func record(phase election.RecordState, leader string, changes ...func(*election.Record)) election.Record {
	r := election.Record{
		Leader: leader, Epoch: epoch, State: phase, Reason: reason.Elected, Since: wall(-400), AcquireTime: wall(-400),
		Duration: 15 * second, Skew: second, LeaseName: "leasecast", Observed: map[string]int32{"east": 100, "west": 50},
	}
	switch phase {
	case election.Draining:
		r.Reason, r.Since = reason.Unreachable, wall(0)
	case election.Vacant:
		r.Reason = reason.NoCandidate
	case election.Retired:
		r.Reason = reason.PolicyGone
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

func because(why reason.Reason) func(*election.Record) {
	return func(r *election.Record) { r.Reason = why }
}

func counting(counted map[string]int32) func(*election.Record) {
	return func(r *election.Record) { r.Observed = counted }
}

func lasting(d time.Duration) func(*election.Record) {
	return func(r *election.Record) { r.Duration = d }
}

func followedBy(next string) func(*election.Record) {
	return func(r *election.Record) { r.Next = next }
}

func notBefore(seconds float64) func(*election.Record) {
	return func(r *election.Record) { r.NotBefore = wall(seconds) }
}

func fit(name string, priority int32) election.Candidate {
	return election.Candidate{Name: name, Priority: priority, Fitness: election.Fit, Reason: reason.Eligible, Answering: true}
}

func unfit(name string, priority int32, why reason.Reason) election.Candidate {
	return election.Candidate{Name: name, Priority: priority, Fitness: election.Unfit, Reason: why}
}

func unknown(name string, priority int32) election.Candidate {
	return election.Candidate{Name: name, Priority: priority, Fitness: election.Unknown, Reason: reason.NeverReached}
}

func keeping(name string, priority int32, why reason.Reason) election.Candidate {
	c := fit(name, priority)
	c.Fitness, c.Reason = election.RetainOnly, why
	return c
}

func paused(name string, priority int32) election.Candidate {
	return keeping(name, priority, reason.Paused)
}

func unguarded(name string, priority int32) election.Candidate {
	return keeping(name, priority, reason.Unguarded)
}

func prepared(c election.Candidate) election.Candidate {
	c.Prepared = true
	return c
}

func answering(c election.Candidate) election.Candidate {
	c.Answering = true
	return c
}

func refused(c election.Candidate) election.Candidate {
	c.Refused = true
	return c
}

// say puts a decision into one line: what the record becomes, and what else is to be done.
func say(d election.Decision) string {
	if d.StopRenewing {
		return "close"
	}
	if d.Gone {
		return "gone"
	}
	r := d.Record
	words := []string{string(r.State), "nobody", fmt.Sprint(r.Epoch), string(r.Reason)}
	if r.Leader != "" {
		words[1] = r.Leader
	}
	if r.State == "" {
		words = []string{"lost"}
	}
	if r.Next != "" {
		words = append(words, "next "+r.Next)
	}
	if d.Waiting != "" {
		words = append(words, "waiting "+string(d.Waiting))
	}
	if d.After != 0 {
		words = append(words, "after "+d.After.String())
	}
	if d.Persist {
		words = append(words, "persist")
	}
	return strings.Join(words, " ")
}

// decision is one row of a table. A row without a policy has the usual one, unless it says that there is none.
type decision struct {
	now      lease.Reading
	policy   *election.Policy
	noPolicy bool
	state    election.State
	among    []election.Candidate
	want     string
}

func decide(t *testing.T, tests map[string]decision) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := test.policy
			if p == nil && !test.noPolicy {
				p = policy()
			}
			if got := say(election.Next(test.now, p, test.state, test.among)); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}
