package decide

import (
	"cmp"
	"slices"
)

// Unread is the Stop of a namespace without a policy while a cluster was not read yet.
const Unread = "whether a policy claims the namespace is not known before every cluster has been read"

// Claim finds the policy that owns the namespace, and the members that take part under it. policies are those of the
// fleet that may own it, oldest first.
func (v *Snapshot) Claim(policies []*Policy) {
	recorded := ""
	if v.Object != nil {
		recorded = v.Object.Spec.Policy
	}
	v.own(policies, recorded)
	for i := range v.Members {
		m := &v.Members[i]
		m.TakesPart = v.Policy != nil && v.Policy.Includes(m)
	}
	if v.Policy == nil && recorded == "" && anyUnread(v.Members, policies) {
		// The record is lost. A Lease in a cluster that was not read yet may show more, so nothing is removed.
		v.Stop = Unread
	}
}

// own gives the namespace to the policy that last owned it, as long as that policy claims it. Otherwise it chooses
// the oldest policy that claims it. An owner without a known valid version keeps the namespace by the record.
func (v *Snapshot) own(policies []*Policy, recorded string) {
	for _, p := range policies {
		owned := p.Object.Name == recorded
		switch {
		case p.Unknown && !owned, !p.unreadable && !v.claimedBy(p, recorded):
			continue
		case v.Policy == nil:
			v.Policy = p
		case owned:
			v.Losers = append(v.Losers, v.Policy)
			v.Policy = p
		default:
			v.Losers = append(v.Losers, p)
		}
	}
	if v.Policy == nil || !v.Policy.Unknown {
		return
	}
	if r := v.Record; r.Lost() || r.Leader == "" {
		v.Stop = cmp.Or(v.Stop, "the policy is invalid, and nobody leads by the record: "+v.Policy.Invalid.Error())
	}
	v.Policy = v.Policy.byRecord(v.Key.Name, v.Record)
}

// claimedBy reports whether a policy claims the namespace: it matches in a member that the policy selects. For a
// member that was not read, the record stands in as its last answer. An empty list of members decides nothing.
func (v *Snapshot) claimedBy(p *Policy, recorded string) bool {
	for i := range v.Members {
		m := &v.Members[i]
		if !p.Includes(m) {
			continue
		}
		if !m.IsRead {
			if p.Object.Name == recorded {
				return true
			}
			continue
		}
		if m.Namespace != nil && p.Matches(v.Key.Name, m.Namespace.Labels) {
			return true
		}
	}
	return len(v.Members) == 0 && p.Object.Name == recorded
}

// anyUnread reports whether a member that one of the policies selects was not read yet.
func anyUnread(ms []Member, policies []*Policy) bool {
	return slices.ContainsFunc(ms, func(m Member) bool {
		return !m.IsRead && slices.ContainsFunc(policies, func(p *Policy) bool { return p.Includes(&m) })
	})
}
