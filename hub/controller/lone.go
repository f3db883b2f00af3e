package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/explain"
	"github.com/leasecast/leasecast/hub/fairqueue"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/ledger"
)

// A namespace is lone under a policy if the policy selects it by its labels and it matches in one member only.
// Whoever may label namespaces in one member can create any number of them. So a policy manages a bounded number:
// those that have a record, then the oldest.

const (
	// maxLone is how many lone namespaces a policy manages.
	maxLone = 500
	// countAgain is how long a count that leaves no room stays valid.
	countAgain = 10 * time.Second
)

// loneSet holds the lone namespaces of one version of a policy. The lock of loneNamespaces guards it.
type loneSet struct {
	uid        types.UID // of the policy
	generation int64
	counted    time.Duration     // boot reading
	kept       map[string]string // the member of each managed one; empty: it matches in none now
	left       map[string]int    // by member, how many were not managed at the last count
	crowded    bool              // some are left out
}

// loneNamespaces counts the lone namespaces of policies.
type loneNamespaces struct {
	*hub
	members *members

	mu sync.Mutex
	of map[types.NamespacedName]*loneSet // by policy, since a namespace of it was first counted
}

// place is where the labels of a namespace match.
type place struct {
	member  string // one of them
	members int
	created time.Time // in that member
}

// memberNamespaces are the namespaces that one member shows.
type memberNamespaces struct {
	member fleet.Member
	items  []corev1.Namespace
}

// namespacesIn returns the namespaces that the members of a fleet show, from caches.
func (n *loneNamespaces) namespacesIn(ctx context.Context, fleetName string) (all []memberNamespaces) {
	for _, m := range n.source.Members(fleetName) {
		all = append(all, memberNamespaces{m, n.source.namespaces(ctx, m)})
	}
	return all
}

// placesOf returns where the namespaces that a policy manages match.
func placesOf(p *decide.Policy, all []memberNamespaces) map[string]place {
	in := map[string]place{}
	for _, shown := range all {
		if !p.Includes(&decide.Member{Member: shown.member}) {
			continue
		}
		for i := range shown.items {
			if ns := &shown.items[i]; p.Matches(ns.Name, ns.Labels) {
				in[ns.Name] = place{shown.member.Name, in[ns.Name].members + 1, ns.CreationTimestamp.Time}
			}
		}
	}
	return in
}

// keeps reports whether a policy manages a namespace without a record that is lone in a member. If there is room,
// it takes a place.
func (n *loneNamespaces) keeps(ctx context.Context, p *decide.Policy, namespace, member string) bool {
	kept, stale := n.reserve(p, namespace, member)
	if stale {
		n.count(ctx, p)
		kept, _ = n.reserve(p, namespace, member)
	}
	if !kept {
		n.policyQueue.addIn(time.Second, client.ObjectKeyFromObject(p.Object)) // a condition names it
	}
	return kept
}

// reserve takes a place for a lone namespace. Without a place, stale reports whether another count may find one.
func (n *loneNamespaces) reserve(p *decide.Policy, namespace, member string) (kept, stale bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.of[client.ObjectKeyFromObject(p.Object)]
	if l == nil || l.uid != p.Object.UID || l.generation != p.Object.Generation {
		return false, true
	}
	if _, kept = l.kept[namespace]; kept || len(l.kept) < maxLone {
		l.kept[namespace] = member
		return true, false
	}
	l.crowded = true
	return false, n.isOld(l)
}

// isOld reports whether a count must be repeated. The caller holds the lock.
func (n *loneNamespaces) isOld(l *loneSet) bool { return n.Clock.Now().Boot-l.counted >= countAgain }

// count counts the lone namespaces of a policy, from caches. It returns those that the policy manages and that
// have no record.
func (n *loneNamespaces) count(ctx context.Context, p *decide.Policy) (fresh []types.NamespacedName) {
	key := client.ObjectKeyFromObject(p.Object)
	now, in := n.Clock.Now().Boot, placesOf(p, n.namespacesIn(ctx, key.Namespace))
	l := &loneSet{
		uid: p.Object.UID, generation: p.Object.Generation,
		counted: now, kept: map[string]string{}, left: map[string]int{},
	}
	for _, name := range n.recorded(ctx, key, in) {
		if in[name].members < 2 && !p.Names[name] {
			l.kept[name] = in[name].member
		}
	}
	names := slices.Collect(maps.Keys(in))
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(in[a].created.Compare(in[b].created), cmp.Compare(a, b))
	})
	for _, name := range names {
		_, kept := l.kept[name]
		switch {
		case kept || in[name].members > 1 || p.Names[name]:
		case len(l.kept) < maxLone:
			l.kept[name] = in[name].member
			fresh = append(fresh, types.NamespacedName{Namespace: key.Namespace, Name: name})
		default:
			l.left[in[name].member]++
			l.crowded = true
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.of[key] = l
	return fresh
}

// recorded returns the namespaces that a policy owns by the records, some of them repeatedly. For a lost record, a
// Lease that the hub may have written counts, if in contains its namespace.
func (n *loneNamespaces) recorded(ctx context.Context, key types.NamespacedName, in map[string]place) (names []string) {
	for _, p := range n.members.publishers(key.Namespace) {
		for _, name := range p.MayHaveWritten() {
			if _, ok := in[name]; ok {
				names = append(names, name)
			}
		}
	}
	records, err := n.ledger.Cached(ctx, key.Namespace)
	if err != nil {
		log.FromContext(ctx).Error(err, "Records could not be listed", "fleet", key.Namespace)
	}
	for i := range records {
		if o := &records[i]; o.Spec.Policy == key.Name {
			names = append(names, o.Name)
		}
	}
	n.ledger.Claims(key.Namespace, func(namespace string, of ledger.Claim) {
		if of.Owner == key.Name { // the cache may not show the record yet
			names = append(names, namespace)
		}
	})
	return names
}

// manages reports whether a policy manages a namespace that it matches in a member, from caches. It assumes that
// the namespace has no record.
func (n *loneNamespaces) manages(ctx context.Context, p *decide.Policy, namespace string, member fleet.Key) bool {
	if p.Names[namespace] {
		return true
	}
	for _, m := range n.source.Members(member.Fleet) {
		switch speaks := p.Includes(&decide.Member{Member: m}); {
		case m.Key == member && !speaks:
			return false
		case m.Key == member || !speaks:
		default:
			if ns, err := n.source.namespace(ctx, m, namespace); err == nil && p.Matches(namespace, ns.Labels) {
				return true
			}
		}
	}
	return n.keeps(ctx, p, namespace, member.Name)
}

// leavesOut reports whether a policy does not manage a namespace because it has too many lone ones.
func (n *loneNamespaces) leavesOut(ctx context.Context, v *decide.Snapshot, p *decide.Policy) bool {
	if v.Object != nil || p.Names[v.Key.Name] {
		return false // it has a record
	}
	in := ""
	for i := range v.Members {
		switch m := &v.Members[i]; {
		case !m.IsRead || m.Namespace == nil || !p.Includes(m) || !p.Matches(v.Key.Name, m.Namespace.Labels):
		case in != "":
			return false
		default:
			in = m.Name
		}
	}
	return in != "" && !n.keeps(ctx, p, v.Key.Name, in)
}

// forget forgets the lone namespaces of a deleted policy.
func (n *loneNamespaces) forget(policy types.NamespacedName) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.of, policy)
}

// laneOf returns the lane in which a request for a decision waits.
func (n *loneNamespaces) laneOf(key types.NamespacedName) (l fairqueue.Lane, recorded bool) {
	l = fairqueue.Lane{Fleet: key.Namespace}
	l.Policy, recorded = n.ledger.Owner(key)
	n.mu.Lock()
	defer n.mu.Unlock()
	if recorded {
		if of := n.of[types.NamespacedName{Namespace: key.Namespace, Name: l.Policy}]; of != nil {
			l.Member = of.kept[key.Name]
		}
		return l, true
	}
	for policy, of := range n.of {
		if member, kept := of.kept[key.Name]; kept && policy.Namespace == key.Namespace {
			return fairqueue.Lane{Fleet: key.Namespace, Policy: policy.Name, Member: member}, false
		}
	}
	return l, false
}

// allManaged returns the condition that reports how many namespaces a policy leaves out. It enqueues those that the
// policy now has room for. wait is when to check again, or zero.
func (n *loneNamespaces) allManaged(ctx context.Context, p *decide.Policy) (cond metav1.Condition, wait time.Duration) {
	n.mu.Lock()
	l := n.of[client.ObjectKeyFromObject(p.Object)]
	due := l != nil && l.crowded && (n.isOld(l) || len(l.left) == 0)
	n.mu.Unlock()
	if due {
		for _, key := range n.count(ctx, p) {
			n.recordQueue.add(key)
		}
	}
	left := n.leftOut(p)
	if left != "" {
		wait = countAgain
	}
	return explain.AllManaged(left, maxLone), wait
}

// leftOut names the members with namespaces that the policy left out at the last count, and how many.
func (n *loneNamespaces) leftOut(p *decide.Policy) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.of[client.ObjectKeyFromObject(p.Object)]
	if l == nil {
		return ""
	}
	var left []string
	for _, member := range slices.Sorted(maps.Keys(l.left)) {
		left = append(left, fmt.Sprintf("%d in %s", l.left[member], member))
	}
	return strings.Join(left, ", ")
}
