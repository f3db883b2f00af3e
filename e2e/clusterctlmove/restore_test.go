package clusterctlmove

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// late is a namespace that gets its leader after the hub's snapshot was taken.
const late = "late"

// TestARestoredHubKeepsEveryLeader: the hub's etcd goes back to a time when nobody led one of the namespaces: the record
// is older than the copies, and the election's Lease is, too. No term ends, and no epoch falls.
func TestARestoredHubKeepsEveryLeader(t *testing.T) {
	first, _ := stage.sites()
	epochs := stage.led(t, first)
	v := look(t, stage)
	pause(t, first, "west", true)
	stage.nobodyLeads(t, first, late)
	snapshot, err := first.fleet.Hub().Snapshot(t.Context())
	harness.Must(t, err)
	pause(t, first, "west", false)
	epoch := stage.leads(t, first, late, "west")
	// A better cluster comes. It takes nothing over, then or after the restore.
	harness.Must(t, stage.d.MemberClient("east").Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: late}}))
	stage.d.Eventually(t, patience, "east follows in "+late, func(ctx context.Context) error {
		_, err := stage.copy(ctx, "east", late)
		return err
	})

	hubs := stage.d.Hubs()
	harness.Must(t, hubs[len(hubs)-1].Kill())
	begin := harness.Now().Boot
	harness.Must(t, first.fleet.Hub().Restore(t.Context(), snapshot))
	_, err = stage.d.StartHub()
	harness.Must(t, err)
	if got := stage.leads(t, first, late, "west"); got != epoch {
		t.Errorf("%s: epoch %d, was %d", late, got, epoch)
	}
	for namespace, got := range stage.led(t, first) {
		if got != epochs[namespace] {
			t.Errorf("%s: epoch %d, was %d", namespace, got, epochs[namespace])
		}
	}
	t.Logf("%.1f s after the loss all is as it was", (harness.Now().Boot - begin).Seconds())
	v.settled()
	t.Logf("the closest renewal came %.1f s before the end of its term; the longest pause between two acts was %.2f s",
		v.unbroken(epochs).Seconds(), v.undisturbed().Seconds())
	pause(t, first, "west", false)
}

// TestARecordFromABackupIsARecord: a tool for backups writes objects anew, without their status. The record is all that the
// hub decides by, so every term goes on, for the reason for which it began.
func TestARecordFromABackupIsARecord(t *testing.T) {
	first, _ := stage.sites()
	epochs := stage.led(t, first)
	v := look(t, stage)
	hubs := stage.d.Hubs()
	harness.Must(t, hubs[len(hubs)-1].Kill())
	var list v1alpha1.NamespaceLeaderList
	harness.Must(t, first.client.List(t.Context(), &list, client.InNamespace(harness.FleetNamespace)))
	before := map[string]v1alpha1.NamespaceLeaderSpec{}
	for i := range list.Items {
		lost := &list.Items[i]
		before[lost.Name] = lost.Spec
		harness.Must(t, first.client.Delete(t.Context(), lost))
		harness.Must(t, first.client.Create(t.Context(), &v1alpha1.NamespaceLeader{
			ObjectMeta: metav1.ObjectMeta{Namespace: lost.Namespace, Name: lost.Name, Labels: lost.Labels}, Spec: lost.Spec,
		}))
	}
	_, err := stage.d.StartHub()
	harness.Must(t, err)
	v.settled()
	for namespace, got := range stage.led(t, first) {
		if got != epochs[namespace] {
			t.Errorf("%s: epoch %d, was %d", namespace, got, epochs[namespace])
		}
	}
	harness.Must(t, first.client.List(t.Context(), &list, client.InNamespace(harness.FleetNamespace)))
	for _, r := range list.Items {
		if was := before[r.Name]; r.Spec.Reason != was.Reason || !r.Spec.Since.Equal(was.Since) || r.Status.Message == "" {
			t.Errorf("%s: %s since %v (%s), was %s since %v", r.Name, r.Spec.Reason, r.Spec.Since, r.Status.Message, was.Reason, was.Since)
		}
	}
	v.unbroken(epochs)
	v.undisturbed()
}

// TestARestoredMemberKeepsItsTerms: a member's etcd goes back to a time when its copies were older, and resourceVersions
// with it. The leader goes on in its term, and the hub sees what happens there.
func TestARestoredMemberKeepsItsTerms(t *testing.T) {
	first, _ := stage.sites()
	epochs := stage.led(t, first)
	v := look(t, stage)
	east := stage.d.Fleet.Member("east")
	snapshot, err := east.Snapshot(t.Context())
	harness.Must(t, err)
	v.settled() // so that the copies of the snapshot are older
	harness.Must(t, east.Restore(t.Context(), snapshot))
	restored := harness.Now()
	stage.d.Eventually(t, patience, "shop is renewed in east", func(ctx context.Context) error {
		c, err := stage.copy(ctx, "east", "shop")
		if err == nil && !c.RenewTime.After(restored.Wall) {
			err = fmt.Errorf("it was renewed at %v", c.RenewTime)
		}
		return err
	})
	for namespace, epoch := range stage.led(t, first) {
		if epoch != epochs[namespace] {
			t.Errorf("%s: epoch %d, was %d", namespace, epoch, epochs[namespace])
		}
	}
	stage.d.Eventually(t, patience, "the guestbook in east goes on", func(context.Context) error {
		acts, err := stage.d.Guestbook("east").Acts.Acts()
		if err == nil && (len(acts) == 0 || acts[len(acts)-1].Begin < restored.Boot) {
			err = fmt.Errorf("it has not acted since")
		}
		return err
	})
	stage.repairs(t, "east", "depot")
	v.undisturbed()
	t.Logf("epochs are as they were %.1f s after the restore", (harness.Now().Boot - restored.Boot).Seconds())
}

// repairs deletes a follower's copy, and returns when the hub has put it back.
func (w *world) repairs(t *testing.T, member, namespace string) {
	t.Helper()
	l, err := w.lease(t.Context(), member, namespace)
	harness.Must(t, err)
	harness.Must(t, w.d.MemberClient(member).Delete(t.Context(), l))
	stage.d.Eventually(t, patience, "the copy in "+member+" is put back", func(ctx context.Context) error {
		now, err := w.lease(ctx, member, namespace)
		if err == nil && now.UID == l.UID {
			err = fmt.Errorf("it is not deleted yet")
		}
		return err
	})
}

// nobodyLeads makes a namespace in west, which may not be chosen, and returns when the record says that nobody leads.
func (w *world) nobodyLeads(t *testing.T, at site, namespace string) {
	t.Helper()
	p := &v1alpha1.LeadershipPolicy{}
	harness.Must(t, at.client.Get(t.Context(), client.ObjectKey{Namespace: harness.FleetNamespace, Name: harness.PolicyName}, p))
	p.Spec.Namespaces.Names = append(p.Spec.Namespaces.Names, namespace)
	harness.Must(t, at.client.Update(t.Context(), p))
	harness.Must(t, w.d.MemberClient("west").Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
	stage.d.Eventually(t, patience, "nobody leads "+namespace, func(ctx context.Context) error {
		r := &v1alpha1.NamespaceLeader{}
		err := at.client.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: namespace}, r)
		if err == nil && r.Spec.State != v1alpha1.StateVacant {
			err = fmt.Errorf("state %q", r.Spec.State)
		}
		return err
	})
}

// leads returns the epoch in which a cluster leads a namespace, once it does.
func (w *world) leads(t *testing.T, at site, namespace, leader string) (epoch int64) {
	t.Helper()
	hub := w.hubID(t, at)
	stage.d.Eventually(t, patience, leader+" leads "+namespace, func(ctx context.Context) (err error) {
		epoch, err = w.ledBy(ctx, at, hub, namespace, leader)
		return err
	})
	return epoch
}

// pause sets or clears what clusterctl sets.
func pause(t *testing.T, at site, cluster string, value bool) {
	t.Helper()
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"paused":%t}}`, value))
	stage.d.Eventually(t, patience, "the hub's API server answers", func(ctx context.Context) error {
		c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: cluster}}
		err := at.client.Patch(ctx, c, patch)
		if apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err
	})
}
