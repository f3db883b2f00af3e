package lease

import "time"

// Role is what the Lease in one member is for.
type Role int

const (
	// Hold: leave what is there as it is, and promise nothing.
	Hold Role = iota
	// Absent: there must be no Lease.
	Absent
	// Follow: the Lease names another cluster, or nobody. It is written on change only: a Lease that does not
	// name its own cluster cannot become dangerous by ageing.
	Follow
	// Lead: the Lease names this member and is renewed.
	Lead
	// Revoke: the live Lease of a term that is to end at once is replaced by one that names nobody. Any other
	// Lease is left as it is.
	Revoke
)

// Assignment is what the Lease of one namespace in one member has to say, by the persisted record.
type Assignment struct {
	Role Role
	// Term is what the Lease says, without its renewTime.
	Term Term
	// Revoked is the term that Revoke ends.
	Revoked Term
	// First allows to write the first Lease of the term. Only the tenure that persisted the grant may do so.
	// Any other tenure finds a live Lease, or needs a new term.
	First bool
	// MinRenewTime asks for a follower's Lease with this renewTime or a later one: the proof that a successor
	// can be written.
	MinRenewTime time.Time
	// OpenLocks is what a leader's Lease says in Content.OpenLocks.
	OpenLocks string
}
