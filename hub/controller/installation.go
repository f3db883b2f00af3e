package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// Two installations of the hub may run on one management cluster, on purpose for different fleets, or because the
// hub's namespace was renamed. They see the same records and members, so one of them serves each fleet: the one
// whose mark is on the fleet's seal. The other one stands back from the whole fleet. That keeps the two from
// overwriting each other. The marks on records and Leases keep two clusters from leading at once.

const (
	// standBackAgain is the delay before the hub checks again whether another installation serves a fleet.
	standBackAgain = 5 * time.Second
	// sayAgain is how often the event is repeated: events expire after an hour.
	sayAgain = 30 * time.Minute
)

// standsBack reports whether another installation on this management cluster serves a fleet. Then this one decides
// nothing there and writes nothing: neither into members nor records, statuses of policies or events on Clusters.
func (c *Controller) standsBack(fleetName string) bool {
	_, other := seal.OtherInstallation(c.HubID, c.source.servedBy(fleetName))
	return other
}

// Serves reports whether this replica decides for a fleet now.
func (c *Controller) Serves(fleetName string) bool {
	return c.Tenure.Holds() && !c.standsBack(fleetName)
}

// mayWrite is [tenure.Tenure.MayWrite], but returns false for fleets that another installation serves.
func (c *Controller) mayWrite(fleetName string, now lease.Reading) bool {
	return c.Tenure.MayWrite(now) && !c.standsBack(fleetName)
}

// serve has this installation serve a fleet, and returns its seal. It returns false if another installation serves
// the fleet, or if the seal cannot be obtained.
func (c *Controller) serve(ctx context.Context, fleetName string) (seal.Seal, bool) {
	if !c.Serves(fleetName) {
		return seal.Seal{}, false
	}
	move, err := c.source.move(ctx, fleetName)
	var s seal.Seal
	if err == nil {
		s, err = c.Seals.Serve(ctx, fleetName, c.HubID, move != fleet.Stays)
	}
	c.noteSeal(ctx, useOfSeal{fleet: fleetName}, err)
	return s, err == nil
}

// seal returns the seal of a fleet. An earlier tenure that was still at work may have raised it since it was read,
// and what that tenure promised counts. So the seal is read again once that tenure has ended by what it left, and
// once that is certain. skew is the largest ε of the fleet's policies.
func (c *Controller) seal(ctx context.Context, fleetName string, skew time.Duration) (seal.Seal, error) {
	asked := c.Clock.Now()
	known, err := c.Seals.Find(ctx, fleetName)
	if err != nil {
		return known, err
	}
	c.mu.Lock()
	last, read := c.sealRead[fleetName]
	c.mu.Unlock()
	skew = max(skew, known.Largest().Skew)
	ended := func(in func(lease.Reading, time.Duration) time.Duration) bool {
		return in(last, skew) > 0 && in(asked, skew) <= 0
	}
	if read && !ended(c.Tenure.Overlap) && !ended(c.Tenure.EarlierEndIn) {
		return known, nil
	}
	if known, err = c.Seals.Refresh(ctx, fleetName); err != nil {
		return known, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sealRead[fleetName] = asked
	return known, nil
}

// recordStandsBack records an event on a policy that explains why this hub does nothing for it.
func (c *Controller) recordStandsBack(ctx context.Context, p *v1alpha1.LeadershipPolicy) {
	now, key := c.Clock.Now(), client.ObjectKeyFromObject(p)
	c.mu.Lock()
	last, told := c.standBackEvents[key]
	due := !told || now.Boot-last.Boot >= sayAgain
	if due {
		c.standBackEvents[key] = now
	}
	c.mu.Unlock()
	other, ok := seal.OtherInstallation(c.HubID, c.source.servedBy(p.Namespace))
	if !due || !ok {
		return
	}
	words := standsBackBecause(p.Namespace, other, c.OwnNamespace)
	log.FromContext(ctx).Info("This hub stands back", "leadershipPolicy", klog.KObj(p), "reason", reason.OtherHub, "because", words)
	c.events.Eventf(p, nil, corev1.EventTypeWarning, string(reason.OtherHub), "StandBack", "%s", words)
}

// forgetStandsBack forgets the last event of a deleted policy.
func (c *Controller) forgetStandsBack(policy client.ObjectKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.standBackEvents, policy)
}

// standsBackBecause explains which hub serves a fleet, and how to have the other one serve it.
func standsBackBecause(fleetName, other, own string) string {
	return fmt.Sprintf("the hub in namespace %s serves the Clusters of this namespace, so the one in %s changes nothing for them. "+
		"If the one in %s is to serve them: stop the other one for good; in every cluster run "+
		"kubectl delete leases -A -l %s; then run kubectl -n %s annotate secret %s %s-",
		other, own, own, v1alpha1.ManagedLabel, fleetName, seal.SecretName, v1alpha1.HubAnnotation)
}
