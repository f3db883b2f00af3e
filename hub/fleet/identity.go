package fleet

import (
	"cmp"
	"fmt"
	"time"
)

// identity is the outcome of a contact: whether the cluster behind the kubeconfig is the one that the name
// means.
type identity int

const (
	// same: the pinned cluster, or the one that is known and not pinned yet, or the first.
	same identity = iota
	// other: not the pinned cluster.
	other
	// rebuilt: not the cluster that was known. Its pin was removed, to say that this is right.
	rebuilt
)

// identityOf compares the UID found with the one pinned on the Cluster and the one known from earlier
// contact. Both may be empty.
func identityOf(pin, known, found string) identity {
	switch {
	case pin != "" && found != pin:
		return other
	case known != "" && found != known:
		return rebuilt
	default:
		return same
	}
}

// wrongCluster explains [other] to people.
func wrongCluster(pin, found string) string {
	return fmt.Sprintf("the kubeconfig leads to the cluster %s, but this Cluster is pinned to %s; "+
		"correct the kubeconfig, or remove the annotation if the cluster was rebuilt", found, pin)
}

// uidOwner is a member that leads to the cluster with a UID, as contact or the hub's own pin proves. An annotation
// alone proves nothing: whoever owns a Cluster could write the UID of any other one there. Its uid is empty then.
type uidOwner struct {
	key Key
	uid string
	// proved: the hub's own pin shows it. pinned: contact does, and there is a pin, or nobody had the UID then.
	proved, pinned bool
	created        time.Time
}

// compareOwners orders members with one UID, the rightful one first: the one that the hub has pinned, because it may
// have been written to, then the older Cluster, then by name.
func compareOwners(a, b uidOwner) int {
	return cmp.Or(
		first(a.proved, b.proved),
		first(a.pinned, b.pinned),
		a.created.Compare(b.created),
		cmp.Compare(a.key.Fleet, b.key.Fleet),
		cmp.Compare(a.key.Name, b.key.Name),
	)
}

// first puts what holds before what does not.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// owners finds the rightful owner of each UID. Nobody owns the empty one.
func owners(members []uidOwner) map[string]Key {
	rightful := map[string]uidOwner{}
	for _, c := range members {
		if best, ok := rightful[c.uid]; c.uid != "" && (!ok || compareOwners(c, best) < 0) {
			rightful[c.uid] = c
		}
	}
	keys := make(map[string]Key, len(rightful))
	for uid, c := range rightful {
		keys[uid] = c.key
	}
	return keys
}
