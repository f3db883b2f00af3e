package fleet

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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

// prober sends the probes of a member. What follows sending is used by its run only.
type prober struct {
	*member
	sending sync.WaitGroup
	// sent is when the last probe of each kind was sent. early is how much sooner than an interval later the next read
	// is due.
	sent  map[health.Kind]lease.Reading
	early time.Duration
	// pending counts the probes of each kind that were not answered yet.
	pending [2]atomic.Int32
	// mayWriteAt is the last reading at which this replica could have written, if any. mightNotWrite says
	// whether it could not at some time since.
	mayWriteAt    *lease.Reading
	mightNotWrite bool
	lease         atomic.Pointer[coordinationv1.Lease] // the probe Lease as last seen; nil: that is not known
}

func newProber(m *member) *prober { return &prober{member: m, sent: map[health.Kind]lease.Reading{}} }

// run sends probes until ctx ends. A round begins each second, or each interval if that is shorter.
func (p *prober) run(ctx context.Context) {
	defer p.sending.Wait()
	for {
		start := p.clock.Now()
		p.round(ctx, start)
		s, now := p.get(), p.clock.Now()
		next := start.Boot + min(s.demand.interval, probeFast)
		if at := p.nextRead(s); at > now.Boot {
			next = min(next, at)
		}
		if wake.For(ctx, p.timers, max(0, next-now.Boot), p.wakeProbe) != nil {
			return
		}
	}
}

// round sends the probes that are due. It does not wait for their answers.
func (p *prober) round(ctx context.Context, now lease.Reading) {
	s := p.get()
	mayWrite := p.mayProbeWrites(s, now)
	if s.target == nil {
		return
	}
	if p.isDue(s, health.Read, now) {
		p.send(ctx, s, health.Read, now, p.read)
	}
	if mayWrite && p.isDue(s, health.Write, now) {
		p.send(ctx, s, health.Write, now, p.write)
	}
}

// nextRead is the boot reading at which the next read is due, if the last one was answered. Reads come at varying
// phases of the second, so that the Dates of the answers measure the clock closely (package skew). Reads that others
// sent do not count, because probes check the UID.
func (p *prober) nextRead(s state) time.Duration {
	return p.sent[health.Read].Boot + s.demand.interval - p.early
}

func (p *prober) noteSent(k health.Kind, interval time.Duration, now lease.Reading) {
	if p.sent[k] = now; k == health.Read {
		p.early = rand.N(min(interval, probeFast) / 4)
	}
}

// isDue reports whether the next probe of a kind is due: an interval after the last one, or earlier if that has failed
// under any timeout. Renewals count as writes.
func (p *prober) isDue(s state, k health.Kind, now lease.Reading) bool {
	strictest := s.tracks[0].Track
	switch last, answering := strictest.Last(k); {
	case !answering:
		return p.pending[k].Load() == 0 || now.Boot-p.sent[k].Boot >= min(s.demand.interval, probeFast)
	case k == health.Read:
		return now.Boot >= p.nextRead(s)
	default:
		return now.Boot-max(last.Boot, p.sent[k].Boot) >= s.demand.interval
	}
}

// mayProbeWrites reports whether this replica has the right to write, and may write to this member. Time in which
// it has no right is not held against the member.
func (p *prober) mayProbeWrites(s state, now lease.Reading) bool {
	if s.target == nil || !p.mayWrite(p.key.Fleet) {
		p.mightNotWrite = true
		return false
	}
	if p.mightNotWrite && p.mayWriteAt != nil {
		p.change(func(s *state) { s.tracks = s.tracks.Excuse(health.Write, *p.mayWriteAt, now) })
	}
	p.mayWriteAt, p.mightNotWrite = &now, false
	return s.cluster != nil && s.spec.pin == s.target.UID && !s.spec.moved && !s.leaving
}

// send sends a probe, and observes its outcome under each timeout. A longer one delays no probe that others need.
func (p *prober) send(ctx context.Context, s state, k health.Kind, now lease.Reading,
	probe func(context.Context, *transport.Target, lease.Reading) (lease.Reading, error)) {
	p.noteSent(k, s.demand.interval, now)
	shorter, longest := s.demand.timeouts[:len(s.demand.timeouts)-1], s.demand.timeouts[len(s.demand.timeouts)-1]
	p.pending[k].Add(1)
	p.sending.Go(func() {
		defer p.pending[k].Add(-1)
		ctx, cancel := context.WithTimeout(ctx, longest)
		defer cancel()
		for _, timeout := range shorter {
			defer p.timers.AfterFunc(timeout, func() {
				late := asProblem(s.target.Describe(context.DeadlineExceeded))
				p.observe(health.Observation{
					Kind: k, At: now, Took: timeout, Silent: true, Reason: late.Reason, Message: late.Message,
				})
			}).Stop()
		}
		at, err := probe(ctx, s.target, now)
		if errors.Is(ctx.Err(), context.Canceled) || err != nil && p.get().target != s.target {
			return // nobody waits for it any more, or its connection was replaced
		}
		o := p.observation(ctx, longest, k, at, err)
		p.observe(o)
		switch {
		case o.Reason == reason.WrongCluster:
			p.drop(s.target, Problem{o.Reason, o.Message})
		case k == health.Read && o.Reason == reason.Forbidden:
			p.noteRefused() // its rights may be gone
		}
	})
}

// read reads which cluster this is. The time of the read is that at which its round began. If it were a little later,
// the next round would find the next read not due yet, and leave it to the round after.
func (p *prober) read(ctx context.Context, t *transport.Target, at lease.Reading) (lease.Reading, error) {
	found, err := t.Identify(ctx, p.writer.CoreV1().RESTClient())
	if err == nil && found != t.UID {
		err = &transport.ContactError{Reason: reason.WrongCluster, Message: wrongCluster(t.UID, found)}
	}
	return at, err
}

// write updates the probe Lease. If the Lease is not as expected, as when another prober was faster, it reads and
// writes it again, twice at most. What it writes without a read counts from the reading at which its round began.
func (p *prober) write(ctx context.Context, t *transport.Target, at lease.Reading) (lease.Reading, error) {
	leases := p.writer.CoordinationV1().Leases(probeNamespace)
	known := p.lease.Swap(nil)
	var err error
	for range 3 {
		if known == nil {
			known, err = leases.Get(ctx, probeName, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				known, err = &coordinationv1.Lease{}, nil
			}
			at = p.clock.Now()
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
			p.lease.Store(written)
			break
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	return at, t.Describe(err)
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
			HolderIdentity: ptr.To(p.options.HubID),
			RenewTime:      ptr.To(metav1.NewMicroTime(at.Wall)),
		},
	}
}
