package ledger

import (
	"slices"
	"sync"
)

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
