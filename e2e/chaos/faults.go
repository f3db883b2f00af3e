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
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/e2e/proxy"
)

const (
	// gonePatience bounds the wait for a deleted namespace to go, and for an API server that was started again.
	gonePatience = time.Minute
	// effectPatience bounds the wait for an effect that other faults may prevent.
	effectPatience = 3 * time.Second
	// userLabel is on what gives the hub its rights in a member since the last rotation.
	userLabel = "leasecast.dev/chaos-user"
)

// Applied is a fault that was played, on the boot clock.
type Applied struct {
	Fault
	Began, Ended time.Duration
	// Effect describes what the fault did, apart from what readers did. Took says whether it had the effect of its kind.
	Effect string
	Took   bool
}

func (a *Applied) saw(took bool, format string, args ...any) {
	a.Took, a.Effect = took, fmt.Sprintf(format, args...)
}

// apply plays a fault, from beginning to end. When it returns, everything is as before, except what the
// product has to repair. After an error the stage is broken.
func (st *stage) apply(ctx context.Context, a *Applied) error {
	switch a.Kind {
	case HubPause:
		return st.pauseProcess(ctx, a, st.hubs[a.Target])
	case ReaderPause:
		return st.pauseProcess(ctx, a, st.readers[a.Target])
	case HubKill:
		return st.killProcess(ctx, a, st.hubs[a.Target])
	case ReaderKill:
		return st.killProcess(ctx, a, st.readers[a.Target])
	case Sleeper:
		return st.sleepThrough(ctx, a)
	case KubeconfigSwap:
		return st.rotate(ctx, a)
	case Priority:
		return st.prefer(ctx, a)
	case LeaseDelete, LeaseEdit, NamespaceDelete:
		return st.applyObject(ctx, a)
	case ServerPause, ServerKill, EtcdPause, EtcdKill, EtcdRestore, LinkHalfOpen:
		return st.applyServer(ctx, a)
	default:
		return st.applyLink(ctx, a)
	}
}

func (st *stage) pauseProcess(ctx context.Context, a *Applied, k *process.Keeper) error {
	p, err := k.Pause()
	if p == nil || err != nil {
		a.saw(false, "there was no process")
		return err
	}
	err = process.Pass(ctx, a.For)
	a.saw(true, "process %d was paused", p.PID())
	select {
	case <-p.Ended():
		return err
	default:
		return errors.Join(err, p.Resume())
	}
}

func (st *stage) killProcess(ctx context.Context, a *Applied, k *process.Keeper) error {
	was := k.Current().PID()
	alive, err := k.Kill(ctx, a.For)
	if err != nil {
		return err
	}
	err = harness.Await(ctx, gonePatience, "the next process runs", func(context.Context) error {
		if k.Current().PID() == was {
			return errors.New("there is none")
		}
		return k.Check()
	})
	a.saw(alive, "process %d became %d", was, k.Current().PID())
	return err
}

// sleepThrough pauses a reader while its cluster loses what it leads. The link of the cluster goes dead, and the reader
// resumes when the successors act.
func (st *stage) sleepThrough(ctx context.Context, a *Applied) error {
	p, err := st.readers[a.Target].Pause()
	if p == nil || err != nil {
		a.saw(false, "there was no process")
		return err
	}
	link := st.d.Fleet.Member(a.Target).Proxy()
	link.BlackHole()
	err = process.Pass(ctx, a.For)
	a.saw(true, "process %d was paused behind a dead link", p.PID())
	err = errors.Join(err, p.Resume())
	link.Heal()
	return err
}

// rotate writes the kubeconfig of another member into the Secret, and after a while that of a new user of the right
// one. Then it revokes the rights of the user before.
func (st *stage) rotate(ctx context.Context, a *Applied) error {
	others := slices.DeleteFunc(memberNames(), func(name string) bool { return name == a.Target })
	wrong, err := st.d.Fleet.Member(others[a.Choice]).ProxiedKubeconfig()
	if err != nil {
		return err
	}
	if err := st.setKubeconfig(ctx, a.Target, wrong); err != nil {
		return err
	}
	if err := process.Pass(ctx, a.For); err != nil {
		return err
	}
	said := st.eligible(ctx, a.Target)
	a.saw(said != nil, "it led to %s for a while, then to a new user; the hub said: %v", others[a.Choice], said)
	return st.newUser(ctx, a.Target)
}

// newUser gives the hub a new user in a member, and revokes the rights of the last one.
func (st *stage) newUser(ctx context.Context, member string) error {
	server, c := st.d.Fleet.Member(member), st.d.Members[member]
	name := fmt.Sprintf("leasecast-hub-%d", st.number())
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{userLabel: "true"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	last := &rbacv1.ClusterRoleBindingList{}
	if err := insist(ctx, func(ctx context.Context) error {
		return c.List(ctx, last, client.HasLabels{userLabel})
	}); err != nil {
		return err
	}
	if err := insist(ctx, func(ctx context.Context) error {
		return client.IgnoreAlreadyExists(c.Create(ctx, binding.DeepCopy()))
	}); err != nil {
		return err
	}
	config, err := server.UserConfig(name)
	if err != nil {
		return err
	}
	kubeconfig, err := fleet.Kubeconfig(member, server.ViaProxy(config))
	if err != nil {
		return err
	}
	if err := st.setKubeconfig(ctx, member, kubeconfig); err != nil {
		return err
	}
	for i := range last.Items {
		if err := insist(ctx, func(ctx context.Context) error {
			return client.IgnoreNotFound(c.Delete(ctx, &last.Items[i]))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (st *stage) setKubeconfig(ctx context.Context, member string, kubeconfig []byte) error {
	return insist(ctx, func(ctx context.Context) error {
		return st.d.Fleet.SetKubeconfig(ctx, harness.FleetNamespace, member, kubeconfig)
	})
}

// insist repeats one of the drill's own requests until it succeeds. No fault of the schedule holds that API server, but
// on a busy machine etcd may take longer than the API server waits. The request must be repeatable.
func insist(ctx context.Context, request func(context.Context) error) error {
	return harness.Await(ctx, gonePatience, "the API server does what the drill asks for", request)
}

// prefer changes the priority of a cluster: above or below all others.
func (st *stage) prefer(ctx context.Context, a *Applied) error {
	priority := st.number()
	if a.Choice == 1 {
		priority = 1
	}
	a.saw(true, "priority %d", priority)
	return insist(ctx, func(ctx context.Context) error { return st.d.SetPriority(ctx, a.Target, priority) })
}

// eligible returns nil if the records say that a cluster is eligible wherever it takes part.
func (st *stage) eligible(ctx context.Context, cluster string) error {
	for _, namespace := range namespacesOf(cluster) {
		if err := st.d.Eligible(ctx, namespace, cluster); err != nil {
			return err
		}
	}
	return nil
}

// await waits for an effect that other faults may prevent.
func await(ctx context.Context, met func(context.Context) error) error {
	return harness.Await(ctx, effectPatience, "it has its effect", met)
}

// during calls look until d has passed, every few milliseconds.
func during(ctx context.Context, d time.Duration, look func(proxy.Stats), p *proxy.Proxy) error {
	until := harness.Now().Boot + d
	for harness.Now().Boot < until {
		look(p.Stats())
		if err := process.Pass(ctx, min(10*time.Millisecond, until-harness.Now().Boot)); err != nil {
			return err
		}
	}
	return nil
}

// applyObject is for faults at one Lease or its namespace.
func (st *stage) applyObject(ctx context.Context, a *Applied) error {
	c := st.d.Members[a.Target]
	ctx, cancel := context.WithTimeout(ctx, 2*gonePatience)
	defer cancel()
	if a.Kind == NamespaceDelete {
		return recreate(ctx, c, a)
	}
	copyOf := func(ctx context.Context) (*coordinationv1.Lease, error) {
		return st.d.LeaseIn(ctx, a.Target, a.Namespace)
	}
	var was *coordinationv1.Lease
	err := insist(ctx, func(ctx context.Context) (err error) {
		was, err = copyOf(ctx)
		return client.IgnoreNotFound(err)
	})
	if err != nil {
		return err
	}
	if was.UID == "" {
		a.saw(false, "there was no Lease")
		return nil
	}
	began := harness.Now().Boot
	if a.Kind == LeaseDelete {
		if err := insist(ctx, func(ctx context.Context) error {
			err := c.Delete(ctx, was, client.Preconditions{UID: &was.UID})
			if apierrors.IsConflict(err) { // it is gone, and another one is there
				return nil
			}
			return client.IgnoreNotFound(err)
		}); err != nil {
			return err
		}
		err := await(ctx, func(ctx context.Context) error {
			is, err := copyOf(ctx)
			if err == nil && is.UID == was.UID {
				return errors.New("it is the old one")
			}
			return err
		})
		a.saw(true, "deleted; %s", mended(err, began))
		return nil
	}
	edit(ctx, a, c, copyOf, began)
	return nil
}

// mended describes when an effect came, if it did.
func mended(err error, began time.Duration) string {
	if err != nil {
		return fmt.Sprintf("not mended within %s", effectPatience)
	}
	return fmt.Sprintf("mended after %.2f s", (harness.Now().Boot - began).Seconds())
}

// recreate deletes a namespace, waits until it is gone, and makes it again.
func recreate(ctx context.Context, c client.Client, a *Applied) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace}}
	if err := insist(ctx, func(ctx context.Context) error {
		return c.Get(ctx, client.ObjectKeyFromObject(namespace), namespace)
	}); err != nil {
		return err
	}
	was := namespace.UID
	if err := insist(ctx, func(ctx context.Context) error {
		return client.IgnoreNotFound(c.Delete(ctx, namespace))
	}); err != nil {
		return err
	}
	err := insist(ctx, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(namespace), namespace); err != nil {
			return client.IgnoreNotFound(err)
		}
		return fmt.Errorf("namespace %s is still in %s", a.Namespace, a.Target)
	})
	if err != nil {
		return err
	}
	if err := process.Pass(ctx, a.For); err != nil {
		return err
	}
	again := &corev1.Namespace{}
	if err := insist(ctx, func(ctx context.Context) error {
		again = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.Namespace}}
		if err := c.Create(ctx, again); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return c.Get(ctx, client.ObjectKeyFromObject(again), again)
	}); err != nil {
		return err
	}
	a.saw(again.UID != was, "gone, and there again as another")
	return nil
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

func edit(
	ctx context.Context, a *Applied, c client.Client,
	copyOf func(context.Context) (*coordinationv1.Lease, error), began time.Duration,
) {
	e := edits[a.Choice]
	var edited *coordinationv1.Lease
	err := await(ctx, func(ctx context.Context) (err error) { // again after a conflict with a renewal
		if edited, err = copyOf(ctx); err != nil {
			return err
		}
		e.do(edited)
		return c.Update(ctx, edited)
	})
	if err != nil {
		a.saw(false, "%s: %v", e.name, err)
		return
	}
	err = await(ctx, func(ctx context.Context) error {
		is, err := copyOf(ctx)
		if err == nil && is.ResourceVersion == edited.ResourceVersion {
			return errors.New("it is as edited")
		}
		return err
	})
	a.saw(true, "%s; %s", e.name, mended(err, began))
}
