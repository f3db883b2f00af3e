package publish

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// listTimeout bounds the reading of all copies of a member at the start of a tenure, and firstList
// the first try: who waits long for an answer that was lost learns late what the member knows.
// Each try has twice the time of the one before it.
const (
	listTimeout = 15 * time.Second
	firstList   = time.Second
)

// Initial is what was found at the start.
type Initial struct {
	// Read says that the member has been read at all, and At the boot reading before that request.
	Read bool
	At   time.Duration
	// Leases are the sealed ones.
	Leases []lease.Content
}

// ReadAll reads all copies of the member once, live, and reports whether they were
// read. Run calls it first, until it succeeds.
func (p *Publisher) ReadAll(ctx context.Context) bool {
	p.mu.Lock()
	within := p.listWithin
	p.listWithin = min(2*within, listTimeout)
	p.mu.Unlock()
	bounded, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	sent := p.Clock.Now()
	list, err := p.Client.Leases(metav1.NamespaceAll).List(bounded, metav1.ListOptions{
		LabelSelector:  labels.Set{v1alpha1.ManagedLabel: "true"}.String(),
		TimeoutSeconds: new(int64(within / time.Second)), // the member need not work on it any longer
	})
	if err != nil && ctx.Err() != nil {
		return false // cut off by this hub itself: that says nothing of the member
	}
	p.noteOutcome(false, sent, err)
	if err != nil {
		p.Log.V(1).Info("Copies could not be read", "reason", "Unreachable", "err", err.Error())
		return false
	}
	p.mu.Lock()
	p.history = history{newestVersion: list.ResourceVersion, since: p.Clock.Now().Boot}
	for i := range list.Items {
		obj := &list.Items[i]
		l := p.syncer(types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name})
		l.setKnown(obj)
		l.blocked() // somebody else's copy is known of before anything is decided
		if l.known.sealed {
			p.initial.Leases = append(p.initial.Leases, l.known.content)
		}
	}
	p.initial.Read, p.initial.At = true, sent.Boot
	p.listReadersNow()
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
