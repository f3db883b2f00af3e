package leadership

import (
	"fmt"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

var three = map[string]string{"east": "100", "west": "50", "south": "10"}

var all = []string{"east", "west", "south"}

func TestEveryNamespaceHasTheBestClusterAsItsLeader(t *testing.T) {
	w := newWorld(t, three)
	a := w.namespace("a", all...)
	b := w.namespace("b", "west", "south")
	w.policy("p", a, b)
	w.released()
	w.startHub()
	w.leads("east", a, 15*time.Second, all...)
	w.leads("west", b, 15*time.Second, "west", "south")
	if _, err := w.copyIn("east", b); err == nil {
		t.Error("there is a copy in a member without the namespace")
	}
}

func TestTheLossOfALeaderIsSurvivedAndItsReturnChangesNothing(t *testing.T) {
	w := newWorld(t, three)
	a := w.namespace("a", all...)
	w.policy("p", a)
	w.released()
	w.startHub()
	before := w.leads("east", a, 15*time.Second, all...)

	shared.Member("east").Proxy().BlackHole()
	after := w.leads("west", a, 10*time.Second, "west", "south")
	if after <= before {
		t.Errorf("epoch %d after %d", after, before)
	}
	shared.Member("east").Proxy().Heal()
	w.eventually("east is told", 10*time.Second, func() error {
		l, err := w.copyIn("east", a)
		if err == nil && *l.Spec.HolderIdentity != "west."+w.fleet {
			err = fmt.Errorf("holder %s", *l.Spec.HolderIdentity)
		}
		return err
	})
	w.eventually("east is eligible again", 10*time.Second, func() error {
		r, err := w.record(a)
		if err != nil {
			return err
		}
		for _, c := range r.Status.Candidates {
			if c.Name == "east" && c.Eligible {
				return nil
			}
		}
		return fmt.Errorf("%+v", r.Status.Candidates)
	})
	if r, _ := w.record(a); r.Status.Leader != "west" || r.Status.Epoch != after {
		t.Errorf("recovery moved the leader: %+v", r.Status)
	}
}

func TestAnEditOfAPriorityMovesTheLeader(t *testing.T) {
	w := newWorld(t, three)
	a := w.namespace("a", all...)
	w.policy("p", a)
	w.released()
	w.startHub()
	w.leads("east", a, 15*time.Second, all...)
	w.setPriority("south", "200")
	w.leads("south", a, 10*time.Second, all...)
	r, err := w.record(a)
	w.must(err)
	if got := r.Status.Reason; got != "HandedOver" {
		t.Errorf("reason %s", got)
	}
	if h := r.Status.History; len(h) < 3 || h[1].Phase != v1alpha1.PhaseDraining || h[1].Reason != "PriorityChanged" {
		t.Errorf("history %+v", h)
	}
}

func TestARestartOfTheHubChangesNoLeader(t *testing.T) {
	w := newWorld(t, three)
	a := w.namespace("a", all...)
	w.policy("p", a)
	w.released()
	w.startHub()
	epoch := w.leads("east", a, 15*time.Second, all...)
	w.stop()
	w.startHub()
	before, err := w.copyIn("east", a)
	w.must(err)
	w.eventually("the new hub renews", 10*time.Second, func() error {
		now, err := w.copyIn("east", a)
		if err == nil && !now.Spec.RenewTime.After(before.Spec.RenewTime.Time) {
			err = fmt.Errorf("renewed at %v", now.Spec.RenewTime)
		}
		return err
	})
	if got := w.leads("east", a, time.Second, all...); got != epoch {
		t.Errorf("epoch %d, was %d", got, epoch)
	}
}
