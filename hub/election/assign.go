package election

import (
	"maps"
	"time"
)

// Role is what the copy in one member has to be.
type Role int

const (
	// Hold: leave what is there as it is, and draw no stamp.
	Hold Role = iota
	// Absent: there must be no copy.
	Absent
	// Follow: the copy names somebody else, or nobody. Written on change only.
	Follow
	// Lead: the copy names this member and is renewed.
	Lead
)

// Assignment is what the copy in one member has to be.
type Assignment struct {
	Role Role
	// Leader is the cluster that the copy names, Epoch its term.
	Leader   string
	Epoch    int64
	Acquired time.Time
	Duration time.Duration
	// First says that the first copy of the term may be written. Only the tenure that
	// persisted the grant may: any other finds a copy that stands, or needs a new term.
	First bool
	// Fresh asks for a follower's copy that was stamped no earlier: the proof that a
	// successor can be written.
	Fresh time.Time
}

// Assign says what the copy in one member has to be, as a function of the persisted
// record. longest is the policy's D; mine says that this tenure persisted the grant.
func Assign(r Record, cluster string, longest time.Duration, mine bool) Assignment {
	a := Assignment{
		Role: Follow, Leader: r.Leader, Epoch: r.Epoch, Acquired: r.Acquired,
		Duration: min(longest, r.Duration),
	}
	switch r.Phase {
	case Leading:
		if cluster == r.Leader {
			a.Role, a.First = Lead, mine
		}
	case Draining:
		switch cluster {
		case r.Leader:
			a.Role = Hold // a draining record forbids renewal by every replica
		case r.Next:
			a.Fresh = r.Since
		}
	case Vacant:
		if r.Epoch == 0 {
			a.Role = Hold // never had a leader: there is nothing to say yet
		}
	case Retired:
		a.Role = Absent
	default:
		a.Role = Hold
	}
	return a
}

// same reports whether two records say the same.
func same(a, b Record) bool {
	return a.Leader == b.Leader && a.Epoch == b.Epoch && a.Phase == b.Phase && a.Reason == b.Reason &&
		a.Since.Equal(b.Since) && a.Acquired.Equal(b.Acquired) && a.Duration == b.Duration &&
		a.LeaseName == b.LeaseName && a.NotBefore.Equal(b.NotBefore) && a.Next == b.Next &&
		maps.Equal(a.Heeded, b.Heeded)
}
