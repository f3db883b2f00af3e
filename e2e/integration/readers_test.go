package integration

import (
	"context"
	"fmt"
	"sync"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must/musttest"
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
		cfg := musttest.Get(w.Servers.Member(m).ServiceAccountConfig(ctx, lock.Namespace, "stock", []rbacv1.PolicyRule{
			{
				APIGroups: []string{"coordination.k8s.io"},
				Resources: []string{"leases"},
				Verbs:     []string{"get", "create", "update"},
			},
		}))(w.T)
		cfg.Timeout = time.Duration(lock.RequestTimeoutSeconds) * time.Second
		c := musttest.Get(kubernetes.NewForConfig(cfg))(w.T)
		elector := musttest.Get(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
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
