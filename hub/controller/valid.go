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

// A policy that became invalid changes nothing: its last valid version stays in effect. A hub that never saw a
// valid version uses the record: it renews the leader, and chooses nobody else.

// policiesOf returns the policies of a fleet, oldest first, each in its last valid version.
func (c *Controller) policiesOf(ctx context.Context, fleetName string) ([]*policy, error) {
	stored, err := listPolicies(ctx, c.client, fleetName)
	if err != nil {
		return nil, err
	}
	ps := c.lastValid(fleetName, stored)
	shareLocks(ps, c.source.members(fleetName), func(p *policy) bool { return c.lostItsNamespace(ctx, p, ps) })
	return ps, nil
}

// policyVersions holds what is known of one policy.
type policyVersions struct {
	latest *policy // the version that was read last
	valid  *policy // the last valid one; nil: none was seen
}

// parsed parses a version of a policy, once.
func (v *policyVersions) parsed(o *v1alpha1.LeadershipPolicy) *policy {
	if v.latest == nil || v.latest.object.UID != o.UID || v.latest.object.Generation != o.Generation {
		v.latest = parsePolicy(o)
	}
	return v.latest.copy()
}

// lastValid returns the stored policies. It replaces each invalid one by its last valid version.
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

// copy returns a copy whose locks can be set. Nothing else of a policy changes.
func (p *policy) copy() *policy {
	other := *p
	return &other
}

// leastBesideSkew is what the CRD has every valid policy leave of D beside ε: two renewals and a request. With
// less, the hub would renew without a pause.
const leastBesideSkew = 250 * time.Millisecond

// byRecord returns what a record shows of an invalid policy that owns the namespace.
func (p *policy) byRecord(namespace string, r election.Record) *policy {
	known := p.copy()
	known.onlyFor = r.Leader
	known.clusters, known.namespaces, known.names = labels.Everything(), labels.Nothing(), map[string]bool{namespace: true}
	skew := cmp.Or(r.Skew, time.Second) // with a smaller one, readers would reject what they accept today
	if r.Duration-skew < leastBesideSkew {
		skew = r.Duration / 2 // the record was edited
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
