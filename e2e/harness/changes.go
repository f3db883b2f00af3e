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
	"github.com/leasecast/leasecast/e2e/process"
)

// changePatience bounds the wait for another leader, and for a member to be a candidate again.
const changePatience = time.Minute

// leader returns the cluster that leads a namespace, if it is another one than that.
func (d *Drill) leader(ctx context.Context, namespace, other string) (string, error) {
	r, err := d.Record(ctx, namespace)
	if err != nil {
		return "", err
	}
	leader := r.Spec.Leader
	if leader == "" || leader == other {
		return "", fmt.Errorf("the leader is %q, state %s", leader, r.Spec.State)
	}
	_, err = d.Leading(ctx, leader, namespace, leader)
	return leader, err
}

// AwaitLeader returns the cluster that leads a namespace, once it is another one than that.
func (d *Drill) AwaitLeader(ctx context.Context, namespace, other string) (leader string, err error) {
	err = d.Await(ctx, changePatience, "another cluster than "+other+" leads", func(ctx context.Context) (err error) {
		leader, err = d.leader(ctx, namespace, other)
		return err
	})
	return leader, err
}

// HandOver raises the member that comes after the leader above all, and returns it when it leads.
func (d *Drill) HandOver(ctx context.Context, namespace string) (leader string, err error) {
	from, err := d.AwaitLeader(ctx, namespace, "")
	if err != nil {
		return "", err
	}
	members := d.Fleet.Members()
	at := slices.IndexFunc(members, func(s *fleet.Server) bool { return s.Name() == from })
	d.mu.Lock()
	d.highest++
	priority := d.highest
	d.mu.Unlock()
	if err := d.SetPriority(ctx, members[(at+1)%len(members)].Name(), priority); err != nil {
		return "", err
	}
	return d.AwaitLeader(ctx, namespace, from)
}

// FailOver cuts the hub off from the leader, whose controllers go on, until another cluster leads and until has
// returned, which is called with that cluster. FailOver returns when the lost leader is a candidate again.
func (d *Drill) FailOver(ctx context.Context, namespace string,
	until func(ctx context.Context, leader string) error) error {
	from, err := d.AwaitLeader(ctx, namespace, "")
	if err != nil {
		return err
	}
	d.Fleet.Member(from).Proxy().BlackHole()
	to, err := d.AwaitLeader(ctx, namespace, from)
	if err == nil {
		err = until(ctx, to)
	}
	d.Fleet.Member(from).Proxy().Heal()
	if err != nil {
		return err
	}
	return d.AwaitEligible(ctx, changePatience, from, namespace)
}

// KillHub kills the hub, starts another one after this much time, and returns the cluster that leads then.
func (d *Drill) KillHub(ctx context.Context, namespace string, away time.Duration) (leader string, err error) {
	err = errors.Join(d.LatestHub().Kill(), process.Pass(ctx, away))
	if err == nil {
		_, err = d.StartHub()
	}
	if err != nil {
		return "", err
	}
	return d.awaitLive(ctx, namespace)
}

// PauseHub pauses the hub for this long, and returns the cluster that leads then.
func (d *Drill) PauseHub(ctx context.Context, namespace string, away time.Duration) (leader string, err error) {
	hub := d.LatestHub()
	if err := errors.Join(hub.Pause(), process.Pass(ctx, away), hub.Resume()); err != nil {
		return "", err
	}
	return d.awaitLive(ctx, namespace)
}

// awaitLive is AwaitLeader after a loss of the hub: a term that has ended does not count.
func (d *Drill) awaitLive(ctx context.Context, namespace string) (leader string, err error) {
	err = d.Await(ctx, changePatience, "a cluster leads again", func(ctx context.Context) error {
		if leader, err = d.leader(ctx, namespace, ""); err != nil {
			return err
		}
		l, err := d.LeaseIn(ctx, leader, namespace)
		if err != nil {
			return err
		}
		if end := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second); time.Now().After(end) {
			return fmt.Errorf("the term of %s ended at %v", leader, end)
		}
		return nil
	})
	return leader, err
}

// AwaitFenced returns the message of a policy's condition Fenced, once it is true.
func (d *Drill) AwaitFenced(ctx context.Context, policy string) (message string, err error) {
	err = d.Await(ctx, changePatience, "the fences are in force", func(ctx context.Context) error {
		p := &v1alpha1.LeadershipPolicy{}
		if err := d.Hub.Get(ctx, client.ObjectKey{Namespace: FleetNamespace, Name: policy}, p); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionFenced) {
			return fmt.Errorf("its conditions are %+v", p.Status.Conditions)
		}
		message = meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionFenced).Message
		return nil
	})
	return message, err
}
