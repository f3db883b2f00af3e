package publish

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// listTimeout bounds the first read of all Leases of a member. firstList bounds the first try, and each try has
	// twice the time of the one before. A long first try would waste time if its answer is lost.
	listTimeout = 15 * time.Second
	firstList   = time.Second
)

// Initial is what was found in the member at the start.
type Initial struct {
	// Read: the member has been read. At is the boot reading before that request.
	Read bool
	At   time.Duration
	// Leases are the contents of the sealed Leases.
	Leases []lease.Content
}

// list lists all Leases of the hub in the member, live.
func (p *Publisher) list(ctx context.Context, within time.Duration) (*coordinationv1.LeaseList, error) {
	return p.Client.Leases(metav1.NamespaceAll).List(ctx, metav1.ListOptions{
		LabelSelector:  labels.Set{v1alpha1.ManagedLabel: "true"}.String(),
		FieldSelector:  guard.Guarded().String(),
		TimeoutSeconds: new(int64(within / time.Second)), // the API server ends the request then
	})
}

// ReadAll reads all Leases of the hub in the member once, live, and reports whether that succeeded. Run calls it
// first, until it succeeds, and never concurrently.
func (p *Publisher) ReadAll(ctx context.Context) bool {
	within := p.listWithin
	p.listWithin = min(2*within, listTimeout)
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	sent := p.Clock.Now()
	list, err := p.list(bounded, within)
	if err != nil && ctx.Err() != nil {
		return false // ended by this hub: that shows nothing about the member
	}
	p.silence.noteOutcome(false, sent, err)
	if err != nil {
		p.Log.V(1).Info("The Leases of the member could not be read", "reason", reason.Unreachable, "err", err.Error())
		return false
	}
	p.Readers.begin(list.ResourceVersion)
	p.mu.Lock()
	for i := range list.Items {
		obj := &list.Items[i]
		l := p.syncer(types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name})
		l.setKnown(obj)
		l.blocked() // the controller gets a blocking Lease's problem before it decides anything
		if l.known.sealed {
			p.initial.Leases = append(p.initial.Leases, l.known.content)
		}
	}
	p.initial.Read, p.initial.At = true, sent.Boot
	p.mu.Unlock()
	p.Changed("")
	return true
}

// Initial returns what was found at the start.
func (p *Publisher) Initial() Initial {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.initial
}
