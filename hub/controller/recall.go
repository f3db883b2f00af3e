package controller

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// recall takes what this tenure recorded last for what the record says, if somebody who
// is no hub has written or deleted it since: an edit is not heeded, and persist puts it
// right. What may be the word of another tenure is heeded instead, as is what a new
// tenure finds.
func (c *Controller) recall(ctx context.Context, v *view) {
	c.mu.Lock()
	known, ok := c.recorded[v.key]
	c.mu.Unlock()
	switch changed := ok && (v.found == nil || differs(v.found, &known)); {
	case changed && c.alone(ctx):
		log.FromContext(ctx).Info("A record that was edited or deleted is put right",
			"namespaceLeader", klog.KRef(v.key.Namespace, v.key.Name), "reason", "RecordEdited")
		if v.object == nil {
			v.object = newRecord(v)
		}
		known.DeepCopyInto(&v.object.Status)
	case v.found != nil:
		c.remember(v.key, v.found)
	default:
		c.forget(v.key)
	}
	if v.object != nil {
		v.state.Record = recordOf(&v.object.Status)
	}
}

// alone reports whether no other tenure can have written what was just read. Earlier ones
// ended before h after the start of this one, even if the election's Lease was lost, and
// a write of theirs that arrives later has no consequences any more. A later one has
// taken the election before it wrote anything: that is asked for live, after the record.
func (c *Controller) alone(ctx context.Context) bool {
	now := c.Clock.Now()
	started, inherited := c.Tenure.Started()
	return now.Boot >= started.Boot+c.Tenure.ElectionDuration() && now.Wall.After(inherited) && c.Elected(ctx)
}

// remember notes what a record says.
func (c *Controller) remember(key types.NamespacedName, s *v1alpha1.NamespaceLeaderStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recorded[key] = *s.DeepCopy()
}

// forget drops what is known of a record: the next look takes what it finds.
func (c *Controller) forget(key types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.recorded, key)
}
