package fleet

import (
	"context"
	"errors"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/fleet/wake"
	"github.com/leasecast/leasecast/hub/health"
)

const (
	// probeNamespace and probeName are where the write probe of a member is. It has no managed label, so no
	// reader and no cache sees it.
	probeNamespace = metav1.NamespaceSystem
	probeName      = "leasecast-hub-probe"
	// probeFast is how often a member is probed that does not answer.
	probeFast = time.Second
)

// prober is what the goroutine of the probes owns.
type prober struct {
	*member
	// lastRead is when the last read was sent.
	lastRead lease.Reading
	// mayWriteAt is the last reading at which this replica could have written, if any. mightNotWrite says
	// whether it could not at some time since.
	mayWriteAt    *lease.Reading
	mightNotWrite bool
	// lease is the probe Lease as last seen.
	lease *coordinationv1.Lease
}

// probe sends probes until ctx ends. A round begins each second, or each interval if that is shorter. If a
// round takes longer, the next one begins when it has ended.
func (m *member) probe(ctx context.Context) {
	p := &prober{member: m}
	for {
		interval, timeout := m.p.probing()
		start := m.p.clock.Now()
		p.round(ctx, start, interval, timeout)
		now := m.p.clock.Now().Boot
		next := start.Boot + min(interval, probeFast)
		if at, ok := p.nextAim(interval); ok && at > now {
			next = min(next, at)
		}
		if wake.For(ctx, m.p.timers, max(0, next-now), m.wakeProbe) != nil {
			return
		}
	}
}

// round sends the probes that are due. Reads and writes do not wait for each other.
func (p *prober) round(ctx context.Context, now lease.Reading, interval, timeout time.Duration) {
	s := p.get()
	if s.target == nil {
		p.mightNotWrite = true
		return
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	if p.readDue(s, now, interval) {
		p.lastRead = now
		group.Go(func() { p.sendRead(ctx, s.target) })
	}
	if p.mayWrite(s, now) && writeDue(s, now, interval) {
		group.Go(func() { p.sendWrite(ctx, s.target) })
	}
}

// readDue reports whether the last read failed, or was sent an interval ago, or less if the Date of the
// answer will then tell more. Reads that others sent do not count, because probes check the UID.
func (p *prober) readDue(s state, now lease.Reading, interval time.Duration) bool {
	_, answering := s.track.Last(health.Read)
	at, aimed := p.nextAim(interval)
	return !answering || now.Boot-p.lastRead.Boot >= interval || aimed && now.Boot >= at
}

// nextAim is the boot reading at which to send the next read, less than a second before it is due anyway, so
// that the Date of its answer tells the most of the member's clock. It returns false if that tells nothing
// new.
func (p *prober) nextAim(interval time.Duration) (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.clocks.Aim(p.lastRead.Boot + max(0, interval-time.Second))
}

// writeDue reports whether the last write failed, or was sent an interval ago. Renewals count.
func writeDue(s state, now lease.Reading, interval time.Duration) bool {
	last, answering := s.track.Last(health.Write)
	return !answering || now.Boot-last.Boot >= interval
}

// mayWrite reports whether this replica has the right to write, and may write to this member. Time in which
// it has no right is not held against the member.
func (p *prober) mayWrite(s state, now lease.Reading) bool {
	if !p.p.mayWrite(p.key.Fleet) {
		p.mightNotWrite = true
		return false
	}
	if p.mightNotWrite && p.mayWriteAt != nil {
		p.excuse(health.Write, *p.mayWriteAt, now)
	}
	p.mayWriteAt, p.mightNotWrite = &now, false
	return s.cluster != nil && s.spec.pin == s.target.UID && !s.spec.moved
}

func (p *prober) sendRead(ctx context.Context, t *transport.Target) {
	at := p.p.clock.Now()
	found, err := t.Identify(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if err == nil && found != t.UID {
		err = &transport.ContactError{Reason: reason.WrongCluster, Message: wrongCluster(t.UID, found)}
		defer p.distrust(t, found)
	}
	o := observation(health.Read, at, err)
	if o.Reason == reason.Forbidden {
		p.refuseAccount() // its rights may be gone
	}
	p.observe(o)
}

// sendWrite updates the probe Lease. If the Lease is not as expected, it reads and writes it once more.
func (p *prober) sendWrite(ctx context.Context, t *transport.Target) {
	leases := p.writer.CoordinationV1().Leases(probeNamespace)
	var at lease.Reading
	var err error
	for range 2 {
		if p.lease == nil {
			p.lease, err = leases.Get(ctx, probeName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				p.lease, err = &coordinationv1.Lease{}, nil
			}
		}
		at = p.p.clock.Now()
		if err != nil {
			break
		}
		desired := p.desired(at)
		var written *coordinationv1.Lease
		if desired.ResourceVersion == "" {
			written, err = leases.Create(ctx, desired, metav1.CreateOptions{})
		} else {
			written, err = leases.Update(ctx, desired, metav1.UpdateOptions{})
		}
		if err == nil {
			p.lease = written
			break
		}
		p.lease = nil
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		p.lease = nil
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		p.observe(observation(health.Write, at, t.Describe(err)))
	}
}

func (p *prober) desired(at lease.Reading) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       probeNamespace,
			Name:            probeName,
			UID:             p.lease.UID,
			ResourceVersion: p.lease.ResourceVersion,
			Labels:          map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(p.p.options.HubID),
			RenewTime:      ptr.To(metav1.NewMicroTime(at.Wall)),
		},
	}
}
