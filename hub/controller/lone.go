package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
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

// lone holds the lone namespaces of one version of a policy. The controller's lock guards it.
type lone struct {
	uid        types.UID // of the policy
	generation int64
	counted    time.Duration     // boot reading
	kept       map[string]string // the member of each managed one; empty: it matches in none now
	left       map[string]int    // by member, how many were not managed at the last count
	crowded    bool              // some are left out
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
func (c *Controller) namespacesIn(ctx context.Context, fleetName string) (all []memberNamespaces) {
	for _, m := range c.source.members(fleetName) {
		if items, err := c.source.namespaces(ctx, m); err == nil { // else an event will come for each
			all = append(all, memberNamespaces{m, items})
		}
	}
	return all
}

// places returns where the namespaces that the policy manages match.
func (p *policy) places(all []memberNamespaces) map[string]place {
	in := map[string]place{}
	for _, shown := range all {
		if !p.speaksOf(&memberView{Member: shown.member}) {
			continue
		}
		for i := range shown.items {
			if ns := &shown.items[i]; p.matches(ns.Name, ns.Labels) {
				in[ns.Name] = place{shown.member.Name, in[ns.Name].members + 1, ns.CreationTimestamp.Time}
			}
		}
	}
	return in
}

// keeps reports whether a policy manages a namespace without a record that is lone in a member. If there is room,
// it takes a place.
func (c *Controller) keeps(ctx context.Context, p *policy, namespace, member string) bool {
	kept, stale := c.reserve(p, namespace, member)
	if stale {
		c.countLone(ctx, p)
		kept, _ = c.reserve(p, namespace, member)
	}
	if !kept {
		c.policies.addIn(time.Second, client.ObjectKeyFromObject(p.object)) // a condition names it
	}
	return kept
}

// reserve takes a place for a lone namespace. Without a place, stale reports whether another count may find one.
func (c *Controller) reserve(p *policy, namespace, member string) (kept, stale bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lone[client.ObjectKeyFromObject(p.object)]
	if l == nil || l.uid != p.object.UID || l.generation != p.object.Generation {
		return false, true
	}
	if _, kept = l.kept[namespace]; kept || len(l.kept) < maxLone {
		l.kept[namespace] = member
		return true, false
	}
	l.crowded = true
	return false, c.isOld(l)
}

// isOld reports whether a count must be repeated. The caller holds the lock.
func (c *Controller) isOld(l *lone) bool { return c.Clock.Now().Boot-l.counted >= countAgain }

// countLone counts the lone namespaces of a policy, from caches. It returns those that the policy manages and that
// have no record.
func (c *Controller) countLone(ctx context.Context, p *policy) (fresh []types.NamespacedName) {
	key := client.ObjectKeyFromObject(p.object)
	now, in := c.Clock.Now().Boot, p.places(c.namespacesIn(ctx, key.Namespace))
	l := &lone{
		uid: p.object.UID, generation: p.object.Generation,
		counted: now, kept: map[string]string{}, left: map[string]int{},
	}
	for name := range c.recorded(ctx, key, in) {
		if in[name].members < 2 && !p.names[name] {
			l.kept[name] = in[name].member
		}
	}
	names := slices.Collect(maps.Keys(in))
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(in[a].created.Compare(in[b].created), cmp.Compare(a, b)) })
	for _, name := range names {
		_, kept := l.kept[name]
		switch {
		case kept || in[name].members > 1 || p.names[name]:
		case len(l.kept) < maxLone:
			l.kept[name] = in[name].member
			fresh = append(fresh, types.NamespacedName{Namespace: key.Namespace, Name: name})
		default:
			l.left[in[name].member]++
			l.crowded = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lone[key] = l
	return fresh
}

// recorded returns the namespaces that a policy owns by the records. For a lost record, a Lease that the hub may
// have written counts, if in contains its namespace.
func (c *Controller) recorded(ctx context.Context, key types.NamespacedName, in map[string]place) map[string]bool {
	names := map[string]bool{}
	for _, p := range c.publishers(key.Namespace) {
		for _, name := range p.MayHaveWritten() {
			if _, ok := in[name]; ok {
				names[name] = true
			}
		}
	}
	var records v1alpha1.NamespaceLeaderList
	if err := c.client.List(ctx, &records, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Records could not be listed", "fleet", key.Namespace)
	}
	for i := range records.Items {
		if o := &records.Items[i]; o.Spec.Policy == key.Name {
			names[o.Name] = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for at, s := range c.namespaces { // the cache may not show the record yet
		if at.Namespace == key.Namespace && s.claim.owner == key.Name {
			names[at.Name] = true
		}
	}
	return names
}

// manages reports whether a policy manages a namespace that it matches in a member, from caches. It assumes that
// the namespace has no record.
func (c *Controller) manages(ctx context.Context, p *policy, namespace string, member fleet.Key) bool {
	if p.names[namespace] {
		return true
	}
	for _, m := range c.source.members(member.Fleet) {
		switch speaks := p.speaksOf(&memberView{Member: m}); {
		case m.Key == member && !speaks:
			return false
		case m.Key == member || !speaks:
		default:
			if ns, err := c.source.namespace(ctx, m, namespace); err == nil && p.matches(namespace, ns.Labels) {
				return true
			}
		}
	}
	return c.keeps(ctx, p, namespace, member.Name)
}

// leavesOut reports whether a policy does not manage a namespace because it has too many lone ones.
func (c *Controller) leavesOut(ctx context.Context, v *view, p *policy) bool {
	if v.object != nil || p.names[v.key.Name] {
		return false // it has a record
	}
	in := ""
	for i := range v.members {
		switch m := &v.members[i]; {
		case !m.isRead || m.namespace == nil || !p.speaksOf(m) || !p.matches(v.key.Name, m.namespace.Labels):
		case in != "":
			return false
		default:
			in = m.Name
		}
	}
	return in != "" && !c.keeps(ctx, p, v.key.Name, in)
}

// laneOf returns the lane in which a request for a decision waits.
func (c *Controller) laneOf(key types.NamespacedName) (l lane, recorded bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l = lane{fleet: key.Namespace}
	if l.policy, recorded = c.owners[key]; recorded {
		if of := c.lone[types.NamespacedName{Namespace: key.Namespace, Name: l.policy}]; of != nil {
			l.member = of.kept[key.Name]
		}
		return l, true
	}
	for policy, of := range c.lone {
		if member, kept := of.kept[key.Name]; kept && policy.Namespace == key.Namespace {
			return lane{key.Namespace, policy.Name, member}, false
		}
	}
	return l, false
}

// noteOwner records which policy a record names. An empty version means that the record was deleted.
func (c *Controller) noteOwner(o *v1alpha1.NamespaceLeader, version string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if key := client.ObjectKeyFromObject(o); version == "" {
		delete(c.owners, key)
	} else {
		c.owners[key] = o.Spec.Policy
	}
}

// allManaged returns the condition that reports how many namespaces a policy leaves out. It enqueues those that the
// policy now has room for. wait is when to check again, or zero.
func (c *Controller) allManaged(ctx context.Context, p *policy) (cond metav1.Condition, wait time.Duration) {
	cond = metav1.Condition{Type: v1alpha1.ConditionAllManaged, Status: metav1.ConditionTrue, Reason: string(reason.AllManaged)}
	c.mu.Lock()
	l := c.lone[client.ObjectKeyFromObject(p.object)]
	due := l != nil && l.crowded && (c.isOld(l) || len(l.left) == 0)
	c.mu.Unlock()
	if due {
		fresh := c.countLone(ctx, p)
		for _, key := range fresh {
			c.records.add(key)
		}
	}
	left := c.leftOut(p)
	if left == "" {
		return cond, 0
	}
	cond.Status, cond.Reason = metav1.ConditionFalse, string(reason.TooManyNamespaces)
	cond.Message = cut(fmt.Sprintf("the selector matches namespaces that exist in one cluster only and are not managed: %s; at most %d such "+
		"namespaces are, those with a record first, then the oldest: create them in a second cluster, name them in spec.namespaces.names, or "+
		"narrow the selector", left, maxLone), 1024)
	return cond, countAgain
}

// leftOut names the members with namespaces that the policy left out at the last count, and how many.
func (c *Controller) leftOut(p *policy) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.lone[client.ObjectKeyFromObject(p.object)]
	if l == nil {
		return ""
	}
	var left []string
	for _, member := range slices.Sorted(maps.Keys(l.left)) {
		left = append(left, fmt.Sprintf("%d in %s", l.left[member], member))
	}
	return strings.Join(left, ", ")
}
