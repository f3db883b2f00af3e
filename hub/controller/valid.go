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
	shareLocks(ps, c.source.members(fleetName))
	return ps, nil
}

// lastValid replaces invalid policies by their last valid versions, and remembers those of the others.
func (c *Controller) lastValid(fleetName string, stored []*policy) []*policy {
	c.mu.Lock()
	defer c.mu.Unlock()
	there := map[types.NamespacedName]bool{}
	ps := make([]*policy, 0, len(stored))
	for _, p := range stored {
		key := client.ObjectKeyFromObject(p.object)
		there[key] = true
		last := c.valid[key]
		switch {
		case p.invalid == nil && (last == nil || last.object.UID != p.object.UID || last.object.Generation <= p.object.Generation):
			c.valid[key] = p.copy()
		case p.invalid != nil && last != nil && last.object.UID == p.object.UID:
			invalid := p.invalid
			p = last.copy()
			p.invalid = invalid
		}
		ps = append(ps, p)
	}
	maps.DeleteFunc(c.valid, func(key types.NamespacedName, _ *policy) bool { return key.Namespace == fleetName && !there[key] })
	return ps
}

// copy returns one whose locks can be set. Nothing else of a policy changes.
func (p *policy) copy() *policy {
	other := *p
	return &other
}

// byRecord is what is known of an invalid policy by a record of a namespace that it owns.
func (p *policy) byRecord(namespace string, r election.Record) *policy {
	known := p.copy()
	known.onlyFor = r.Leader
	known.clusters, known.namespaces, known.names = labels.Everything(), labels.Nothing(), map[string]bool{namespace: true}
	skew := min(cmp.Or(r.Skew, time.Second), r.Duration/2)
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
