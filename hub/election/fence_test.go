package election_test

import (
	"testing"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// accepted is a record whose hub has accepted, after 2 s, that the leader's cluster is off.
func accepted(r *election.Record) { r.Fence = election.Acceptance{UID: "uid of east", At: wall(2)} }

func voided(r *election.Record) { r.Fence.Voided = true }

// Rule 25: an operator declares that a cluster is off. Its term is over once the record says so.
func TestFencedCluster(t *testing.T) {
	const begins = "Ending east 20 Fenced next west after 11s persist"
	const accepts = "Ending east 20 Fenced next west after 100ms persist"
	const waits = "Ending east 20 Fenced next west waiting WaitingForExpiry after 12s"
	fenced := func(changes ...func(*election.Record)) election.State {
		return ending(reason.Fenced, recorded(changes...))
	}
	const both, prepared = "east 100 fenced, west 50", "east 100 fenced, west 50 prepared"
	rows := map[string]decision{
		"the leader is: its term ends": {now: at(5), state: leading(), among: both,
			want: begins},
		"the leader is, while the namespace is frozen: its term ends": {now: at(5), state: leading(frozen), among: both,
			want: begins},
		"its term ends: the record accepts that": {now: at(4), state: fenced(), among: prepared,
			want: accepts},
		"its term ends, but it has answered a moment ago: waits for r + τ": {now: at(4), state: fenced(),
			among: "east 100 fenced answered, west 50 prepared",
			want:  "Ending east 20 Fenced next west waiting WaitingForExpiry after 7s"},
		"accepted, and the successor is prepared: granted": {now: at(4), state: fenced(accepted), among: prepared,
			want: "Leading west 21 HandedOver persist"},
		"accepted by an earlier tenure, and this one has just started: waits for an answer": {now: at(4),
			state: ending(reason.Fenced, recorded(accepted), during(inheriting(3)), having(nothing())), among: prepared,
			want: "Ending east 20 Fenced next west waiting WaitingForExpiry after 4s persist"},
		"accepted, and nobody may follow: waits": {now: at(4), state: fenced(accepted),
			among: "east 100 fenced, west 50 Unreachable",
			want:  "Ending east 20 Fenced next west waiting NoCandidate after 12s"},
		"accepted, and it has answered since: voided": {now: at(4), state: fenced(accepted),
			among: "east 100 fenced answered, west 50 prepared", want: accepts},
		"voided: waits": {now: at(4), state: fenced(accepted, voided), among: prepared, want: waits},
		"accepted, then taken back: the record forgets it": {now: at(4), state: fenced(accepted),
			among: "east 100 Unreachable, west 50 prepared", want: accepts},
		"accepted, and a newer term was seen: waits": {now: at(4),
			state: ending(reason.Fenced, recorded(accepted), seen(30)), among: prepared,
			want: "Ending east 20 Fenced next west waiting WaitingForExpiry after 12s"},
		"not accepted, and a newer term was seen: waits": {now: at(4), state: ending(reason.Fenced, seen(30)),
			among: prepared,
			want:  "Ending east 20 Fenced next west waiting WaitingForExpiry after 12s"},
	}
	decide(t, rows)
	for name, test := range map[string]struct {
		state election.State
		among string
		want  election.Acceptance
	}{
		"accepted": {fenced(), prepared, election.Acceptance{UID: "uid of east", At: wall(4)}},
		"voided": {fenced(accepted), "east 100 fenced answered, west 50", election.Acceptance{UID: "uid of east",
			At: wall(2), Voided: true}},
		"taken back": {fenced(accepted), "east 100 Unreachable, west 50", election.Acceptance{}},
	} {
		if got := election.Next(at(4), policy(), test.state, among(test.among)).Record.Fence; got != test.want {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
