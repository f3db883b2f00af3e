package controller

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
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

// somePolicy returns one that there is, or nil.
func (w *world) somePolicy() *v1alpha1.LeadershipPolicy {
	if len(w.hub.policies) == 0 {
		return nil
	}
	return pick(w.rng, w.hub.policies)
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
	p := w.somePolicy()
	if p == nil {
		w.makePolicy(policyNames[0])
		return
	}
	d, name := pick(w.rng, w.durations), w.someLeaseName()
	w.editPolicyNamed(p.Name, func(p *v1alpha1.LeadershipPolicy) {
		p.Spec.Timings.LeaseDurationMilliseconds, p.Spec.LeaseName = 1000*d, name
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

// isMended reports whether a policy is valid.
func (w *world) isMended(name string) bool {
	p := w.policy(name)
	return p == nil || decide.ParsePolicy(p).Invalid == nil
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
		if w.staysInvalid && !w.isMended(p.Name) {
			continue
		}
		is.Spec.Namespaces, is.Spec.Fencing = p.Spec.Namespaces, p.Spec.Fencing
		is.Spec.Timings.RenewIntervalMilliseconds = p.Spec.Timings.RenewIntervalMilliseconds
		if !equality.Semantic.DeepEqual(is, w.policy(p.Name)) {
			w.putPolicy(is)
		}
	}
}
