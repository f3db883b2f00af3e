package guard_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard"
)

// A namespace gets its Lease, loses it, and is deleted. At no moment may a fenced account write where its cluster does
// not lead. Without its Lease, the hub has to write that again, and other programs go on with their elections.
func TestFence_IsInForceBeforeTheLeaseAndAfterIt(t *testing.T) {
	parallel(t)
	ns, h := newDoomedNamespace(t, "tenant-"), hubOf(t)
	admin, client := administrator(t), checkout(t, ns)
	f := fences(t, checkoutWrites, map[string]*state{ns: nil})
	mustAnswer(t, client, ns, "a", aConfig, noLeader)
	mustAnswer(t, admin, ns, "others", aConfig, allowed)

	shows(t, ns, eastLeads)
	h.keeps(t, f, map[string]bool{ns: true})
	answersSoon(t, client, ns, aConfig, allowed)

	mustSend(t, admin, ns, v1alpha1.DefaultLeaseName, "delete leases")
	answersSoon(t, client, ns, aConfig, noParameter)
	h.keeps(t, f, map[string]bool{ns: false})
	mustAnswer(t, client, ns, "b", aConfig, noParameter) // by the gate, which stays
	mustAnswer(t, admin, ns, "election", unmanaged, allowed)
	more := fenceOf(t, policy("more", allJobs, ns))
	h.keeps(t, more, map[string]bool{ns: true}) // its gate is seen to be in force without a Lease
	shows(t, ns, eastLeads)

	h.wants(more, nil)
	h.keeps(t, f, nil) // the namespace is terminating
	mustSend(t, admin, ns, v1alpha1.DefaultLeaseName, "delete leases")
	musttest.Do(t, admin.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
	eventually(t, "what is fenced can be deleted", func(ctx context.Context) error {
		err := send(ctx, admin, ns, "others", "delete configmaps")
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// No cluster leads a namespace that is terminating. The owner of a finalizer removes it while the fence is still there.
func TestFence_LetsATerminatingNamespaceGo(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	for before, lease := range map[string]*state{noLeader: nil, notLeading: &westLeads} {
		t.Run(before, func(t *testing.T) {
			ns := newNamespace(t)
			mustSend(t, admin, ns, "a", aConfig+` {"metadata":{"labels":{"led":"shop"},"finalizers":["example.com/held"]}}`)
			fences(t, ledConfigMaps, map[string]*state{ns: lease})
			const free = `merge configmaps {"metadata":{"finalizers":null}}`
			eventually(t, "it is fenced", func(ctx context.Context) error {
				return expect(send(ctx, admin, ns, "a", free), before)
			})
			musttest.Do(t, admin.CoreV1().Namespaces().Delete(t.Context(), ns, metav1.DeleteOptions{}))
			eventually(t, "the finalizer is removed", func(ctx context.Context) error {
				return send(ctx, admin, ns, "a", free)
			})
			err := send(t.Context(), admin, ns, "b", aConfig+" {"+led+"}")
			if expect(err, "because it is being terminated") != nil && expect(err, before) != nil {
				t.Errorf("the answer about a new object is %v", err)
			}
		})
	}
}

// An API server keeps watching Leases when the last fence is removed.
func TestFence_ThatIsInstalledAgainEvaluatesCurrentLeases(t *testing.T) {
	guarded(t)
	ns := newNamespace(t)
	client := checkout(t, ns)
	fences(t, checkoutWrites, map[string]*state{ns: &westLeads})
	answersSoon(t, client, ns, aConfig, notLeading)
	hubOf(t).drops(t)
	answersSoon(t, client, ns, aConfig, allowed)
	mustSend(t, administrator(t), ns, v1alpha1.DefaultLeaseName, "delete leases")
	fences(t, checkoutWrites, map[string]*state{ns: &eastLeads})
	answersSoon(t, client, ns, aConfig, allowed)
}

// Of two policies that select a namespace, one owns it. The other one has no effect there.
func TestFence_ExcludesNamespacesThatAnotherPolicyOwns(t *testing.T) {
	parallel(t)
	admin, h := administrator(t), hubOf(t)
	named, selected, own := newNamespace(t), newNamespace(t), newNamespace(t)
	o, lost := policy("lost", ledConfigMaps, named, own), []string{named, selected}
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: selected}}
	before := fenceOf(t, o)
	after := guard.Fences("hub", o, lost)[0]
	if after.Name() != before.Name() {
		t.Errorf("%s is another fence", after.Name())
	}
	h.keeps(t, before, map[string]bool{named: false, selected: false, own: false})
	h.keeps(t, after, map[string]bool{own: false})
	for _, ns := range lost {
		answersSoon(t, admin, ns, aConfig+" {"+led+"}", allowed)
	}
	mustAnswer(t, admin, own, "a", aConfig+" {"+led+"}", noLeader)
}

// No cluster ever leads a namespace of the cluster itself.
func TestFence_ExcludesNamespacesOfTheCluster(t *testing.T) {
	guarded(t)
	admin, other, system := administrator(t), newNamespace(t), newDoomedNamespace(t, "kube-tenant-")
	t.Cleanup(func() { _ = admin.CoreV1().Namespaces().Delete(context.Background(), system, metav1.DeleteOptions{}) })
	o := policy("all", ledConfigMaps)
	o.Spec.Namespaces.Selector = &metav1.LabelSelector{}
	hubOf(t).keeps(t, fenceOf(t, o), map[string]bool{other: false})
	mustAnswer(t, admin, other, "a", aConfig+" {"+led+"}", noLeader)
	mustAnswer(t, admin, system, "a", aConfig+" {"+led+"}", allowed)
	hubOf(t).drops(t) // the fence covers the namespaces of other tests, too
	answersSoon(t, admin, other, aConfig+" {"+led+"}", allowed)
}

// writing has an account write until stop is called, and counts how many writes were rejected and accepted.
func writing(t *testing.T, ns string) (rejected, accepted *atomic.Int64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	client, done := checkout(t, ns), make(chan struct{})
	rejected, accepted = new(atomic.Int64), new(atomic.Int64)
	go func() {
		defer close(done)
		for n := 0; ctx.Err() == nil; n++ {
			switch err := send(ctx, client, ns, fmt.Sprintf("n-%d", n), aConfig); {
			case err == nil:
				accepted.Add(1)
			case strings.Contains(err.Error(), "ValidatingAdmissionPolicy "):
				rejected.Add(1)
			}
		}
	}()
	stop = func() { cancel(); <-done }
	t.Cleanup(stop)
	return rejected, accepted, stop
}

// An API server that starts serves before it has read the Leases.
func TestFence_RejectsWhileAnAPIServerStarts(t *testing.T) {
	guarded(t)
	ended := state{began: -2 * time.Hour, renewed: -2 * time.Hour}
	for name, lease := range map[string]*state{"another cluster leads": &westLeads, "the term has ended": &ended} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			fences(t, checkoutWrites, map[string]*state{ns: lease})
			rejected, accepted, stop := writing(t, ns)
			more := func(n int64) func(context.Context) error {
				before := rejected.Load()
				return func(context.Context) error {
					if n := before + n - rejected.Load(); n > 0 {
						return fmt.Errorf("%d are missing", n)
					}
					return nil
				}
			}
			eventually(t, "a write is rejected", more(1))
			musttest.Do(t, server.Restart(t.Context()))
			eventually(t, "writes are rejected again", more(100))
			if stop(); accepted.Load() > 0 {
				t.Errorf("%d writes were accepted", accepted.Load())
			}
		})
	}
}

// An API server whose watches show nothing new goes by its own clock.
func TestFence_EndsTheTermOfAStaleAPIServer(t *testing.T) {
	guarded(t)
	ns := newNamespace(t)
	client := checkout(t, ns)
	fences(t, checkoutWrites, map[string]*state{ns: &westLeads})
	const lasts = 12 * time.Second
	now := time.Now() // the term begins when the fence is in force
	mustSend(t, administrator(t), ns, v1alpha1.DefaultLeaseName, "merge leases "+fmt.Sprintf(
		`{"spec":{"holderIdentity":"east.fleet","acquireTime":%[1]q,"renewTime":%[1]q,"leaseDurationSeconds":12}}`,
		now.UTC().Format(metav1.RFC3339Micro)))
	answersSoon(t, client, ns, aConfig, allowed)
	musttest.Do(t, server.PauseEtcd())
	t.Cleanup(func() { _ = server.ResumeEtcd() })
	deadline := now.Add(lasts)
	<-time.After(time.Until(deadline))
	mustAnswer(t, client, ns, "after-the-term", aConfig, termIsOver)
	musttest.Do(t, server.ResumeEtcd())
	eventually(t, "what was written can be read", func(ctx context.Context) error {
		all, err := client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		for i := range all.Items {
			if o := &all.Items[i]; o.CreationTimestamp.After(deadline) {
				t.Errorf("%s was written at %v, the term ended at %v", o.Name, o.CreationTimestamp, deadline)
			}
		}
		return err
	})
}

// An expression that reads an absent field is an error, and an error rejects.
func TestFence_RejectsWithAForeignLease(t *testing.T) {
	parallel(t)
	ns := newNamespace(t)
	mustSend(t, administrator(t), ns, v1alpha1.DefaultLeaseName, unmanaged)
	fencing := checkoutWrites // an API server accepts no resource twice
	fencing.Writes = append(fencing.Writes, v1alpha1.WriteFence{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "binder"}},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"pods", "bindings"}}},
	})
	f := fenceOf(t, policy("shops", fencing, ns))
	hubOf(t).keeps(t, f, map[string]bool{ns: true})
	answersSoon(t, checkout(t, ns), ns, aConfig, "resulted in error")
}
