package lease

import "time"

// Role is what the copy in one member has to be.
type Role int

const (
	// Hold: leave what is there as it is, and draw no stamp.
	Hold Role = iota
	// Absent: there must be no copy.
	Absent
	// Follow: the copy names somebody else, or nobody. Written on change only: a copy
	// that says "it is not you" cannot become dangerous by ageing.
	Follow
	// Lead: the copy names this member and is renewed.
	Lead
	// Revoke: the live copy of a term that is to end at once gives way to one that names
	// nobody. Any other copy is left as it is.
	Revoke
)

// Assignment is what the copy of one namespace in one member has to be, by the
// persisted record.
type Assignment struct {
	Role Role
	// Term is what the copy says, but for the stamp.
	Term Term
	// Revoked is the term that Revoke ends.
	Revoked Term
	// First says that the first copy of the term may be written. Only the tenure that
	// persisted the grant may do so: any other finds a copy that stands, or needs a new
	// term.
	First bool
	// MinRenewTime asks for a follower's copy that was stamped no earlier: the proof that a
	// successor can be written.
	MinRenewTime time.Time
}
