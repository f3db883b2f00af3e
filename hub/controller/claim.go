package controller

import (
	"slices"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// claim finds the policy that owns the namespace, and the members that it speaks of.
func (c *Controller) claim(v *view, policies []*policy) {
	recorded := ""
	if v.object != nil {
		recorded = v.object.Spec.Policy
	}
	if v.key.Name == c.OwnNamespace || v1alpha1.NeverManaged(v.key.Name) {
		policies = nil
	}
	v.own(policies, recorded)
	for i := range v.members {
		m := &v.members[i]
		m.takesPart = v.policy != nil && v.policy.speaksOf(m)
	}
	if v.policy == nil && recorded == "" && v.unread(policies) {
		// The record is lost. A Lease in a cluster that was not read yet may tell more, so nothing is taken away.
		v.stop = "whether a policy claims the namespace is not known before every cluster has been read"
	}
	if !c.source.synced() {
		v.stop = "the Clusters are not known yet"
	}
}

// own gives the namespace to the oldest valid policy that claims it. recorded is the
// one that owned it last: it is not taken away from one that has become invalid.
func (v *view) own(policies []*policy, recorded string) {
	for _, p := range policies {
		switch {
		case p.invalid != nil && p.object.Name == recorded && (p.unreadable || v.claimedBy(p, recorded)):
			if v.invalid = "nothing is decided while the policy is invalid: " + p.invalid.Error(); v.stop == "" {
				v.stop = v.invalid
			}
		case p.invalid != nil, !v.claimedBy(p, recorded):
		case v.policy == nil:
			v.policy = p
		default:
			v.losers = append(v.losers, p)
		}
	}
}

// claimedBy reports whether a policy claims the namespace: it matches in a member
// that the policy speaks of. A member that was never reached keeps its last answer,
// which is the record; and an empty list of members decides nothing.
func (v *view) claimedBy(p *policy, recorded string) bool {
	for i := range v.members {
		m := &v.members[i]
		if !p.speaksOf(m) {
			continue
		}
		if !m.isRead {
			if p.object.Name == recorded {
				return true
			}
			continue
		}
		if m.namespace != nil && p.matches(v.key.Name, m.namespace.Labels) {
			return true
		}
	}
	return len(v.members) == 0 && p.object.Name == recorded
}

// unread reports whether a member that one of the policies speaks of was not read yet.
func (v *view) unread(policies []*policy) bool {
	return slices.ContainsFunc(v.members, func(m memberView) bool {
		return !m.isRead && slices.ContainsFunc(policies, func(p *policy) bool { return p.speaksOf(&m) })
	})
}

// speaksOf reports whether a member takes part under the policy.
func (p *policy) speaksOf(m *memberView) bool {
	return !m.Gone && m.PriorityReason != reason.NoPriority && p.selects(m.Member)
}
