package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// userLabel is on what gives the hub its rights in a member since the last rotation.
const userLabel = "leasecast.dev/chaos-user"

// rotate writes the kubeconfig of another member into the Secret, and after a while that of a new user of the right
// one. Then it revokes the rights of the user before.
func (st *testbed) rotate(ctx context.Context, a *Applied) {
	others := slices.DeleteFunc(memberNames(), func(name string) bool { return name == a.Target })
	wrong := must.Get(st.d.Fleet.Member(others[a.Choice]).ProxiedKubeconfig())
	st.setKubeconfig(ctx, a.Target, wrong)
	must.Do(process.Pass(ctx, a.For))
	said := st.eligible(ctx, a.Target)
	a.saw(said != nil, "it led to %s for a while, then to a new user; the hub reported: %v", others[a.Choice], said)
	st.newUser(ctx, a.Target)
}

// newUser gives the hub a new user in a member, and revokes the rights of the last one.
func (st *testbed) newUser(ctx context.Context, member string) {
	server, c := st.d.Fleet.Member(member), st.d.Members[member]
	name := fmt.Sprintf("leasecast-hub-%d", st.number())
	last := &rbacv1.ClusterRoleBindingList{}
	insist(ctx, func(ctx context.Context) error {
		return c.List(ctx, last, client.HasLabels{userLabel})
	})
	insist(ctx, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{userLabel: "true"}},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}))
	})
	config := must.Get(server.UserConfig(name))
	kubeconfig := must.Get(fleet.Kubeconfig(member, server.ViaProxy(config)))
	st.setKubeconfig(ctx, member, kubeconfig)
	for i := range last.Items {
		insist(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, &last.Items[i])) })
	}
}

func (st *testbed) setKubeconfig(ctx context.Context, member string, kubeconfig []byte) {
	insist(ctx, func(ctx context.Context) error {
		return st.d.Fleet.SetKubeconfig(ctx, harness.FleetNamespace, member, kubeconfig)
	})
}

// prefer changes the priority of a cluster: above or below all others.
func (st *testbed) prefer(ctx context.Context, a *Applied) {
	priority := st.number()
	if a.Choice == 1 {
		priority = 1
	}
	a.saw(true, "priority %d", priority)
	insist(ctx, func(ctx context.Context) error { return st.d.SetPriority(ctx, a.Target, priority) })
}

// eligible returns nil if the records say that a cluster is eligible wherever it takes part.
func (st *testbed) eligible(ctx context.Context, cluster string) error {
	return must.Try(func() {
		for _, namespace := range namespacesOf(cluster) {
			must.Do(st.d.Eligible(ctx, namespace, cluster))
		}
	})
}

// recreateNamespace deletes a namespace, waits until it is gone, and makes it again.
func (st *testbed) recreateNamespace(ctx context.Context, a *Applied) {
	c := st.d.Members[a.Target]
	object := func() *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace}}
	}
	was, is := object(), object()
	insist(ctx, func(ctx context.Context) error { return c.Get(ctx, client.ObjectKeyFromObject(was), was) })
	insist(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(c.Delete(ctx, object())) })
	insist(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(is), is); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("namespace %s is still in %s", a.Namespace, a.Target)
	})
	must.Do(process.Pass(ctx, a.For))
	insist(ctx, func(ctx context.Context) error {
		is = object()
		if err := c.Create(ctx, is); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return c.Get(ctx, client.ObjectKeyFromObject(is), is)
	})
	a.saw(is.UID != was.UID, "gone, and there again as another")
}

// lease reads the Lease in the fault's namespace, once its API server answers. It is nil if there is none.
func (st *testbed) lease(ctx context.Context, a *Applied) (l *coordinationv1.Lease) {
	insist(ctx, func(ctx context.Context) (err error) {
		if l, err = st.d.LeaseIn(ctx, a.Target, a.Namespace); apierrors.IsNotFound(err) {
			l, err = nil, nil
		}
		return err
	})
	if l == nil {
		a.saw(false, "there was no Lease")
	}
	return l
}

// mended describes when the hub repaired a Lease, if it did: another one is there, or another version.
func (st *testbed) mended(ctx context.Context, a *Applied, old func(*coordinationv1.Lease) bool) string {
	began := harness.Now().Boot
	err := await(ctx, func(ctx context.Context) error {
		is, err := st.d.LeaseIn(ctx, a.Target, a.Namespace)
		if err == nil && old(is) {
			return errors.New("it is the old one")
		}
		return err
	})
	if err != nil {
		return fmt.Sprintf("not mended within %s", effectPatience)
	}
	return fmt.Sprintf("mended after %.2f s", (harness.Now().Boot - began).Seconds())
}

func (st *testbed) deleteLease(ctx context.Context, a *Applied) {
	was := st.lease(ctx, a)
	if was == nil {
		return
	}
	insist(ctx, func(ctx context.Context) error {
		err := st.d.Members[a.Target].Delete(ctx, was, client.Preconditions{UID: &was.UID})
		if apierrors.IsConflict(err) { // it is gone, and another one is there
			return nil
		}
		return client.IgnoreNotFound(err)
	})
	a.saw(true, "deleted; %s", st.mended(ctx, a, func(is *coordinationv1.Lease) bool { return is.UID == was.UID }))
}

// edits are what a person may do to a Lease without forging a permission. The README lists who can.
var edits = []struct {
	name string
	do   func(*coordinationv1.Lease)
}{
	{"holder emptied", func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") }},
	{"holder replaced by a stranger",
		func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("stranger.default") }},
	{"stamp set back an hour", func(l *coordinationv1.Lease) {
		l.Spec.RenewTime = &metav1.MicroTime{Time: l.Spec.RenewTime.Add(-time.Hour)}
	}},
	{"duration shortened to a second", func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](1) }},
	{"label removed", func(l *coordinationv1.Lease) { delete(l.Labels, v1alpha1.ManagedLabel) }},
	{"seal garbled", func(l *coordinationv1.Lease) { l.Annotations[v1alpha1.SealAnnotation] = "v1.garbled" }},
}

func (st *testbed) editLease(ctx context.Context, a *Applied) {
	e := edits[a.Choice]
	l := st.lease(ctx, a)
	if l == nil {
		return
	}
	err := await(ctx, func(ctx context.Context) error { // again after a conflict with a renewal
		l = must.Get(st.d.LeaseIn(ctx, a.Target, a.Namespace))
		e.do(l)
		return st.d.Members[a.Target].Update(ctx, l)
	})
	if err != nil {
		a.saw(false, "%s: %v", e.name, err)
		return
	}
	a.saw(true, "%s; %s", e.name, st.mended(ctx, a, func(is *coordinationv1.Lease) bool {
		return is.ResourceVersion == l.ResourceVersion
	}))
}
