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

// namespaceState is what this tenure remembers of one namespace that has a record. Decisions on a namespace follow one
// another, and own it. Other goroutines touch versions, which has a lock of its own, and claim, which the controller's
// lock guards.
type namespaceState struct {
	granted int64 // the last epoch that this tenure granted
	adopted int64 // the last epoch that it took over from a Lease
	highest int64 // the highest epoch that it saw in the record

	// known is the record as this tenure read or wrote it last. Nil: what the next look finds is taken as it is.
	known *v1alpha1.NamespaceLeader
	// current says that no write of somebody else has been seen since known was read live, or written.
	current bool
	// unanswered are the writes that got no answer.
	unanswered []v1alpha1.NamespaceLeaderSpec
	versions   versions
	// written is when this tenure wrote the record last, by the boot clock; changes are what it wrote since the status
	// was written, newest first.
	written time.Duration
	changes []v1alpha1.Change
	untold  []pendingEvent // what happened since then

	claim claim
	// otherHub is until when another hub can have written: it was seen to own the record, or to lead by its Leases.
	// otherSeen says that the last look saw it, and otherBounds are the largest D and ε of those Leases.
	otherHub    time.Time
	otherSeen   bool
	otherBounds seal.Bounds
	// lost are the boot readings since when clusters cannot be reached, where the policy fences locks.
	lost map[string]time.Duration
}

// pendingEvent is an event about a record that is not recorded yet.
type pendingEvent struct {
	kind    string // Normal or Warning
	reason  reason.Reason
	message string
}

// namespace returns the state of a namespace, and makes it where there is none.
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

// recall returns the state of a namespace to be read. Most namespaces of a member are nobody's, and have none.
func (c *Controller) recall(key types.NamespacedName) *namespaceState {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.namespaces[key]; s != nil {
		return s
	}
	return &namespaceState{}
}

// recordShown takes a version of a record from a watch; an empty one says that the record was deleted. It reports
// whether that is news: a write of this tenure that was answered is none.
func (c *Controller) recordShown(key types.NamespacedName, version string) (news bool) {
	c.mu.Lock()
	s := c.namespaces[key]
	c.mu.Unlock()
	return s == nil || !s.versions.show(version)
}

// mostVersions is how many versions of a record a tenure remembers. One that it forgot too early costs a read.
const mostVersions = 16

// versions tells the writes of this tenure from those of others, by the versions that a watch of one record shows. A
// watch shows them in order, so that one from before the last one shown is from a restored backup. It is safe for
// concurrent use.
type versions struct {
	mu sync.Mutex
	// known are those that this tenure has read or written, oldest first, from the last one on that the watch has shown.
	known []string
	// others are those that the watch has shown and that were not known then: an answer may be slower than the watch.
	others []string
}

// note takes a version that this tenure has read or written.
func (v *versions) note(version string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.known = append(v.known, version)
	v.known = v.known[max(0, len(v.known)-mostVersions):]
}

// show takes a version from the watch, and reports whether this tenure knows it.
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

// foreign reports whether the watch has shown a write of somebody else since it was asked last.
func (v *versions) foreign() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := slices.ContainsFunc(v.others, func(version string) bool { return !v.pass(version) })
	v.others = nil
	return found
}

// pass reports whether a version is known, and drops what the watch shows no more. The caller holds mu.
func (v *versions) pass(version string) bool {
	i := slices.Index(v.known, version)
	if i < 0 {
		return false
	}
	v.known = v.known[i:]
	return true
}
