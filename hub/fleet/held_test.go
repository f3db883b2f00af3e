package fleet

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func namespaceOf(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestHowMuchTheCachesOfAMemberMayHold(t *testing.T) {
	large := map[string]string{"a": strings.Repeat("a", 1<<20)}
	for name, test := range map[string]struct {
		show func(h *held)
		told bool
	}{
		"as many as fit": {func(h *held) {
			for i := range maxHeld {
				h.added(namespaceOf(fmt.Sprint(i), nil))
			}
		}, false},
		"one more": {func(h *held) {
			for i := range maxHeld + 1 {
				h.added(namespaceOf(fmt.Sprint(i), nil))
			}
		}, true},
		"few that are large": {func(h *held) {
			for i := range 32 {
				h.added(namespaceOf(fmt.Sprint(i), large))
			}
		}, true},
		"few that became large": {func(h *held) {
			for i := range 32 {
				h.added(namespaceOf(fmt.Sprint(i), nil))
				h.updated(namespaceOf(fmt.Sprint(i), nil), namespaceOf(fmt.Sprint(i), large))
			}
		}, true},
		"one that changes again and again": {func(h *held) {
			h.added(namespaceOf("a", large))
			for range 2 * maxHeld {
				h.updated(namespaceOf("a", large), namespaceOf("a", large))
			}
		}, false},
		"many that came and went": {func(h *held) {
			for i := range 2 * maxHeld {
				h.added(namespaceOf(fmt.Sprint(i), large))
				h.deleted(toolscache.DeletedFinalStateUnknown{Obj: namespaceOf(fmt.Sprint(i), large)})
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			times := 0
			h := &held{exceeded: func(error) { times++ }}
			test.show(h)
			if told := times > 0; told != test.told || times > 1 {
				t.Errorf("told %d times", times)
			}
		})
	}
}

// Everything in a Lease that can be large counts.
func TestWhatALeaseWeighs(t *testing.T) {
	text := strings.Repeat("x", 10_000)
	for name, l := range map[string]coordinationv1.Lease{
		"a label":       {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": text}}},
		"an annotation": {ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"a": text}}},
		"a finalizer":   {ObjectMeta: metav1.ObjectMeta{Finalizers: []string{text}}},
		"an owner":      {ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{{Name: text}}}},
		"the holder":    {Spec: coordinationv1.LeaseSpec{HolderIdentity: &text}},
	} {
		if w := weightOf(&l); w < len(text) {
			t.Errorf("%s of %d bytes: %d", name, len(text), w)
		}
	}
}

func TestWhatIsKeptOfAnObject(t *testing.T) {
	text := strings.Repeat("x", 10_000)
	meta := metav1.ObjectMeta{
		Name: "a", Namespace: "n", UID: "u", ResourceVersion: "1", GenerateName: text,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": text},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: text}},
	}
	kept, _ := slimNamespace(&corev1.Namespace{ObjectMeta: meta, Status: corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}})
	if n, ok := kept.(*corev1.Namespace); !ok || n.Annotations != nil || n.ManagedFields != nil || n.GenerateName != "" ||
		n.Labels["a"] != "b" || n.Status.Phase != corev1.NamespaceTerminating {
		t.Errorf("of a Namespace: %v", kept)
	}
	lease := &coordinationv1.Lease{ObjectMeta: meta}
	before := lease.DeepCopy()
	kept, _ = slimLease(lease)
	if l, ok := kept.(*coordinationv1.Lease); !ok || l.ManagedFields != nil || l.GenerateName != "" || l.Annotations["a"] != text || l.UID != "u" {
		t.Errorf("of a Lease: %v", kept)
	}
	if !reflect.DeepEqual(lease, before) {
		t.Error("the Lease that was handed in has changed")
	}
	gone := toolscache.DeletedFinalStateUnknown{Key: "a"}
	for _, slim := range []func(any) (any, error){slimNamespace, slimLease} {
		if kept, err := slim(gone); err != nil || kept != any(gone) {
			t.Errorf("of what is no object: %v, %v", kept, err)
		}
	}
}
