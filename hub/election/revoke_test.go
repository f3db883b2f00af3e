package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
)

func acknowledging(p *election.Policy) { p.Acknowledged = true }

func revoking(r *election.Record) { r.Revoked, r.Epoch = r.Epoch, r.Epoch+1 }

// A planned change: west was raised above east, which answers and whose last renewTime is of second 0.
func TestRevocation(t *testing.T) {
	ack := policy(acknowledging)
	holder, next := fit("east", 100), prepared(fit("west", 200))
	draining := func(changes ...func(*election.Record)) election.Record {
		return record(election.Draining, "east", append(changes, because(reason.PriorityChanged), followedBy("west"), notBefore(16))...)
	}
	state := func(r election.Record, changes ...func(*election.State)) election.State {
		s := election.State{Record: r, Tenure: settled(), Sent: sent(0)}
		for _, change := range changes {
			change(&s)
		}
		return s
	}
	released := func(s *election.State) { s.Released = true }
	inTenure := func(tn election.Tenure) func(*election.State) {
		return func(s *election.State) { s.Tenure = tn }
	}
	const (
		waits   = "Draining east 20 PriorityChanged next west waiting WaitingForExpiry after 14s"
		revokes = "Draining east 21 PriorityChanged next west waiting WaitingForReaders after 14s persist"
		asks    = "Draining east 21 PriorityChanged next west waiting WaitingForReaders after 14s"
		granted = "Leading west 22 HandedOver next east persist"
	)
	gone := holder
	gone.Answering = false
	decide(t, map[string]decision{
		"the drain is recorded first, in the epoch of the leader": {
			now: at(2), policy: ack, among: []election.Candidate{holder, next},
			state: state(record(election.Leading, "east")),
			want:  "Draining east 20 PriorityChanged next west after 14s persist",
		},
		"then the leader is told to stop, in an epoch of its own": {
			now: at(2), policy: ack, state: state(draining()), among: []election.Candidate{holder, next}, want: revokes,
		},
		"not where readers need not register": {
			now: at(2), state: state(draining()), among: []election.Candidate{holder, next}, want: waits,
		},
		"not before the successor has shown that it can be written": {
			now: at(2), policy: ack, state: state(draining()), among: []election.Candidate{holder, fit("west", 200)}, want: waits,
		},
		"not where the leader's cluster does not answer": {
			now: at(2), policy: ack, state: state(draining()), among: []election.Candidate{gone, next}, want: waits,
		},
		"not where no Lease of the leader can be live": {
			now: at(15), policy: ack, state: state(draining()), among: []election.Candidate{holder, next},
			want: "Draining east 20 PriorityChanged next west waiting WaitingForExpiry after 1s",
		},
		"not where the leader is to lead again": {
			now: at(2), policy: ack, state: state(draining(because(reason.LeaseLost), followedBy("east")), func(s *election.State) { s.LeaseLost = true }),
			among: []election.Candidate{holder, prepared(fit("west", 50))},
			want:  "Draining east 20 PriorityChanged next east waiting WaitingForExpiry after 14s persist",
		},
		"not while an earlier tenure may have promised something": {
			now: at(2), policy: ack, state: state(draining(), inTenure(young())), among: []election.Candidate{holder, next}, want: waits,
		},
		"not where Leases show a newer term than the record": {
			now: at(2), policy: ack, state: state(draining(), func(s *election.State) { s.Highest = 21 }), among: []election.Candidate{holder, next}, want: waits,
		},
		"a term that was revoked is not revoked again": {
			now: at(2), policy: ack, state: state(draining(revoking)), among: []election.Candidate{holder, next}, want: asks,
		},
		"the next term begins when all readers have released": {
			now: at(2), policy: ack, state: state(draining(revoking), released), among: []election.Candidate{holder, next}, want: granted,
		},
		"a release covers no lock that was fenced": {
			now: at(2), policy: ack, state: state(draining(revoking), released, func(s *election.State) { s.Sent = stopping(17*second, s.Sent) }),
			among: []election.Candidate{holder, next}, want: "Draining east 21 PriorityChanged next west waiting WaitingForReaders after 16s persist",
		},
		"nor is a term revoked under which locks were fenced": {
			now: at(2), policy: ack, state: state(draining(), func(s *election.State) { s.Sent = stopping(17*second, s.Sent) }),
			among: []election.Candidate{holder, next}, want: "Draining east 20 PriorityChanged next west waiting WaitingForExpiry after 16s persist",
		},
		"a release without a revocation grants nothing": {
			now: at(2), policy: ack, state: state(draining(), released), among: []election.Candidate{gone, next}, want: waits,
		},
		"nor does one where readers need not register": {
			now: at(2), state: state(draining(revoking), released), among: []election.Candidate{holder, next}, want: asks,
		},
		"nor does one while an earlier tenure may have promised something": {
			now: at(2), policy: ack, state: state(draining(revoking), released, inTenure(young())), among: []election.Candidate{holder, next}, want: asks,
		},
		"a successor that was not written since waits": {
			now: at(2), policy: ack, state: state(draining(revoking), released), among: []election.Candidate{holder, fit("west", 200)}, want: asks,
		},
		"without a release it begins at the bound": {
			now: at(16), policy: ack, state: state(draining(revoking)), among: []election.Candidate{holder, next}, want: granted,
		},
		"a successor that was not written until then is written in the epoch of the revocation": {
			now: at(16), policy: ack, state: state(draining(revoking)), among: []election.Candidate{holder, fit("west", 200)},
			want: "Draining east 21 PriorityChanged next west waiting WaitingForClusters persist",
		},
		"and not before": {
			now: at(15.999), policy: ack, state: state(draining(revoking)), among: []election.Candidate{holder, next},
			want: "Draining east 21 PriorityChanged next west waiting WaitingForReaders after 1ms",
		},
		"a drain is taken back before the revocation": {
			now: at(2), policy: ack, state: state(draining()), among: []election.Candidate{holder, prepared(fit("west", 50))},
			want: "Leading east 20 Resumed next west persist",
		},
		"and never after it: the leader leads again in a new term, at the bound": {
			now: at(2), policy: ack, state: state(draining(revoking)), among: []election.Candidate{holder, prepared(fit("west", 50))},
			want: "Draining east 21 PriorityChanged next east waiting WaitingForReaders after 14s persist",
		},
		"or when all have released": {
			now: at(2), policy: ack, state: state(draining(revoking), released), among: []election.Candidate{holder, prepared(fit("west", 50))},
			want: "Leading east 22 NewTerm next west persist",
		},
		"where nobody may lead any more the epoch of the revocation stays": {
			now: at(16), policy: ack, state: state(draining(revoking)), among: []election.Candidate{unfit("east", 100, reason.Deleting)},
			want: "Vacant nobody 21 NoCandidate waiting NoCandidate persist",
		},
	})
}

// What each Lease has to be while a term is being revoked.
func TestAssignRevocation(t *testing.T) {
	const d = 15 * second
	r := record(election.Draining, "east", followedBy("west"), revoking)
	led := lease.Term{Holder: "east.fleet", Epoch: epoch, AcquireTime: wall(-400), Duration: d}
	nobody := lease.Term{Epoch: epoch + 1, AcquireTime: wall(-400), Duration: d}
	edited := r
	edited.State = election.Leading
	for name, test := range map[string]struct {
		record  election.Record
		cluster string
		want    assign.Assignment
	}{
		"the leader's live Lease gives way to nobody": {r, "east", assign.Assignment{Role: assign.Revoke, Term: nobody, Revoked: led}},
		"its successor's stays as it was prepared":    {r, "west", assign.Assignment{Role: assign.Follow, Term: led, MinRenewTime: wall(0)}},
		"the others stay as they are":                 {r, "south", assign.Assignment{Role: assign.Follow, Term: led}},
		"an edit to the record brings no revoked term back": {edited, "east", assign.Assignment{
			Role: assign.Lead, Term: lease.Term{Holder: "east.fleet", Epoch: epoch + 1, AcquireTime: wall(-400), Duration: d},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := election.Assign(test.record, "fleet", test.cluster, d, false); got != test.want {
				t.Errorf("\n got %+v\nwant %+v", got, test.want)
			}
		})
	}
}
