package controller

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// namespaceState is what this tenure remembers of one namespace that has a record. Decisions on a namespace run one
// after the other, and own the state. Other goroutines touch only versions, which has its own lock, and claim,
// which the controller's lock guards.
type namespaceState struct {
	granted int64 // the last epoch that this tenure granted
	adopted int64 // the last epoch that it adopted from a Lease
	highest int64 // the highest epoch that it saw in the record

	// known is the record as this tenure last read or wrote it. If it is nil, the next look accepts what it finds.
	known *v1alpha1.NamespaceLeader
	// current: no other client's write was seen since known was read live or written.
	current bool
	// unanswered are the writes of the record that got no answer.
	unanswered []v1alpha1.NamespaceLeaderSpec
	versions   versions
	// written is the boot reading of this tenure's last write of the record. changes are its writes since the
	// status was written, newest first.
	written time.Duration
	changes []v1alpha1.Change
	untold  []pendingEvent // events since then that are not recorded yet

	claim claim
	// otherHub is the time until which another hub can have written: it was seen to own the record, or to lead by
	// its Leases. otherSeen: the last look saw it. otherBounds are the largest D and ε of its Leases.
	otherHub    time.Time
	otherSeen   bool
	otherBounds seal.Bounds
	// lost holds, for each unreachable cluster, the boot reading since when. It is kept only where the policy
	// fences locks.
	lost map[string]time.Duration
}

// pendingEvent is an event about a record that is not recorded yet.
type pendingEvent struct {
	kind    string // Normal or Warning
	reason  reason.Reason
	message string
}

// namespace returns the state of a namespace, and creates it if necessary.
func (c *Controller) namespace(key types.NamespacedName) *namespaceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.namespaces[key]
	if s == nil {
		s = &namespaceState{}
		c.namespaces[key] = s
	}
	return s
}

// recall returns the state of a namespace for reading. Most namespaces of a member are unowned, and have none.
func (c *Controller) recall(key types.NamespacedName) *namespaceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.namespaces[key]; s != nil {
		return s
	}
	return &namespaceState{}
}

// recordShown takes a version of a record from a watch; an empty version means that the record was deleted. It
// returns false for a version that this tenure has read or written.
func (c *Controller) recordShown(key types.NamespacedName, version string) (news bool) {
	c.mu.Lock()
	s := c.namespaces[key]
	c.mu.Unlock()
	return s == nil || !s.versions.show(version)
}

// mostVersions is how many versions of a record a tenure remembers. A version that is forgotten too early costs a
// read.
const mostVersions = 16

// versions separates the writes of this tenure from others', by the versions that a watch of one record shows. A
// watch shows versions in order, so one from before the last one shown comes from a restored backup. It is safe for
// concurrent use.
type versions struct {
	mu sync.Mutex
	// known are the versions that this tenure has read or written, oldest first, from the last one that the watch
	// has shown.
	known []string
	// others are versions that the watch has shown before they were known: an answer may be slower than the watch.
	others []string
}

// note records a version that this tenure has read or written.
func (v *versions) note(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = append(v.known, version)
	v.known = v.known[max(0, len(v.known)-mostVersions):]
}

// show records a version from the watch, and reports whether this tenure knows it.
func (v *versions) show(version string) (known bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pass(version) {
		return true
	}
	v.others = append(v.others, version)
	v.others = v.others[max(0, len(v.others)-mostVersions):]
	return false
}

// foreign reports whether the watch has shown another client's write since the last call.
func (v *versions) foreign() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := slices.ContainsFunc(v.others, func(version string) bool { return !v.pass(version) })
	v.others = nil
	return found
}

// pass reports whether a version is known, and drops the known versions before it. The caller holds mu.
func (v *versions) pass(version string) bool {
	i := slices.Index(v.known, version)
	if i < 0 {
		return false
	}
	v.known = v.known[i:]
	return true
}
