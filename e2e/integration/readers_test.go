package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/member"
)

// reader runs the member library in a member, as a controller there does.
func (w *world) reader(in, namespace string) *member.Member {
	m, _ := harness.RunMember(w.T, w.Servers.Member(in).AdminConfig(), member.Options{
		Namespaces: []string{namespace}, MaxClockSkew: epsilon,
	})
	harness.AwaitSync(w.T, m)
	return m
}

func TestAnEditThatReadersBelieveIsRepairedAndOvercomeByANewTerm(t *testing.T) {
	t.Parallel()
	longer := func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To[int32](3600) }
	w, a, b, epoch := eastLeadsTwo(t, brief)
	j, key := w.keeps("east", b), w.sealKey()
	before := harness.Get(w.Record(a))(t)
	east, west := w.reader("east", a), w.reader("west", a)

	// In a follower it is repaired, and nobody else notices.
	w.spoil("west", a, key, epoch, longer)
	w.unmoved(before)
	// In the leader it takes a new term, which comes in order. The old one may end before it is repaired.
	w.edit("east", a, longer)
	after := w.leadsIn("east", a, epoch+1)
	if r := harness.Get(w.Record(a))(t); r.Spec.Reason != reason.NewTerm {
		t.Errorf("reason %s", r.Spec.Reason)
	}
	w.leadsByReader(east, a, after)
	j.check()
	// The reader of the follower has to believe the next change too.
	w.setPriority("west", "200")
	w.leadsByReader(west, a, w.Leads("west", a, w.ordered(), all...))
}

// leadsIn waits until a cluster leads in a term of at least this epoch.
func (w *world) leadsIn(leader, namespace string, atLeast int64) (epoch int64) {
	w.Eventually(fmt.Sprintf("%s leads in epoch %d or later", leader, atLeast), w.ordered(), func() error {
		r, err := w.Record(namespace)
		if s := r.Spec; err == nil && (s.Leader != leader || s.State != v1alpha1.StateLeading || s.Epoch < atLeast) {
			err = fmt.Errorf("%s, %s, epoch %d, %s", s.Leader, s.State, s.Epoch, s.Reason)
		}
		epoch = r.Spec.Epoch
		return err
	})
	return epoch
}

// leadsByReader waits until a reader believes that its cluster leads, and for no longer
// than was promised.
func (w *world) leadsByReader(m *member.Member, namespace string, epoch int64) {
	w.Eventually(fmt.Sprintf("the reader leads in epoch %d", epoch), soon, func() error {
		term, ok := m.Term(namespace)
		if !ok || term.Epoch() != epoch {
			return fmt.Errorf("leads: %v, epoch %d", ok, term.Epoch())
		}
		if left := term.Remaining(); left > w.duration() {
			return fmt.Errorf("%v remain of a term of %v", left, w.duration())
		}
		return nil
	})
}

// elect runs a stock elector in each member, with a lock in that member.
func (w *world) elect(lock v1alpha1.LockFence, members ...string) {
	ctx, cancel := context.WithCancel(w.T.Context())
	var group sync.WaitGroup
	w.T.Cleanup(func() { cancel(); group.Wait() })
	for _, m := range members {
		cfg := harness.Get(w.Servers.Member(m).ServiceAccountConfig(ctx, lock.Namespace, "stock", []rbacv1.PolicyRule{
			{
				APIGroups: []string{"coordination.k8s.io"},
				Resources: []string{"leases"},
				Verbs:     []string{"get", "create", "update"},
			},
		}))(w.T)
		cfg.Timeout = time.Duration(lock.RequestTimeoutSeconds) * time.Second
		c := harness.Get(kubernetes.NewForConfig(cfg))(w.T)
		elector := harness.Get(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock: &resourcelock.LeaseLock{
				LeaseMeta: metav1.ObjectMeta{Namespace: lock.Namespace, Name: lock.Name}, Client: c.CoordinationV1(),
				LockConfig: resourcelock.ResourceLockConfig{Identity: "stock-in-" + m},
			},
			LeaseDuration: time.Duration(lock.LeaseDurationSeconds) * time.Second,
			RenewDeadline: time.Duration(lock.RenewDeadlineSeconds) * time.Second,
			RetryPeriod:   time.Duration(lock.RetryPeriodSeconds) * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(context.Context) {},
				OnStoppedLeading: func() {},
			},
		}))(w.T)
		group.Go(func() { elector.Run(ctx) })
	}
}

// A lock takes two looks, ten seconds apart. The hub needs no other right for them than those of config/member, and for
// accounts that of config/fencing.
func TestAFencedLockThatIsHeldWhereItsClusterLeads(t *testing.T) {
	t.Parallel()
	w := newWorld(t, steady, three)
	w.allowFences(all...)
	a := w.namespace("a", all...)
	lock := v1alpha1.LockFence{
		Namespace:             a,
		Name:                  "stock",
		LeaseDurationSeconds:  6,
		RenewDeadlineSeconds:  4,
		RetryPeriodSeconds:    1,
		RequestTimeoutSeconds: 2,
		ReleaseTimeoutSeconds: ptr.To[int32](0),
	}
	p := w.NewPolicy("p", a)
	p.Spec.Fencing = &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{lock}, Writes: []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "chekout"}, {Name: "default"}},
		Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
	}}}
	w.Must(w.Hub.Create(t.Context(), p))
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	w.awaitPolicy("p", v1alpha1.ConditionFencesInForce, metav1.ConditionTrue, "InForce")
	w.awaitPolicy("p", v1alpha1.ConditionFenceTargetsFound, metav1.ConditionFalse, string(reason.AccountMissing),
		"there is no ServiceAccount chekout in east, south, west")
	w.Must(w.Hub.Get(t.Context(), client.ObjectKeyFromObject(p), p))
	p.Spec.Fencing.Writes[0].ServiceAccounts = p.Spec.Fencing.Writes[0].ServiceAccounts[1:] // the name was wrong
	w.Must(w.Hub.Update(t.Context(), p))
	w.awaitPolicy("p", v1alpha1.ConditionFenceTargetsFound, metav1.ConditionUnknown, string(reason.LockUnseen), a+"/stock")
	w.elect(lock, all...)
	// The lock opens when every earlier holder must have stopped, and is looked at twice after that.
	w.Eventually("the lock is seen to be held", time.Minute, func() error {
		p := &v1alpha1.LeadershipPolicy{}
		must.Do(w.Hub.Get(t.Context(), types.NamespacedName{Namespace: w.Fleet, Name: "p"}, p))
		return conditionIs(p.Status.Conditions, v1alpha1.ConditionFenceTargetsFound,
			metav1.ConditionTrue, string(reason.TargetsFound))
	})
}
