package controller

import (
	"cmp"
	"context"
	"slices"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// claim finds the policy that owns the namespace, and the members that take part under it.
func (c *Controller) claim(ctx context.Context, v *view, policies []*policy) {
	recorded := ""
	if v.object != nil {
		recorded = v.object.Spec.Policy
	}
	if v.key.Name == c.OwnNamespace || v1alpha1.NeverManaged(v.key.Name) {
		policies = nil
	}
	policies = slices.DeleteFunc(slices.Clone(policies), func(p *policy) bool { return c.leavesOut(ctx, v, p) })
	v.own(policies, recorded)
	for i := range v.members {
		m := &v.members[i]
		m.takesPart = v.policy != nil && v.policy.speaksOf(m)
	}
	if v.policy == nil && recorded == "" && v.unread(policies) {
		// The record is lost. A Lease in a cluster that was not read yet may show more, so nothing is removed.
		v.stop = "whether a policy claims the namespace is not known before every cluster has been read"
	}
	if !c.source.synced() {
		v.stop = "the Clusters are not known yet"
	}
}

// own gives the namespace to the policy that last owned it, as long as that policy claims it. Otherwise it chooses
// the oldest policy that claims it. An owner without a known valid version keeps the namespace by the record.
func (v *view) own(policies []*policy, recorded string) {
	for _, p := range policies {
		owned := p.object.Name == recorded
		switch {
		case p.unknown && !owned, !p.unreadable && !v.claimedBy(p, recorded):
			continue
		case v.policy == nil:
			v.policy = p
		case owned:
			v.losers = append(v.losers, v.policy)
			v.policy = p
		default:
			v.losers = append(v.losers, p)
		}
	}
	if v.policy == nil || !v.policy.unknown {
		return
	}
	if r := v.state.Record; r.Lost() || r.Leader == "" {
		v.stop = cmp.Or(v.stop, "the policy is invalid, and nobody leads by the record: "+v.policy.invalid.Error())
	}
	v.policy = v.policy.byRecord(v.key.Name, v.state.Record)
}

// claimedBy reports whether a policy claims the namespace: it matches in a member that the policy selects. For a
// member that was not read, the record stands in as its last answer. An empty list of members decides nothing.
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

// unread reports whether a member that one of the policies selects was not read yet.
func (v *view) unread(policies []*policy) bool {
	return slices.ContainsFunc(v.members, func(m memberView) bool {
		return !m.isRead && slices.ContainsFunc(policies, func(p *policy) bool { return p.speaksOf(&m) })
	})
}

// speaksOf reports whether a member takes part under the policy.
func (p *policy) speaksOf(m *memberView) bool {
	if p.onlyFor != "" && p.onlyFor != m.Name {
		return false
	}
	return !m.Gone && m.PriorityReason != reason.NoPriority && p.selects(m.Member)
}
