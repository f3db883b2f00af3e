package election_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// anyState draws inputs without regard to whether they can come together.
func anyState(r *rand.Rand) (election.State, []election.Candidate) {
	names := []string{"east", "west", "south"}
	s := election.State{
		Tenure:    election.Tenure{Started: at(-float64(r.IntN(40))), Inherited: wall(-float64(r.IntN(60)))},
		Sent:      election.Sent{Final: r.IntN(4) > 0},
		LeaseLost: r.IntN(4) == 0, Highest: int64(18 + r.IntN(4)), LargestDuration: time.Duration(15*(1+r.IntN(4))) * second,
		OtherHub: r.IntN(10) == 0, MostUnreachable: r.IntN(4) == 0, Paced: r.IntN(4) == 0,
		Frozen: r.IntN(4) == 0,
	}
	if r.IntN(2) == 0 {
		s.Sent.Until, s.Sent.BootUntil = wall(float64(r.IntN(20))), boot(float64(r.IntN(20)))
	}
	if r.IntN(10) > 0 {
		phases := []election.RecordState{election.Vacant, election.Leading, election.Ending, election.Retired}
		whys := []reason.Reason{reason.Unreachable, reason.Drained, reason.LeaseLost, reason.PolicyGone}
		s.Record = record(phases[r.IntN(4)], names[r.IntN(3)], because(whys[r.IntN(4)]),
			lasting(time.Duration(15*(1+r.IntN(4)))*second))
		if r.IntN(3) == 0 {
			revoked(&s.Record)
			s.Released = r.IntN(2) == 0
		}
	}
	if r.IntN(4) == 0 {
		s.Found = foundIn(names[r.IntN(3)], int64(19+r.IntN(3)), float64(r.IntN(20)-18))
	}
	var cs []election.Candidate
	for _, name := range names {
		if r.IntN(6) == 0 {
			continue
		}
		cs = append(cs, election.Candidate{
			Name: name, Priority: int32(50 * r.IntN(3)), Fitness: election.Fitness(r.IntN(4)),
			Reason:    []reason.Reason{reason.Unreachable, reason.Deleting, reason.Unguarded}[r.IntN(3)],
			Answering: r.IntN(2) == 0, Prepared: r.IntN(2) == 0, Refused: r.IntN(4) == 0,
			Drained: r.IntN(4) == 0, Required: election.Required(r.IntN(4)),
		})
	}
	return s, cs
}

// Equal inputs give equal decisions, in whatever order the candidates come, and no argument is changed.
func TestNextIsPure(t *testing.T) {
	for seed := range uint64(20000) {
		r := rand.New(rand.NewPCG(seed, 0))
		s, cs := anyState(r)
		p := policy(duration(time.Duration(15*(1+r.IntN(3)))*second), func(p *election.Policy) {
			p.FailOverWhenMostUnreachable, p.Acknowledged = r.IntN(2) == 0, r.IntN(2) == 0
		})
		given, among, asked := s, slices.Clone(cs), *p
		given.Record.Observed = maps.Clone(s.Record.Observed)
		if s.Found != nil {
			copied := *s.Found
			given.Found = &copied
		}
		if r.IntN(10) == 0 {
			p = nil
		}
		first := election.Next(at(0), p, s, cs)
		if !reflect.DeepEqual(s, given) || !slices.Equal(cs, among) || p != nil && !reflect.DeepEqual(*p, asked) {
			t.Fatalf("seed %d: an argument was changed", seed)
		}
		slices.Reverse(cs)
		if second := election.Next(at(0), p, s, cs); !reflect.DeepEqual(first, second) {
			t.Fatalf("seed %d: equal inputs, two decisions:\n%+v\n%+v", seed, first, second)
		}
		sane(t, seed, s, cs, first)
	}
}

// sane checks what holds of every decision.
func sane(t *testing.T, seed uint64, s election.State, cs []election.Candidate, d election.Decision) {
	t.Helper()
	fail := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("seed %d: %s\nstate %+v\ndecision %+v", seed, fmt.Sprintf(format, args...), s, d)
	}
	grants := d.Record.State == election.Leading && d.Record.Epoch != s.Record.Epoch && d.Record.Reason != reason.Adopted
	switch {
	case d.Record.Epoch < s.Record.Epoch:
		fail("the epoch falls")
	case grants && d.Record.Epoch <= max(s.Record.Epoch, s.Highest):
		fail("a grant in an epoch that was there before")
	case grants && d.Record.Leader != s.Record.Leader && slices.ContainsFunc(cs, func(c election.Candidate) bool {
		return c.Name == d.Record.Leader && c.Drained
	}):
		fail("a grant to a drained cluster")
	case grants && s.Frozen && s.Record.State != election.Vacant && s.Record.Leader != "" &&
		d.Record.Leader != s.Record.Leader:
		fail("a grant to another cluster where that is frozen")
	case s.Paced && d.Planned:
		fail("a planned change that has to wait begins")
	case grants && !s.Sent.Final:
		fail("a grant before renewals stopped")
	case d.StopRenewing && s.Sent.Final:
		fail("it stops renewals that have stopped")
	case (d.StopRenewing || d.Gone) && (d.Persist || !reflect.DeepEqual(d.Record, s.Record)):
		fail("the record changes where renewals must stop first, or it is deleted")
	case !d.Persist && !d.Gone && !reflect.DeepEqual(d.Record, s.Record):
		fail("the record differs, but is not to be persisted")
	case d.Record.State == election.Leading && s.Record.State != election.Vacant && d.Record.Epoch == s.Record.Epoch &&
		d.Record.Leader != s.Record.Leader &&
		!s.Moved:
		fail("another leader in the same epoch")
	case d.After < 0 || d.After > 3*time.Minute:
		fail("decided again after %v", d.After)
	case d.Waiting == reason.WaitingForExpiry && d.After == 0 || d.Waiting == reason.WaitingForClusters &&
		d.Record.State == election.Vacant && d.After == 0:
		fail("time alone ends this wait, but it is not decided again")
	}
}
