package controller

import (
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/seal"
)

// otherKey is the key of another management cluster's hub.
var otherKey = seal.Key("fedcba9876543210fedcba9876543210")

// otherHub is the hub of another management cluster, as far as members see it. It leads each namespace in one cluster.
type otherHub struct {
	w      *world
	leader *member
	term   lease.Term
	over   bool
}

// otherHubWorld has another hub's Leases in the members, until somebody deletes them. The next term must wait for what
// the last of them has promised: readers learn of the deletion late.
var otherHubWorld = special{"another hub leads, until its Leases are deleted", func(w *world) {
	w.start, w.acknowledged, w.other = epoch0, false, &otherHub{w: w}
	w.only(func(f fault) bool { return hubsOwn(f) || strings.Contains(f.name, "connection of a reader") })
	w.lateWatch = 0.5
	w.faults += 10*time.Second + w.timings.Duration
}}

// begin has the other hub lead, until a while after that.
func (o *otherHub) begin() {
	w := o.w
	o.leader = w.members[0]
	since := w.start.Add(-time.Minute)
	o.term = lease.Term{
		Holder: o.leader.identity(), Epoch: lease.EpochFloor(since), AcquireTime: since,
		Duration: time.Duration(pick(w.rng, w.durations)) * time.Second,
	}
	for _, m := range w.members {
		o.write(m)
	}
	o.renew()
	w.after(w.between(w.timings.Duration, w.faults-8*time.Second), o.end)
}

// renew has it renew the leader's Leases, again and again.
func (o *otherHub) renew() {
	if o.over {
		return
	}
	o.write(o.leader)
	o.w.after(o.w.timings.Renew, o.renew)
}

func (o *otherHub) write(m *member) {
	term := o.term
	term.RenewTime = o.w.start.Add(o.w.now)
	for _, ns := range o.w.spaces {
		if _, exists := m.spaces[ns]; !exists {
			continue
		}
		key := types.NamespacedName{Namespace: ns, Name: leaseNames[0]}
		obj := &coordinationv1.Lease{}
		if old := m.leases[key]; old != nil {
			obj = old.DeepCopy()
		}
		c := lease.Content{
			Term: term, Namespace: ns, Name: key.Name, Cluster: m.identity(), ClusterUID: m.uid, Hub: "other-uid/leasecast",
			Skew: o.w.timings.Skew,
		}
		if err := seal.Write(otherKey, c, obj); err != nil {
			panic(err)
		}
		if obj.UID == "" {
			_, err := m.create(key, obj)
			if err != nil {
				panic(err)
			}
			continue
		}
		m.put(key, obj, obj.UID)
	}
}

// recorded reports whether the records say of each namespace that another hub leads.
func (o *otherHub) recorded() bool {
	return !slices.ContainsFunc(o.w.spaces, func(ns string) bool {
		r := o.w.hub.records[ns]
		return r == nil || r.Spec.Reason != reason.OtherHub
	})
}

// end stops it for good. Then somebody deletes its Leases, as hub/doc.go advises: once the records say that it leads.
func (o *otherHub) end() {
	if !o.recorded() {
		o.w.after(time.Second, o.end)
		return
	}
	o.over = true
	o.w.say("FAULT", "the other hub is gone, and its Leases are deleted")
	for _, m := range o.w.members {
		o.w.after(o.w.between(0, time.Second), func() {
			for _, key := range m.copyKeys() {
				if c, _ := wire.Read(m.leases[key]); c.Hub == "other-uid/leasecast" {
					_ = m.remove(key, nil)
				}
			}
		})
	}
}
