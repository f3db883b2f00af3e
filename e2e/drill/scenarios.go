package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

// scenarios are by the names that make drill takes.
var scenarios = map[string]scenario{
	"demo":        {"A leader is lost, comes back, and another one is ordered.", demo},
	"leader-lost": {"The leader's API server hangs; its controllers go on, and are not notified.", leaderLost},
	"partition":   {"Nothing passes between the hub and the leader, which goes on.", partition},
	"drain":       {"An operator drains the leader's cluster for a while.", drain},
	"hub-lost":    {"The hub is gone for longer than a term.", hubLost},
	"failback":    {"The leader is lost and comes back, and the policy fails back.", failback},
	"rotation":    {"The leader's kubeconfig is rotated, and the old one is revoked.", rotation},
	"flapping":    {"The link to the leader breaks again and again.", flapping},
}

// leaderLost also measures the failover against its floor.
func leaderLost(ctx context.Context, d *drill) {
	east, f := d.Fleet.Member("east"), &d.figures
	at := harness.Now().Boot
	must.Do(east.Pause())
	d.Did(at, fmt.Sprintf("east's API server is paused (SIGSTOP to process %d)", east.PIDs().APIServer))
	for namespace, acted := range d.next(ctx, "west", at) {
		stamp, ok := harness.LastRenewTime(d.view.Leases["east"].Seen(), namespace, at)
		must.FailIf(!ok, "%s: no Lease was seen in east that let it act", namespace)
		if took := (acted - at).Seconds(); f.Failover == nil || took > *f.Failover {
			floor := harness.Floor(d.Timings, at, stamp, 0).Seconds()
			f.Failover, f.Floor = &took, &floor
		}
	}
	d.Step(fmt.Sprintf("failover took %.2f s; no lease of these timings could have let go of east before %.2f s",
		*f.Failover, *f.Floor))
	healed := harness.Now().Boot
	must.Do(east.Resume())
	d.Undid(healed, "east's API server goes on")
	d.recovered(ctx)
	d.stays(ctx, "west")
}

// demo is leaderLost and a planned change.
func demo(ctx context.Context, d *drill) {
	leaderLost(ctx, d)
	d.Say("A planned change: the operator gives south the highest priority.")
	at := harness.Now().Boot
	must.Do(d.SetPriority(ctx, "south", 200))
	d.Did(at, "kubectl label cluster south leasecast.dev/priority=200 --overwrite")
	for _, acted := range d.next(ctx, "south", at) {
		if took := (acted - at).Seconds(); d.figures.Handover == nil || took > *d.figures.Handover {
			d.figures.Handover = &took
		}
	}
	d.Step(fmt.Sprintf("handover took %.2f s", *d.figures.Handover))
	d.stays(ctx, "south")
}

// cut cuts the hub off from east.
func (d *drill) cut() (at time.Duration) {
	at = harness.Now().Boot
	d.Fleet.Member("east").Proxy().BlackHole()
	d.Did(at, "nothing passes between the hub and east")
	return at
}

func (d *drill) heal() (at time.Duration) {
	at = harness.Now().Boot
	d.Fleet.Member("east").Proxy().Heal()
	d.Undid(at, "the hub reaches east again")
	return at
}

func partition(ctx context.Context, d *drill) {
	d.next(ctx, "west", d.cut())
	d.heal()
	d.recovered(ctx)
	d.stays(ctx, "west")
}

func drain(ctx context.Context, d *drill) {
	at, until := harness.Now().Boot, time.Now().Add(10*time.Second)
	must.Do(d.Drain(ctx, "east", until))
	d.Did(at, "kubectl annotate cluster east leasecast.dev/drain-until=(in 10 s)")
	d.next(ctx, "west", at)
	must.Do(process.Pass(ctx, time.Until(until)))
	d.Undid(harness.Now().Boot, "the drain is over")
	d.stays(ctx, "west")
	d.recovered(ctx)
}

// hubLost ends with the same leader: its Leases name it.
func hubLost(ctx context.Context, d *drill) {
	at := harness.Now().Boot
	must.Do(d.LatestHub().Kill())
	d.Did(at, "the hub is killed")
	must.Do(process.Pass(ctx, 3*d.Timings.Duration))
	back := harness.Now().Boot
	must.Get(d.StartHub())
	d.HubBack(back, "another hub starts")
	d.next(ctx, "east", back)
	d.leaders = d.leaders[1:] // it is the same one
	d.stays(ctx, "east")
}

func failback(ctx context.Context, d *drill) {
	policy := &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: harness.PolicyName},
	}
	at := harness.Now().Boot
	patch := client.RawPatch("application/merge-patch+json",
		[]byte(`{"spec":{"failback":"Automatic","failbackAfterSeconds":5}}`))
	must.Do(d.Hub.Patch(ctx, policy, patch))
	d.Did(at, "the policy gets failback: Automatic, after 5 s")
	d.next(ctx, "west", d.cut())
	d.next(ctx, "east", d.heal())
	d.stays(ctx, "east")
}

// rotation gives the hub a user with rights in east, and takes them from the one before.
func rotation(ctx context.Context, d *drill) {
	east, users := d.Fleet.Member("east"), []string{"first", "second"}
	binding := func(user string) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: user},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		}
	}
	for i, user := range users {
		must.Do(d.Members["east"].Create(ctx, binding(user)))
		kubeconfig := must.Get(fleet.Kubeconfig("east", east.ViaProxy(must.Get(east.UserConfig(user)))))
		at := harness.Now().Boot
		must.Do(d.Fleet.SetKubeconfig(ctx, harness.FleetNamespace, "east", kubeconfig))
		d.Did(at, "the Secret of east gets the kubeconfig of its "+user+" user")
		d.stays(ctx, "east")
		if i > 0 {
			at := harness.Now().Boot
			must.Do(d.Members["east"].Delete(ctx, binding(users[i-1])))
			d.Did(at, "the rights of the "+users[i-1]+" user are revoked")
			d.stays(ctx, "east")
		}
	}
	var errs []error
	for place, seen := range d.view.Terms() {
		if _, err := harness.Unbroken(seen, time.Now()); err != nil {
			errs = append(errs, errors.Join(errors.New(place.String()), err))
		}
	}
	must.Do(errors.Join(errs...))
}

// flapping breaks a link for longer than the hub waits, and no shorter than it takes to be a candidate again. East
// loses the lead once.
func flapping(ctx context.Context, d *drill) {
	first := d.cut()
	d.next(ctx, "west", first)
	for range 4 {
		d.heal()
		must.Do(process.Pass(ctx, 1500*time.Millisecond))
		d.cut()
		must.Do(process.Pass(ctx, 2500*time.Millisecond))
	}
	d.heal()
	d.recovered(ctx)
	d.stays(ctx, "west")
}
