package lease

import (
	"slices"
	"time"
)

// Registration is the record of one process that reads Leases, in its own member. After it has revoked a term, a hub
// need not wait until the term has run out. It suffices that all readers that registered for the namespace before the
// revocation have released the term.
//
// A process registers before it trusts any Lease, and lists all Leases consistently after that. So either the hub finds
// the registration, or the reader finds the revocation.
type Registration struct {
	// Identity is new at every start of a process, and after a registration was lost. A new identity has released nothing
	// of what an older one may still be doing.
	Identity string
	// Namespaces are the namespaces in which the reader may act, in ascending order. Nil means all.
	Namespaces []string
	// Confirmed is the reader's wall clock, read before the request that carried it.
	Confirmed time.Time
	// Duration is how long after Confirmed the reader stops acting, by its own two clocks, unless it has confirmed again.
	// Whole seconds, from 1 s to MaxRegistration.
	Duration time.Duration
	// Released holds namespace → epoch: nothing of this epoch or below is under way in this process, and nothing will
	// begin. It counts only for namespaces that the reader follows.
	Released map[string]int64
	// Account is the username that may write the registration, besides the hub.
	Account string
}

// MaxRegistration is the longest Duration of a registration. The registration of a process that died is kept for that
// long, and so is its namespace.
const MaxRegistration = time.Hour

// Follows reports whether the reader may act in the namespace.
func (r Registration) Follows(namespace string) bool {
	return len(r.Namespaces) == 0 || slices.Contains(r.Namespaces, namespace)
}

// Until is the instant, by the reader's wall clock, at which the reader stops acting unless it has confirmed again.
func (r Registration) Until() time.Time { return r.Confirmed.Add(r.Duration) }

// Permit is what this confirmation permits: nothing from Until on, and nothing once Duration has passed on the clock
// that counts in suspend. The argument sent is the reading that Confirmed was taken from, before the request. A
// registered reader acts while this Permit and its Lease's both hold.
func (r Registration) Permit(sent Reading) Permit {
	return Permit{wall: r.Until(), boot: sent.Boot + r.Duration}
}
