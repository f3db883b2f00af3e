package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// changePatience bounds the wait for another leader, and for a member to be a candidate again.
const changePatience = time.Minute

// leader returns the cluster that leads a namespace, if it is another one than that.
func (d *Drill) leader(ctx context.Context, namespace, other string) string {
	is := must.Get(d.Record(ctx, namespace)).Spec
	must.FailIf(is.Leader == "" || is.Leader == other, "the leader is %q, state %s", is.Leader, is.State)
	must.Get(d.Leading(ctx, is.Leader, namespace, is.Leader))
	return is.Leader
}

// AwaitLeader returns the cluster that leads a namespace, once it is another one than that.
func (d *Drill) AwaitLeader(ctx context.Context, namespace, other string) (leader string, err error) {
	err = d.Await(ctx, changePatience, "another cluster than "+other+" leads", func(ctx context.Context) error {
		leader = d.leader(ctx, namespace, other)
		return nil
	})
	return leader, err
}

// HandOver raises the member that comes after the leader above all, and returns it when it leads.
func (d *Drill) HandOver(ctx context.Context, namespace string) (leader string, err error) {
	return must.Return(func() string {
		from := must.Get(d.AwaitLeader(ctx, namespace, ""))
		members := d.Fleet.Members()
		at := slices.IndexFunc(members, func(s *fleet.Server) bool { return s.Name() == from })
		d.mu.Lock()
		d.highest++
		priority := d.highest
		d.mu.Unlock()
		must.Do(d.SetPriority(ctx, members[(at+1)%len(members)].Name(), priority))
		return must.Get(d.AwaitLeader(ctx, namespace, from))
	})
}

// FailOver cuts the hub off from the leader, whose controllers go on, until another cluster leads and until has
// returned, which is called with that cluster. FailOver returns when the lost leader is a candidate again.
func (d *Drill) FailOver(ctx context.Context, namespace string,
	until func(ctx context.Context, leader string) error) error {
	return must.Try(func() {
		from := must.Get(d.AwaitLeader(ctx, namespace, ""))
		proxy := d.Fleet.Member(from).Proxy()
		proxy.BlackHole()
		err := must.Try(func() { must.Do(until(ctx, must.Get(d.AwaitLeader(ctx, namespace, from)))) })
		proxy.Heal()
		must.Do(err)
		must.Do(d.AwaitEligible(ctx, changePatience, from, namespace))
	})
}

// KillHub kills the hub, starts another one after this much time, and returns the cluster that leads then.
func (d *Drill) KillHub(ctx context.Context, namespace string, away time.Duration) (leader string, err error) {
	return must.Return(func() string {
		must.Do(errors.Join(d.LatestHub().Kill(), process.Pass(ctx, away)))
		must.Get(d.StartHub())
		return d.awaitLive(ctx, namespace)
	})
}

// PauseHub pauses the hub for this long, and returns the cluster that leads then.
func (d *Drill) PauseHub(ctx context.Context, namespace string, away time.Duration) (leader string, err error) {
	return must.Return(func() string {
		hub := d.LatestHub()
		must.Do(errors.Join(hub.Pause(), process.Pass(ctx, away), hub.Resume()))
		return d.awaitLive(ctx, namespace)
	})
}

// awaitLive is AwaitLeader after a loss of the hub: a term that has ended does not count.
func (d *Drill) awaitLive(ctx context.Context, namespace string) (leader string) {
	must.Do(d.Await(ctx, changePatience, "a cluster leads again", func(ctx context.Context) error {
		leader = d.leader(ctx, namespace, "")
		l := must.Get(d.LeaseIn(ctx, leader, namespace))
		end := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second)
		return must.ErrorIf(time.Now().After(end), "the term of %s ended at %v", leader, end)
	}))
	return leader
}

// AwaitFenced returns the message of a policy's condition FencesInForce, once it is true.
func (d *Drill) AwaitFenced(ctx context.Context, policy string) (message string, err error) {
	err = d.Await(ctx, changePatience, "the fences are in force", func(ctx context.Context) error {
		p := &v1alpha1.LeadershipPolicy{}
		must.Do(d.Hub.Get(ctx, client.ObjectKey{Namespace: FleetNamespace, Name: policy}, p))
		if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionFencesInForce) {
			return fmt.Errorf("its conditions are %+v", p.Status.Conditions)
		}
		message = meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionFencesInForce).Message
		return nil
	})
	return message, err
}
