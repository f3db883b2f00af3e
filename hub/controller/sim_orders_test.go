package controller

import (
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/worker"
)

// What people order in a world.

// drainFault has people drain a Cluster, or end that.
var drainFault = fault{name: "a Cluster is drained", do: func(w *world) {
	until := w.now + w.longOrShort()
	w.editCluster(w.someCluster(), func(c *simCluster) { c.drained = until })
}, edits: true}

// fenceFault switches a member off, with its readers. Then people declare that, and keep it off until everything that
// was promised there has passed.
var fenceFault = fault{name: "a member is off, and declared to be", do: func(w *world) {
	m := pick(w.rng, w.members)
	off := 2 * (w.timings.Duration + 3*time.Second + w.timings.Skew + w.h)
	if m.down || w.now+off > w.faults || len(w.locks) > 0 || w.extends || w.steps || w.ahead {
		return
	}
	m.down = true
	for i, r := range w.readers {
		if r.m == m {
			r.crash()
			w.after(off, func() { w.restartReader(i) })
		}
	}
	fence := func(uid string) func() {
		return func() { w.editCluster(m.name, func(c *simCluster) { c.fenced = uid }) }
	}
	w.after(w.between(0, 2*time.Second), fence(m.uid))
	w.after(off-10*time.Millisecond, fence(""))
	w.after(off, func() { m.down = false })
}, edits: true, member: true}

// freezeFault has people freeze who leads in the namespaces of a policy, or end that.
var freezeFault = fault{name: "a policy is frozen", do: func(w *world) {
	until := w.start.Add(w.now + w.longOrShort()).Format(time.RFC3339)
	w.editSomePolicy(func(p *v1alpha1.LeadershipPolicy) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.FrozenUntilAnnotation, until)
	})
}, edits: true}

// moveFault has people order a move, also to a Cluster that is not there.
var moveFault = fault{name: "a move is ordered", do: func(w *world) {
	ns, to := pick(w.rng, w.spaces), w.someCluster()
	if w.chance(0.1) {
		to = "nowhere"
	}
	if o := w.hub.records[ns]; o != nil {
		o = o.DeepCopy()
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.MoveToAnnotation, to)
		w.say("FAULT", "%s: move to %s", ns, to)
		w.hub.putRecord(ns, o)
	}
}, edits: true}

// rebalanceFault has all priorities count as edited, soon.
var rebalanceFault = fault{name: "a policy is rebalanced", do: func(w *world) {
	at := w.start.Add(w.now + w.between(-time.Second, 3*time.Second)).Format(time.RFC3339)
	w.editSomePolicy(func(p *v1alpha1.LeadershipPolicy) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.RebalanceAtAnnotation, at)
	})
}, edits: true}

// requireFault has what policies require turn unhealthy in a member, or not be read there, or be healthy again.
var requireFault = fault{name: "what is required is unhealthy", do: func(w *world) {
	m := pick(w.rng, w.members)
	is := pick(w.rng, []worker.Required{{}, {Unhealthy: "a Deployment"}, {Unhealthy: "a Deployment"}, {Err: errNotRead}})
	w.say("FAULT", "%s: required is %+v", m.name, is)
	m.required = is
	w.hubChanged()
}, edits: true}

var errNotRead = errors.New("it cannot be read")

// overrideFault has a policy prefer a Cluster for a namespace, or none.
var overrideFault = fault{name: "an override is edited", do: func(w *world) {
	prefer := []v1alpha1.Override{{Namespace: pick(w.rng, w.spaces), Cluster: w.someCluster()}}
	if w.chance(0.3) {
		prefer = nil
	}
	w.editSomePolicy(func(p *v1alpha1.LeadershipPolicy) { p.Spec.Overrides = prefer })
}, edits: true}
