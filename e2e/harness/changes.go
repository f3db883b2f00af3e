package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/process"
)

// changePatience bounds the wait for another leader, and for a member to be a candidate again.
const changePatience = time.Minute

// AwaitLeader returns the cluster that leads a namespace, once it is another one than that.
func (d *Drill) AwaitLeader(ctx context.Context, namespace, other string) (leader string, err error) {
	err = d.Await(ctx, changePatience, "another cluster than "+other+" leads", func(ctx context.Context) error {
		r, err := d.Record(ctx, namespace)
		if err != nil {
			return err
		}
		if leader = r.Spec.Leader; leader == "" || leader == other {
			return fmt.Errorf("the leader is %q, state %s", leader, r.Spec.State)
		}
		_, err = d.Leading(ctx, leader, namespace, leader)
		return err
	})
	return leader, err
}

// HandOver raises the member that comes after the leader above all, and returns it when it leads. The first member
// comes after the last one.
func (d *Drill) HandOver(ctx context.Context, namespace string) (leader string, err error) {
	from, err := d.AwaitLeader(ctx, namespace, "")
	if err != nil {
		return "", err
	}
	members := d.Fleet.Members()
	at := slices.IndexFunc(members, func(s *fleet.Server) bool { return s.Name() == from })
	to := members[(at+1)%len(members)].Name()
	d.mu.Lock()
	d.highest++
	priority := d.highest
	d.mu.Unlock()
	if err := d.SetPriority(ctx, to, priority); err != nil {
		return "", err
	}
	return d.AwaitLeader(ctx, namespace, from)
}

// FailOver has the hub lose the leader, whose controllers go on. The leader is lost until another cluster leads and
// until has returned, which is called with that cluster. FailOver returns when the lost one is a candidate again.
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

// KillHub kills the hub, starts another one when this much time has passed, and returns the cluster that leads then.
func (d *Drill) KillHub(ctx context.Context, namespace string, away time.Duration) (leader string, err error) {
	if err := d.LatestHub().Kill(); err != nil {
		return "", err
	}
	if err := process.Pass(ctx, away); err != nil {
		return "", err
	}
	if _, err := d.StartHub(); err != nil {
		return "", err
	}
	return d.awaitLive(ctx, namespace)
}

// PauseHub pauses the hub for this long, and returns the cluster that leads then.
func (d *Drill) PauseHub(ctx context.Context, namespace string, away time.Duration) (leader string, err error) {
	if err := d.LatestHub().Pause(); err != nil {
		return "", err
	}
	if err := process.Pass(ctx, away); err != nil {
		return "", err
	}
	if err := d.LatestHub().Resume(); err != nil {
		return "", err
	}
	return d.awaitLive(ctx, namespace)
}

// awaitLive is AwaitLeader after a loss of the hub: the record and the Leases of before do not count.
func (d *Drill) awaitLive(ctx context.Context, namespace string) (leader string, err error) {
	err = d.Await(ctx, changePatience, "a cluster leads again", func(ctx context.Context) error {
		if leader, err = d.AwaitLeader(ctx, namespace, ""); err != nil {
			return err
		}
		l, err := d.LeaseIn(ctx, leader, namespace)
		if err != nil {
			return err
		}
		if end := l.Spec.RenewTime.Add(time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second); !time.Now().Before(end) {
			return fmt.Errorf("the term of %s ended at %v", leader, end)
		}
		return nil
	})
	return leader, err
}

// AwaitFenced returns what a policy says of its fences, when they are in force in all members.
func (d *Drill) AwaitFenced(ctx context.Context, policy string) (message string, err error) {
	err = d.Await(ctx, changePatience, "the fences are in force", func(ctx context.Context) error {
		p := &v1alpha1.LeadershipPolicy{}
		if err := d.Hub.Get(ctx, client.ObjectKey{Namespace: FleetNamespace, Name: policy}, p); err != nil {
			return err
		}
		c := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionFenced)
		if c == nil {
			return errors.New("its policy has no such condition")
		}
		if message = c.Message; c.Status != metav1.ConditionTrue {
			return errors.New(message)
		}
		return nil
	})
	return message, err
}
