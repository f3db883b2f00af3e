package controller

import (
	"encoding/json"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// policyNames are those of the policies that a world begins with: one for all namespaces, or one for each where locks
// are fenced.
var policyNames = [2]string{"p1", "p2"}

// homeOf are the namespaces of a policy that a world begins with.
func (w *world) homeOf(policy string) []string {
	if len(w.locks) == 0 {
		return w.spaces
	}
	i := slices.Index(policyNames[:], policy)
	return w.spaces[i : i+1]
}

// firstPolicies are those that a world begins with.
func (w *world) firstPolicies() (ps []*v1alpha1.LeadershipPolicy) {
	names := policyNames[:1]
	if len(w.locks) > 0 {
		names = policyNames[:len(w.spaces)]
	}
	for _, name := range names {
		w.made++
		ps = append(ps, w.newPolicy(name, w.made, w.homeOf(name), pick(w.rng, w.durations), ""))
	}
	return ps
}

// policy returns the one of a name, or nil.
func (w *world) policy(name string) *v1alpha1.LeadershipPolicy {
	i := slices.IndexFunc(w.hub.policies, func(p *v1alpha1.LeadershipPolicy) bool { return p.Name == name })
	if i < 0 {
		return nil
	}
	return w.hub.policies[i]
}

// putPolicy stores a policy, in place of the one of its name.
func (w *world) putPolicy(p *v1alpha1.LeadershipPolicy) {
	p.Generation++
	rest := w.without(p.Name)
	w.hub.policies = append(rest, p)
	slices.SortFunc(w.hub.policies, func(a, b *v1alpha1.LeadershipPolicy) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	if p.Spec.Fencing != nil {
		w.oracle.fenced = append(w.oracle.fenced, p.Spec.Namespaces.Names...)
	}
	fencing, _ := json.Marshal(p.Spec.Fencing) // which shows what pointers lead to
	w.say("FAULT", "policy %s: %v D=%dms lease %q %s", p.Name, p.Spec.Namespaces.Names,
		p.Spec.Timings.LeaseDurationMilliseconds,
		p.Spec.LeaseName, fencing)
	w.hubChanged()
}

// without returns the policies but one.
func (w *world) without(name string) []*v1alpha1.LeadershipPolicy {
	return slices.DeleteFunc(slices.Clone(w.hub.policies), func(p *v1alpha1.LeadershipPolicy) bool {
		return p.Name == name
	})
}

// dropPolicy deletes a policy.
func (w *world) dropPolicy(name string) {
	w.say("FAULT", "policy %s is deleted", name)
	w.hub.policies = w.without(name)
	w.hubChanged()
}

// editPolicyNamed edits a policy, if there is one of that name.
func (w *world) editPolicyNamed(name string, edit func(*v1alpha1.LeadershipPolicy)) {
	if old := w.policy(name); old != nil {
		p := old.DeepCopy()
		edit(p)
		w.putPolicy(p)
	}
}

// editSomePolicy edits one of the policies, if there is any.
func (w *world) editSomePolicy(edit func(*v1alpha1.LeadershipPolicy)) {
	if len(w.hub.policies) > 0 {
		w.editPolicyNamed(pick(w.rng, w.hub.policies).Name, edit)
	}
}

// makePolicy makes one of those that the world begins with again.
func (w *world) makePolicy(name string) {
	w.made++
	w.putPolicy(w.newPolicy(name, w.made, w.homeOf(name), pick(w.rng, w.durations), w.someLeaseName()))
}

// someLeaseName draws a name for Leases, mostly the usual one.
func (w *world) someLeaseName() string {
	if w.chance(0.3) {
		return leaseNames[1]
	}
	return leaseNames[0]
}

// editPolicy gives a policy another D, and sometimes another name for the Leases. Where there is none, it makes one.
func (w *world) editPolicy() {
	if len(w.hub.policies) == 0 {
		w.makePolicy(policyNames[0])
		return
	}
	w.editSomePolicy(func(p *v1alpha1.LeadershipPolicy) {
		p.Spec.Timings.LeaseDurationMilliseconds = 1000 * pick(w.rng, w.durations)
		p.Spec.LeaseName = w.someLeaseName()
	})
}

// togglePolicy deletes a policy, or makes one again that was deleted.
func (w *world) togglePolicy() {
	name := policyNames[0]
	if len(w.locks) > 0 {
		name = pick(w.rng, policyNames[:len(w.spaces)])
	}
	if w.policy(name) != nil {
		w.dropPolicy(name)
	} else {
		w.makePolicy(name)
	}
}

// restorePolicies has every namespace managed as at the beginning.
func (w *world) restorePolicies() {
	w.fenced = w.homes
	for _, p := range w.hub.policies {
		if !slices.Contains(policyNames[:], p.Name) {
			w.dropPolicy(p.Name)
		}
	}
	for _, p := range w.firstPolicies() {
		if w.policy(p.Name) == nil {
			w.putPolicy(p)
			continue
		}
		is := w.policy(p.Name).DeepCopy()
		is.Spec.Namespaces, is.Spec.Fencing, is.Annotations = p.Spec.Namespaces, p.Spec.Fencing, nil
		if !equality.Semantic.DeepEqual(is, w.policy(p.Name)) {
			w.putPolicy(is)
		}
	}
}

// The edits of policies that change who is fenced by whom.

var (
	// rivalsWorld has policies that claim namespaces which others own, with locks of their own or with those of the
	// others.
	rivalsWorld = special{"policies claim what others own", func(w *world) {
		w.drawLocks()
		w.kinds = append(w.kinds, rivalFault, rivalFault, behindFault)
	}}
	// movesWorld has locks that move from one policy to another, and policies whose namespaces change.
	movesWorld = special{"locks and policies move to other namespaces", func(w *world) {
		w.twoSpaces()
		w.drawLocks()
		w.kinds = append(w.kinds, movedLockFault, movedLockFault, swappedFault, unfencedFault, behindFault)
	}}
	// unfenceableWorld has members that refuse fences, or in which somebody removes them, or the guard.
	unfenceableWorld = special{"members refuse fences, or lose them", func(w *world) {
		w.drawLocks()
		w.kinds = append(w.kinds, refusingFault, refusingFault, removedFault, unguardedFault)
		w.kinds = append(w.kinds, priorityFault, drainFault, freezeFault)
	}}
)

// twoSpaces has the world have two namespaces.
func (w *world) twoSpaces() { w.spaces = []string{"ns1", "ns2"} }

// rivalFault makes a policy that claims a namespace with an owner, or deletes it. Half of them are older than the
// owner: a policy that is restored from a backup keeps its age.
var rivalFault = fault{name: "a policy claims a namespace that another one owns", do: func(w *world) {
	const name = "rival"
	if w.policy(name) != nil {
		w.dropPolicy(name)
		return
	}
	if w.setFenced(name, nil); w.chance(0.6) {
		w.setFenced(name, []v1alpha1.LockFence{pick(w.rng, w.locks).stated(0)})
	}
	made := 0
	if w.chance(0.5) {
		w.made++
		made = w.made
	}
	w.putPolicy(w.newPolicy(name, made, []string{pick(w.rng, w.spaces)}, pick(w.rng, w.durations), w.someLeaseName()))
}, edits: true}

// movedLockFault moves a lock from the policy that fences it to the other one, in one order or the other.
var movedLockFault = fault{name: "a lock moves to another policy", do: func(w *world) {
	l := pick(w.rng, w.locks)
	from, to := policyNames[0], policyNames[1]
	if !w.fences(from, l) {
		from, to = to, from
	}
	steps := []func(){
		func() { w.refence(from, w.fencedBut(from, l)) },
		func() { w.refence(to, append(w.fencedBut(to, l), l.stated(0))) },
	}
	if w.chance(0.5) {
		slices.Reverse(steps)
	}
	steps[0]()
	w.soon(0, 2*time.Second, steps[1])
}, edits: true}

// fencedBut are the locks of a policy but one.
func (w *world) fencedBut(policy string, l *stockLock) []v1alpha1.LockFence {
	return slices.DeleteFunc(slices.Clone(w.fenced[policy]), l.is)
}

// swappedFault has the two policies manage each other's namespace.
var swappedFault = fault{name: "two policies change places", do: func(w *world) {
	steps := []func(){}
	for i, name := range policyNames {
		steps = append(steps, func() {
			w.editPolicyNamed(name, func(p *v1alpha1.LeadershipPolicy) {
				other := w.homeOf(policyNames[1-i])
				if slices.Equal(p.Spec.Namespaces.Names, other) {
					other = w.homeOf(name)
				}
				p.Spec.Namespaces.Names = other
			})
		})
	}
	steps[0]()
	w.soon(0, 3*time.Second, steps[1])
}, edits: true}

// unfencedFault has a policy fence a lock no more, for a moment or for long.
var unfencedFault = fault{name: "a policy fences a lock no more, for a while", do: func(w *world) {
	l := pick(w.rng, w.locks)
	for _, name := range policyNames {
		if !w.fences(name, l) {
			continue
		}
		w.refence(name, w.fencedBut(name, l))
		w.soon(0, pick(w.rng, []time.Duration{2, 10})*time.Second, func() {
			if !w.fences(policyNames[0], l) && !w.fences(policyNames[1], l) {
				w.refence(name, append(w.fencedBut(name, l), l.stated(0)))
			}
		})
		return
	}
}, edits: true}

// refusingFault has a member refuse to store and to remove fences, for a while.
var refusingFault = fault{name: "a member refuses fences", do: func(w *world) {
	m := pick(w.rng, w.members)
	m.unfenceable = w.now + w.between(time.Second, 20*time.Second)
	if w.chance(0.5) {
		m.loseFences()
	}
}, member: true}

// removedFault has somebody remove all fences of a member.
var removedFault = fault{name: "somebody removes the fences of a member", do: func(w *world) {
	pick(w.rng, w.members).loseFences()
}, member: true}

// unguardedFault has somebody remove the guard of a member's Leases, for a while.
var unguardedFault = fault{name: "the guard of a member is not in force", do: func(w *world) {
	m := pick(w.rng, w.members)
	m.unguarded = w.now + w.between(time.Second, 20*time.Second)
	m.spacesChanged() // so that replicas look again
	w.after(m.unguarded-w.now, m.spacesChanged)
}, member: true}

// loseFences removes all fences.
func (m *member) loseFences() {
	m.removeFences(func(guard.Fence) bool { return false })
}
