package election_test

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
	"github.com/leasecast/leasecast/hub/election"
)

// Rules 6, 8 and 11: a record that came from another hub is led by its Leases, and nothing else is done
// before they are taken.
func TestMoved(t *testing.T) {
	east, west := fit("east", 100), fit("west", 50)
	among := []election.Candidate{paused("east", 100), paused("west", 50)}
	state := func(r election.Record, s *election.FoundTerm, changes ...func(*election.State)) election.State {
		state := election.State{
			Record: r, Tenure: settled(), Sent: closed(), Found: s, Highest: 30, LargestDuration: 60 * second, Moved: true,
		}
		for _, change := range changes {
			change(&state)
		}
		return state
	}
	lost := func(s *election.State) { s.LeaseLost = true }
	otherHub := func(s *election.State) { s.OtherHub = true }
	opened := func(s *election.State) { s.Sent.Final = false }
	adopted := record(election.Leading, "west", because(reason.Adopted))
	untaken := record(election.Vacant, "", because(reason.Moved), lasting(60*second), raisedTo(30))
	untaken.AcquireTime = time.Time{}
	decide(t, map[string]decision{
		"the Lease that the other hub has let go of is the standing term, paused or not": {
			now: at(2), state: state(election.Record{}, standing("west", 30, -1)), among: among, want: "Leading west 30 Adopted waiting Moved persist",
		},
		"also where it has not let go of all others yet": {
			now: at(2), state: state(election.Record{}, standing("west", 30, -1), otherHub), among: among, want: "Leading west 30 Adopted waiting Moved persist",
		},
		"also where the record came along and says that nobody leads": {
			now: at(2), state: state(record(election.Retired, "west", raisedTo(30)), standing("west", 30, -1)), among: among, want: "Leading west 30 Adopted waiting Moved persist",
		},
		"while its hub marks a Lease, nothing is done": {
			now: at(2), state: state(election.Record{}, nil, otherHub), among: among, want: "lost waiting OtherHub",
		},
		"a leader whose Lease is not taken is not deposed: not for another's priority": {
			now: at(200), state: state(adopted, nil), among: []election.Candidate{fit("east", 200), west}, want: "Leading west 20 Adopted waiting Moved",
		},
		"nor because it cannot be reached, however long": {
			now: at(200), state: state(adopted, nil), among: []election.Candidate{east, unfit("west", 50, reason.Unreachable)}, want: "Leading west 20 Adopted waiting Moved",
		},
		"nor because its Cluster is gone": {
			now: at(200), state: state(adopted, nil), among: []election.Candidate{east}, want: "Leading west 20 Adopted waiting Moved",
		},
		"once its Lease has lapsed, all Leases are to be taken": {
			now: at(2), state: state(adopted, standing("west", 30, -15), lost), among: []election.Candidate{east, west}, want: "Vacant nobody 30 Moved waiting Moved persist",
		},
		"but first the source of renewTimes is closed": {
			now: at(2), state: state(adopted, nil, lost, opened), among: []election.Candidate{east, west}, want: "close",
		},
		"where nothing stands, all Leases are to be taken": {
			now: at(2), state: state(election.Record{}, nil), among: []election.Candidate{east, west}, want: "Vacant nobody 30 Moved waiting Moved persist",
		},
		"but not before every cluster was read": {
			now: at(200), state: state(election.Record{}, nil), among: []election.Candidate{east, unknown("west", 50)}, want: "lost waiting WaitingForClusters",
		},
		"until then nobody is granted anything": {
			now: at(200), state: state(untaken, nil), among: []election.Candidate{east, west}, want: "Vacant nobody 30 Moved waiting Moved",
		},
		"a Lease that stands is found even then": {
			now: at(2), state: state(untaken, standing("west", 30, -1)), among: []election.Candidate{east, west}, want: "Leading west 30 Adopted next east waiting Moved persist",
		},
	})
}

func raisedTo(epoch int64) func(*election.Record) {
	return func(r *election.Record) { r.Epoch = epoch }
}

// What another hub can have sent under the largest D ever bounds the first grant after the Leases were taken.
func TestWhatIsTakenKeepsTheLongestD(t *testing.T) {
	s := election.State{Tenure: settled(), Sent: closed(), Highest: 30, LargestDuration: 60 * second, Moved: true}
	d := election.Next(at(2), policy(), s, []election.Candidate{fit("east", 100)})
	if d.Record.Duration != 60*second {
		t.Errorf("%s with D %v, want 1m0s", say(d), d.Record.Duration)
	}
	for _, cluster := range []string{"east", "west"} {
		a := election.Assign(d.Record, "fleet", cluster, 15*second, false)
		if a.Role != assign.Follow || a.Term.Holder != "" || a.Term.Epoch != 30 {
			t.Errorf("the Lease in %s is to be %+v, want one that names nobody in epoch 30", cluster, a)
		}
	}
}
