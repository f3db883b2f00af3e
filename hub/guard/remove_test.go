package guard_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// A fence is removed when what follows is in force. In between, nothing would be rejected.
func TestKeeper_RemovesAFenceWhenTheNextOneIsInForce(t *testing.T) {
	h, l := linked(t)
	ns, client := newNamespace(t), administrator(t)
	before, after := fenceOf(t, policy("shops", allJobs, ns)), fenceOf(t, policy("shops", ledConfigMaps, ns))
	tills := fenceOf(t, policy("tills", allJobs, ns))
	denied := guard.NotAllowedError{Namespaces: []string{"ci"}}
	h.keeps(t, before, map[string]bool{ns: false})
	for _, step := range []struct {
		when  string
		do    func()
		fence guard.Fence
		stays bool
	}{
		{"the next one is rejected", func() { h.desires(ns, false, after); l.will(422, "write shops") }, before, true},
		{"the next one is not answered", func() { l.will(500, "write shops") }, before, true},
		{"the next one is not in force", func() { l.will(0, "write shops"); l.will(201, "probe wall") }, before, true},
		{"the next one is in force", func() { l.will(0, "probe wall") }, before, false},
		{"its policy is invalid", func() { h.desired = guard.Desired{Invalid: []string{"shops"}} }, after, true},
		{"another one is not answered", func() { h.desires(ns, false, tills); l.will(500, "write tills") }, after, true},
		{"another one is rejected", func() { l.will(422, "write tills") }, after, false},
		{"it is in force", func() { l.will(0, "write tills") }, tills, true},
		{"it is not allowed any more", func() { h.desired.Denied = map[string]error{tills.Name(): denied} }, tills, false},
	} {
		step.do()
		h.at += 5 * time.Second
		h.turn(t.Context())
		stored := func(ctx context.Context) error {
			_, err := read(ctx, client, step.fence.Names()[1]) // its wall: there is no Lease
			return err
		}
		if err := stored(t.Context()); step.stays && err != nil {
			t.Errorf("%s: %v", step.when, err)
		} else if !step.stays {
			eventually(t, step.when, func(ctx context.Context) error {
				if h.turn(ctx); !apierrors.IsNotFound(stored(ctx)) {
					return errors.New("it is stored")
				}
				return nil
			})
		}
	}
	if err := h.Unfenced(tills, ns); !slices.Equal(guard.DeniedIn(err), denied.Namespaces) {
		t.Errorf("what is not allowed is missing: %v", err)
	}
}

// An earlier fence waits for fences that are pending in its own namespaces, and for no others.
func TestKeeper_RemovesAFenceThatNoPendingOneFollows(t *testing.T) {
	h, l := linked(t)
	pending, other, client := newNamespace(t), newNamespace(t), administrator(t)
	for _, ns := range []string{pending, other} {
		shows(t, ns, westLeads)
		allow(t, ns, v1alpha1.FencingAllowed)
	}
	selecting := func(name, ns string) *v1alpha1.LeadershipPolicy {
		o := policy(name, allJobs)
		o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}
		return o
	}
	type row struct {
		earlier, next *v1alpha1.LeadershipPolicy
		leased        bool // the namespaces have their Lease
		code          int  // how probes in the namespace pending are answered
		stays         bool
		edit          func(stored) // of the earlier one, or nil
	}
	unmarked := func(s stored) { s.Binding.Annotations["leasecast.dev/selector"] = "" }
	jobs := func(name string, in ...string) *v1alpha1.LeadershipPolicy { return policy(name, allJobs, in...) }
	for name, row := range map[string]row{
		"a gate, another namespace is not answered": {jobs("shops", other), jobs("tills", pending), true, 500, false, nil},
		"a wall, another namespace is not answered": {jobs("shops", other), jobs("tills", pending), false, 500, false, nil},
		"a wall, another namespace is not fenced":   {jobs("shops", other), jobs("tills", pending), false, 201, false, nil},
		"a wall by a selector, another namespace is not answered": {selecting("shops", other), jobs("tills", pending),
			false, 500, false, nil},
		"a lock, another namespace is not answered": {policy("shops", lockIn(other), other), jobs("tills", pending),
			true, 500, false, nil},
		"a gate, the next one is in force there, and not elsewhere": {jobs("shops", other), jobs("tills", pending, other),
			true, 500, false, nil},
		"a gate of the namespace":               {jobs("shops", pending), jobs("tills", pending), true, 500, true, nil},
		"a wall of the namespace":               {jobs("shops", pending), jobs("tills", pending), false, 201, true, nil},
		"a wall by a selector of the namespace": {selecting("shops", pending), jobs("tills", pending), false, 500, true, nil},
		"a lock, the next lock of the namespace is not answered": {policy("shops", lockIn(pending), other),
			policy("tills", lockIn(pending), other), true, 500, true, nil},
		"a wall without its mark, another namespace is not answered": {jobs("shops", other), jobs("tills", pending),
			false, 500, true, unmarked},
	} {
		t.Run(name, func(t *testing.T) {
			earlier, next := fenceOf(t, row.earlier), fenceOf(t, row.next)
			in := func(f guard.Fence) map[string]bool {
				active := map[string]bool{}
				for _, ns := range []string{pending, other} {
					if f.Selects(ns, labels.Set{corev1.LabelMetadataName: ns}) {
						active[ns] = row.leased
					}
				}
				return active
			}
			answers := func(code int) { l.will(code, "/apis/coordination.k8s.io/v1/namespaces/"+pending+"/leases") }
			answers(0)
			h.keeps(t, earlier, in(earlier))
			covers := earlier.Names()[0] // the gate, or the wall
			if !row.leased {
				covers = earlier.Names()[1]
			}
			if answers(row.code); row.edit != nil {
				edited(t, client, covers, row.edit)
			}
			h.desired = guard.Desired{}
			h.wants(next, in(next))
			gone := func(ctx context.Context) error {
				h.at += guard.LookEvery
				h.turn(ctx)
				if _, err := read(ctx, client, covers); !apierrors.IsNotFound(err) {
					return errors.Join(errors.New("it is not gone"), err)
				}
				return nil
			}
			if row.stays {
				for range 3 {
					if gone(t.Context()) == nil {
						t.Fatal("it is gone, and the next one is not in force")
					}
				}
				answers(0)
			}
			eventually(t, "it is gone", gone)
		})
	}
}

// What the earlier policy fenced stays fenced until the fence of the next one rejects.
func TestKeeper_LeavesNoNamespaceWithoutAFence(t *testing.T) {
	h, l := linked(t)
	client := administrator(t)
	for name, leased := range map[string]bool{"a Lease": true, "no Lease": false} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			if leased {
				shows(t, ns, westLeads)
			}
			shops := policy("shops", allJobs, ns)
			earlier, next := fenceOf(t, shops), fenceOf(t, policy("tills", allJobs, ns))
			lost := guard.Fences("hub", shops, []string{ns})[0]
			h.desires(ns, leased, earlier)
			h.keeps(t, earlier, map[string]bool{ns: leased})
			fenced := func(ctx context.Context) bool { // by the gate where there is a Lease, and else by the wall
				names := lost.Names()
				gate, err := read(ctx, client, names[0])
				wall, _ := read(ctx, client, names[1])
				return err == nil && gate.Binding.Annotations["leasecast.dev/bound"] == ns ||
					wall.Binding.Annotations["leasecast.dev/bound"] == "/"
			}
			l.will(500, "write tills")
			h.desires(ns, leased, lost, next)
			for range 2 {
				h.at += guard.LookEvery
				h.turn(t.Context())
			}
			if !fenced(t.Context()) {
				t.Error("the earlier fence is gone, and the next one is not there")
			}
			l.will(0, "write tills")
			eventually(t, "the next fence is the only one", func(ctx context.Context) error {
				if h.turn(ctx); fenced(ctx) {
					return errors.New("the earlier one is in force")
				}
				return h.Unfenced(next, ns)
			})
		})
	}
}
