package controller

import (
	"cmp"
	"context"
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

// A policy that became invalid changes nothing: the last valid version goes on. A hub that never saw a valid one goes on by
// the record: it renews the leader, and chooses nobody else.

// policiesOf returns the policies of a fleet that count, oldest first: the last valid version of each.
func (c *Controller) policiesOf(ctx context.Context, fleetName string) ([]*policy, error) {
	stored, err := listPolicies(ctx, c.client, fleetName)
	if err != nil {
		return nil, err
	}
	ps := c.lastValid(fleetName, stored)
	shareLocks(ps, c.source.members(fleetName), func(p *policy) bool { return c.lostItsNamespace(ctx, p, ps) })
	return ps, nil
}

// policyVersions are what is known of one policy.
type policyVersions struct {
	latest *policy // the version that was read last
	valid  *policy // the last valid one; nil: none was seen
}

// parsed reads a version of a policy, once.
func (v *policyVersions) parsed(o *v1alpha1.LeadershipPolicy) *policy {
	if v.latest == nil || v.latest.object.UID != o.UID || v.latest.object.Generation != o.Generation {
		v.latest = parsePolicy(o)
	}
	return v.latest.copy()
}

// lastValid returns policies as they are stored, and in place of invalid ones their last valid versions.
func (c *Controller) lastValid(fleetName string, stored []*v1alpha1.LeadershipPolicy) []*policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := map[types.NamespacedName]bool{}
	ps := make([]*policy, 0, len(stored))
	for _, o := range stored {
		key := client.ObjectKeyFromObject(o)
		there[key] = true
		known := c.versions[key]
		p, last := known.parsed(o), known.valid
		switch {
		case p.invalid == nil && (last == nil || last.object.UID != o.UID || last.object.Generation <= o.Generation):
			known.valid = p.copy()
		case p.invalid != nil && last != nil && last.object.UID == o.UID:
			invalid := p.invalid
			p = last.copy()
			p.invalid = invalid
		}
		c.versions[key] = known
		ps = append(ps, p)
	}
	maps.DeleteFunc(c.versions, func(key types.NamespacedName, _ policyVersions) bool {
		return key.Namespace == fleetName && !there[key]
	})
	maps.DeleteFunc(c.lone, func(key types.NamespacedName, _ *lone) bool { return key.Namespace == fleetName && !there[key] })
	return ps
}

// copy returns one whose locks can be set. Nothing else of a policy changes.
func (p *policy) copy() *policy {
	other := *p
	return &other
}

// leastBesideSkew is what every valid policy leaves of D beside ε, by its CRD: two renewals and a request. Less would have
// the hub renew without a pause.
const leastBesideSkew = 250 * time.Millisecond

// byRecord is what is known of an invalid policy by a record of a namespace that it owns.
func (p *policy) byRecord(namespace string, r election.Record) *policy {
	known := p.copy()
	known.onlyFor = r.Leader
	known.clusters, known.namespaces, known.names = labels.Everything(), labels.Nothing(), map[string]bool{namespace: true}
	skew := cmp.Or(r.Skew, time.Second) // a smaller one would have readers refuse what they believe today
	if r.Duration-skew < leastBesideSkew {
		skew = r.Duration / 2 // somebody has edited the record
	}
	known.election = election.Policy{
		Timings: lease.Timings{
			Duration: r.Duration, Skew: skew, Renew: (r.Duration - skew) / 3, Timeout: (r.Duration - skew) / 3,
		},
		LeaseName: r.LeaseName, StopTime: r.Stop, Locks: r.OpenLocks,
	}
	known.thresholds.Timeout = known.election.Timings.Timeout
	known.thresholds.UnreachableAfter, known.thresholds.RecoverAfter = 2*known.election.Timings.Renew, known.election.Timings.Renew
	return known
}
