package fleet

import (
	"fmt"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

const (
	// maxHeld and maxHeldBytes bound what the caches of a member hold: Namespaces, and Leases of ours.
	maxHeld      = 30_000
	maxHeldBytes = 32 << 20
	// heldOverhead is what an object takes beside its texts.
	heldOverhead = 256
)

// slimNamespace drops what nobody asks a Namespace for.
func slimNamespace(o any) (any, error) {
	n, ok := o.(*corev1.Namespace)
	if !ok {
		return o, nil
	}
	return &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: n.UID, ResourceVersion: n.ResourceVersion, Labels: n.Labels, DeletionTimestamp: n.DeletionTimestamp,
		},
		Status: corev1.NamespaceStatus{Phase: n.Status.Phase},
	}, nil
}

// slimLease drops what nobody asks a managed Lease for. Labels and annotations stay: an edit of any is repaired.
func slimLease(o any) (any, error) {
	l, ok := o.(*coordinationv1.Lease)
	if !ok {
		return o, nil
	}
	slim := *l
	slim.ManagedFields, slim.GenerateName = nil, ""
	return &slim, nil
}

// held counts what the caches of a member hold.
type held struct {
	exceeded func(error)

	mu             sync.Mutex
	objects, bytes int
	told           bool
}

// follow counts what an informer holds.
func (h *held) follow(informer cache.Informer) error {
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: h.added, UpdateFunc: h.updated, DeleteFunc: h.deleted})
	return err
}

func (h *held) added(o any) { h.add(1, weightOf(o)) }

func (h *held) updated(was, is any) { h.add(0, weightOf(is)-weightOf(was)) }

func (h *held) deleted(o any) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	h.add(-1, -weightOf(o))
}

func (h *held) add(objects, bytes int) {
	h.mu.Lock()
	h.objects += objects
	h.bytes += bytes
	news := !h.told && (h.objects > maxHeld || h.bytes > maxHeldBytes)
	h.told = h.told || news
	err := fmt.Errorf("the member has %d Namespaces and Leases of the hub, of %d MiB: at most %d, of %d MiB, are kept",
		h.objects, h.bytes>>20, maxHeld, maxHeldBytes>>20)
	h.mu.Unlock()
	if news {
		h.exceeded(err)
	}
}

// weightOf is about how much memory an object takes that was slimmed.
func weightOf(o any) int {
	switch o := o.(type) {
	case *corev1.Namespace:
		return heldOverhead + len(o.Name) + textsOf(o.Labels)
	case *coordinationv1.Lease:
		n := heldOverhead + len(o.Name) + len(o.Namespace) + textsOf(o.Labels) + textsOf(o.Annotations)
		if o.Spec.HolderIdentity != nil {
			n += len(*o.Spec.HolderIdentity)
		}
		for _, f := range o.Finalizers {
			n += len(f)
		}
		for i := range o.OwnerReferences {
			r := &o.OwnerReferences[i]
			n += heldOverhead + len(r.APIVersion) + len(r.Kind) + len(r.Name)
		}
		return n
	}
	return 0
}

func textsOf(m map[string]string) (n int) {
	for k, v := range m {
		n += len(k) + len(v)
	}
	return n
}
