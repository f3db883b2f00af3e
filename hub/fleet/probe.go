package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
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
	// unwatchedAfter is for how long a watch must have failed before that is a problem. API servers end watches all the
	// time, and a new one follows within a second or so.
	unwatchedAfter = 10 * time.Second
	// probeFast is how often a member is probed that does not answer.
	probeFast = time.Second
)

// probes is what the probers of a member share.
type probes struct {
	*member

	lock sync.Mutex // guards what follows
	// identified is when the last read was sent whose answer showed the right UID.
	identified lease.Reading
	// mayWriteAt is the last reading at which this replica could have written, if any. mightNotWrite says
	// whether it could not at some time since.
	mayWriteAt    *lease.Reading
	mightNotWrite bool
	// lease is the probe Lease as last seen.
	lease *coordinationv1.Lease
}

// prober sends the probes that have one timeout.
type prober struct {
	*probes
	pace
	wake chan struct{}
	stop func() // and wait
	// lastRead is when it sent its last read. early is how much sooner than an interval later the next one is due.
	lastRead lease.Reading
	early    time.Duration
}

// probe sends probes until ctx ends: those of each timeout in a goroutine of its own, so that those who are patient do not
// hold up those who are not.
func (m *member) probe(ctx context.Context) {
	shared := &probes{member: m}
	running := map[pace]*prober{}
	for ctx.Err() == nil {
		wanted := map[pace]bool{}
		for _, at := range m.get().paces {
			if wanted[at] = true; running[at] == nil {
				running[at] = shared.begin(ctx, at)
			}
		}
		for at, p := range running {
			if !wanted[at] {
				p.stop()
				delete(running, at)
			}
			wake.Wake(p.wake)
		}
		_ = wake.For(ctx, m.p.timers, forever, m.wakeProbe) // if ctx has ended, that is seen above
	}
	for _, p := range running {
		p.stop()
	}
}

// begin starts a prober.
func (s *probes) begin(ctx context.Context, at pace) *prober {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	p := &prober{probes: s, pace: at, wake: make(chan struct{}, 1), stop: func() {
		cancel()
		group.Wait()
	}}
	group.Go(func() { p.run(ctx) })
	return p
}

// run sends probes until ctx ends. A round begins each second, or each interval if that is shorter. If a
// round takes longer, the next one begins when it has ended.
func (p *prober) run(ctx context.Context) {
	for {
		start := p.p.clock.Now()
		p.round(ctx, start)
		now := p.p.clock.Now()
		next := start.Boot + min(p.interval, probeFast)
		if at := p.nextRead(); at > now.Boot {
			next = min(next, at)
		}
		if wake.For(ctx, p.p.timers, max(0, next-now.Boot), p.wake) != nil {
			return
		}
	}
}

// round sends the probes that are due. Reads and writes do not wait for each other.
func (p *prober) round(ctx context.Context, now lease.Reading) {
	p.change(func(s *state) { s.unwatched = s.cluster != nil && p.retry.Unwatched() >= unwatchedAfter })
	s := p.get()
	mayWrite := p.mayWrite(s, now)
	if s.target == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	var group sync.WaitGroup
	defer group.Wait()
	if p.readDue(s, now) {
		p.noteRead(now)
		group.Go(func() { p.sendRead(ctx, s.target, now) })
	}
	if mayWrite && p.writeDue(s, now) {
		group.Go(func() { p.sendWrite(ctx, s.target, now) })
	}
}

// nextRead is the boot reading at which the next read is due, if the last one was answered. Reads come at varying phases
// of the second, so that the Dates of the answers measure the clock closely (package skew). Reads that others sent do
// not count, because probes check the UID.
func (p *prober) nextRead() time.Duration {
	p.lock.Lock()
	defer p.lock.Unlock()
	return max(p.lastRead.Boot, p.identified.Boot) + p.interval - p.early
}

func (p *prober) noteRead(now lease.Reading) {
	p.lastRead, p.early = now, rand.N(min(p.interval, probeFast)/4)
}

// readDue reports whether the last read failed, or the next one is due.
func (p *prober) readDue(s state, now lease.Reading) bool {
	track := s.tracks.Of(p.timeout)
	_, answering := track.Last(health.Read)
	return !answering || now.Boot >= p.nextRead()
}

// writeDue reports whether the last write failed, or was sent an interval ago. Renewals count.
func (p *prober) writeDue(s state, now lease.Reading) bool {
	track := s.tracks.Of(p.timeout)
	last, answering := track.Last(health.Write)
	return !answering || now.Boot-last.Boot >= p.interval
}

// mayWrite reports whether this replica has the right to write, and may write to this member. Time in which
// it has no right is not held against the member.
func (s *probes) mayWrite(now state, at lease.Reading) bool {
	right := now.target != nil && s.p.mayWrite(s.key.Fleet)
	s.lock.Lock()
	defer s.lock.Unlock()
	if !right {
		s.mightNotWrite = true
		return false
	}
	if s.mightNotWrite && s.mayWriteAt != nil {
		s.excuse(health.Write, *s.mayWriteAt, at)
	}
	s.mayWriteAt, s.mightNotWrite = &at, false
	return now.cluster != nil && now.spec.pin == now.target.UID && !now.spec.moved && !now.leaving
}

// sendRead reads which cluster this is. The time of the read is that at which its round began. If it were a little later,
// the next round would find the next read not due yet, and leave it to the round after.
func (p *prober) sendRead(ctx context.Context, t *transport.Target, at lease.Reading) {
	found, err := t.Identify(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if err == nil && found != t.UID {
		err = &transport.ContactError{Reason: reason.WrongCluster, Message: wrongCluster(t.UID, found)}
		defer p.distrust(t, found)
	}
	if err == nil {
		p.lock.Lock()
		p.identified = at
		p.lock.Unlock()
	}
	o := p.observation(ctx, p.timeout, health.Read, at, err)
	if o.Reason == reason.Forbidden {
		p.refused() // its rights may be gone
	}
	p.observe(o)
}

// sendWrite updates the probe Lease. If the Lease is not as expected, as when another prober was faster, it reads and
// writes it again, twice at most. What it writes without a read counts from the reading at which its round began.
func (p *prober) sendWrite(ctx context.Context, t *transport.Target, at lease.Reading) {
	leases := p.writer.CoordinationV1().Leases(probeNamespace)
	known := p.swapLease(nil)
	var err error
	for range 3 {
		if known == nil {
			known, err = leases.Get(ctx, probeName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				known, err = &coordinationv1.Lease{}, nil
			}
			at = p.p.clock.Now()
		}
		if err != nil {
			break
		}
		desired := p.desired(known, at)
		known = nil
		var written *coordinationv1.Lease
		if desired.ResourceVersion == "" {
			written, err = leases.Create(ctx, desired, metav1.CreateOptions{})
		} else {
			written, err = leases.Update(ctx, desired, metav1.UpdateOptions{})
		}
		if err == nil {
			p.swapLease(written)
			break
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if !errors.Is(ctx.Err(), context.Canceled) {
		p.observe(p.observation(ctx, p.timeout, health.Write, at, t.Describe(err)))
	}
}

// swapLease notes the probe Lease as it is now, nil if that is not known, and returns it as it was known.
func (s *probes) swapLease(l *coordinationv1.Lease) (was *coordinationv1.Lease) {
	s.lock.Lock()
	defer s.lock.Unlock()
	was, s.lease = s.lease, l
	return was
}

func (p *prober) desired(known *coordinationv1.Lease, at lease.Reading) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       probeNamespace,
			Name:            probeName,
			UID:             known.UID,
			ResourceVersion: known.ResourceVersion,
			Labels:          map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(p.p.options.HubID),
			RenewTime:      ptr.To(metav1.NewMicroTime(at.Wall)),
		},
	}
}
