package election_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// Times are in seconds after zero, which is 20 s before the epochs' floor begins to count. The boot clock is 1000 s at
// zero. D is 15 s, ε is 1 s, and records have epoch 20.
var zero = time.Date(2024, time.December, 31, 23, 59, 40, 0, time.UTC)

const (
	second = time.Second
	epoch  = 20
)

func wall(seconds float64) time.Time {
	return zero.Add(time.Duration(seconds * float64(second)))
}

func boot(seconds float64) time.Duration {
	return 1000*second + time.Duration(seconds*float64(second))
}

func at(seconds float64) lease.Reading { return clocks(seconds, seconds) }

// clocks is a reading of two clocks that differ.
func clocks(wallSeconds, bootSeconds float64) lease.Reading {
	return lease.Reading{Wall: wall(wallSeconds), Boot: boot(bootSeconds)}
}

func policy(changes ...func(*election.Policy)) *election.Policy {
	p := &election.Policy{LeaseName: "leasecast"}
	duration(15 * second)(p)
	for _, change := range changes {
		change(p)
	}
	return p
}

func duration(d time.Duration) func(*election.Policy) {
	return func(p *election.Policy) {
		p.Timings = lease.Timings{Duration: d, Renew: 5 * second, Timeout: 3 * second, Skew: second}
	}
}

func stopTime(d time.Duration) func(*election.Policy) {
	return func(p *election.Policy) { p.StopTime = d }
}

func acknowledged(p *election.Policy) { p.Acknowledged = true }

func failOver(p *election.Policy) { p.FailOverWhenMostUnreachable = true }

// settled is a tenure that began long ago.
func settled() election.Tenure {
	return election.Tenure{Started: at(-500), Inherited: wall(-500)}
}

// inheriting is a tenure that began at zero. Its predecessor can have written until that second.
func inheriting(seconds float64) election.Tenure {
	return election.Tenure{Started: at(0), Inherited: wall(seconds)}
}

func young() election.Tenure { return inheriting(0) }

// afterOutage is a tenure that begins at zero, when all earlier promises have passed.
func afterOutage() election.Tenure { return inheriting(-500) }

// sent is what this tenure promised by a renewTime of that second under a D of 15 s. All renewals have stopped.
func sent(seconds float64) election.Sent {
	return election.Sent{Until: wall(seconds + 15), BootUntil: boot(seconds + 15), Skew: second, Final: true}
}

// nothing was sent, and all renewals have stopped.
func nothing() election.Sent { return election.Sent{Final: true} }

func renewing(s election.Sent) election.Sent {
	s.Final = false
	return s
}

func withSkew(skew time.Duration, s election.Sent) election.Sent {
	s.Skew = skew
	return s
}

func withStop(stop time.Duration, s election.Sent) election.Sent {
	s.Stop = stop
	return s
}

// withEarlier is a promise beside earlier ones, which end at that second with their own ε and stop time.
func withEarlier(seconds float64, s election.Sent) election.Sent {
	s.EarlierEnd, s.BootEarlierEnd = wall(seconds), boot(seconds)
	return s
}

func record(state election.RecordState, leader string, changes ...func(*election.Record)) election.Record {
	r := election.Record{
		Leader: leader, Epoch: epoch, State: state, Reason: reason.Elected, Since: wall(-400), AcquireTime: wall(-400),
		Duration: 15 * second, Skew: second, LeaseName: "leasecast", Observed: map[string]int32{"east": 100, "west": 50},
	}
	switch state {
	case election.Ending:
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

func observing(priorities map[string]int32) func(*election.Record) {
	return func(r *election.Record) { r.Observed = priorities }
}

func lasting(d time.Duration) func(*election.Record) {
	return func(r *election.Record) { r.Duration = d }
}

func raisedTo(epoch int64) func(*election.Record) {
	return func(r *election.Record) { r.Epoch = epoch }
}

func ledBy(name string) func(*election.Record) {
	return func(r *election.Record) { r.Leader = name }
}

func renamed(r *election.Record) { r.LeaseName = "before" }

func revoked(r *election.Record) { r.Revoked, r.Epoch = r.Epoch, r.Epoch+1 }

func followedBy(next string) func(*election.Record) {
	return func(r *election.Record) { r.Next = next }
}

func since(seconds float64) func(*election.Record) {
	return func(r *election.Record) { r.Since = wall(seconds) }
}

func notBefore(seconds float64) func(*election.Record) {
	return func(r *election.Record) { r.NotBefore = wall(seconds) }
}

func stateOf(r election.Record, s election.Sent, changes ...func(*election.State)) election.State {
	state := election.State{Record: r, Tenure: settled(), Sent: s}
	for _, change := range changes {
		change(&state)
	}
	return state
}

// leading is led by east, which this tenure renewed at zero.
func leading(changes ...func(*election.State)) election.State {
	return stateOf(record(election.Leading, "east", followedBy("west")), sent(0), changes...)
}

// ending is the same term while it ends, for a reason, since zero.
func ending(why reason.Reason, changes ...func(*election.State)) election.State {
	r := record(election.Ending, "east", because(why), followedBy("west"), notBefore(16))
	return stateOf(r, sent(0), changes...)
}

func vacant(changes ...func(*election.State)) election.State {
	return stateOf(record(election.Vacant, ""), nothing(), changes...)
}

func retired(changes ...func(*election.State)) election.State {
	return stateOf(record(election.Retired, "east"), sent(0), changes...)
}

// lost is a namespace without a record.
func lost(changes ...func(*election.State)) election.State {
	return stateOf(election.Record{}, nothing(), changes...)
}

func recorded(changes ...func(*election.Record)) func(*election.State) {
	return func(s *election.State) {
		for _, change := range changes {
			change(&s.Record)
		}
	}
}

func during(tn election.Tenure) func(*election.State) {
	return func(s *election.State) { s.Tenure = tn }
}

func having(sent election.Sent) func(*election.State) {
	return func(s *election.State) { s.Sent = sent }
}

// largest is the largest D in the seal.
func largest(d time.Duration) func(*election.State) {
	return func(s *election.State) { s.LargestDuration = d }
}

// seen is the highest epoch that this tenure knows.
func seen(epoch int64) func(*election.State) {
	return func(s *election.State) { s.Highest = epoch }
}

// found is the live term that a sealed Lease shows.
func found(f *election.FoundTerm) func(*election.State) {
	return func(s *election.State) { s.Found, s.Highest = f, f.Term.Epoch }
}

func behind(late time.Duration) func(*election.State) {
	return func(s *election.State) { s.Behind = late }
}

func mostUnreachable(s *election.State) { s.MostUnreachable = true }

func leaseLost(s *election.State) { s.LeaseLost = true }

// unread: this tenure has not read the leader's cluster.
func unread(s *election.State) { s.LeaderUnread = true }

func otherHub(s *election.State) { s.OtherHub = true }

func moved(s *election.State) { s.Moved = true }

func released(s *election.State) { s.Released = true }

// foundIn is the term of a sealed Lease that names its own cluster. It was renewed and read at that second.
func foundIn(cluster string, epoch int64, renewed float64) *election.FoundTerm {
	return &election.FoundTerm{Cluster: cluster, Boot: boot(renewed + 15), Term: lease.Term{
		Holder: lease.Identity(cluster, "fleet"), Epoch: epoch, AcquireTime: wall(-30), RenewTime: wall(renewed),
		Duration: 15 * second,
	}}
}

// among reads candidates from a text such as "east 100, west 50 Unreachable answering": the name, the priority and, of
// a cluster that is not fit, the reason. "keeps" before a reason is RetainOnly, as are Paused and Unguarded.
func among(text string) (cs []election.Candidate) {
	for part := range strings.SplitSeq(text, ", ") {
		words := strings.Fields(part)
		if len(words) == 0 {
			return nil
		}
		priority, err := strconv.ParseInt(words[1], 10, 32)
		if err != nil {
			panic(err)
		}
		c := election.Candidate{Name: words[0], Priority: int32(priority)}
		c.Fitness, c.Reason, c.Answering = election.Fit, reason.Eligible, true
		for _, word := range words[2:] {
			describe(&c, word)
		}
		cs = append(cs, c)
	}
	return cs
}

func describe(c *election.Candidate, word string) {
	switch word {
	case "prepared":
		c.Prepared = true
	case "refused":
		c.Refused = true
	case "drained":
		c.Drained = true
	case "fenced":
		c.Fenced, c.Fitness, c.Reason, c.Answering = "uid of "+c.Name, election.Unfit, reason.Fenced, false
	case "answered":
		c.Answered = at(3)
	case "ordered":
		c.Ordered = true
	case "unreadable":
		c.Required = election.RequiredUnknown
	case "unhealthy":
		c.Required = election.RequiredUnhealthy
	case "failed":
		c.Required = election.RequiredFailed
	case "light", "heavy":
		c.Weight = map[string]uint64{"light": 1, "heavy": 2}[word]
	case "answering", "silent":
		c.Answering = word == "answering"
	case "unfenced":
		c.Unfenced = election.FenceMissing
	case "unchecked":
		c.Unfenced = election.FenceUnchecked
	case "keeps":
		c.Fitness = election.RetainOnly
	case "unknown":
		c.Fitness, c.Reason, c.Answering = election.Unknown, reason.NeverReached, false
	case "Paused", "Unguarded":
		c.Fitness, c.Reason = election.RetainOnly, reason.Reason(word)
	default:
		if c.Reason = reason.Reason(word); c.Fitness == election.Fit {
			c.Fitness, c.Answering = election.Unfit, false
		}
	}
}

// say describes a decision in one line.
func say(d election.Decision) string {
	if d.StopRenewing {
		return "stop renewing"
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

// decision is one row of a table. A row without a policy has the usual one, unless it sets noPolicy.
type decision struct {
	now      lease.Reading
	policy   *election.Policy
	noPolicy bool
	state    election.State
	among    string
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
			if got := say(election.Next(test.now, p, test.state, among(test.among))); got != test.want {
				t.Errorf("\n got %s\nwant %s", got, test.want)
			}
		})
	}
}
