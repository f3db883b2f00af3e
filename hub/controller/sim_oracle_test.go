package controller

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// writesASecond is how often a hub may write one record within a second, whatever happens: a change takes three writes,
// and faults can bring several changes at once. More is a loop.
const writesASecond = 30

// looksASecond is how often a replica may look at one namespace within a second. Some 30 were seen. More is a loop.
const looksASecond = 300

// recordOracle judges what hubs write to the record of one namespace.
type recordOracle struct {
	leader string // the last one that led
	second int    // of true time
	writes int    // within it
}

func (o *oracle) begin() {
	o.highest, o.last, o.records = map[string]int64{}, map[string]*member{}, map[string]*recordOracle{}
	o.candidates = map[reason.Reason]bool{}
}

// decides judges a replica that sends a record: while it may do so nobody else may. One that is stopped may hold the
// lock of its tenure, and looks again when it wakes.
func (o *oracle) decides(r *replica, name string) {
	w := r.w
	for _, other := range w.replicas {
		if other != r && r.mayDecide() && other.installation == r.installation && other.alive && !other.frozen &&
			other.mayDecide() {
			if o.together++; !w.steps && !w.ahead {
				o.fail(w, "%s: %s decides while %s still may", name, r.name, other.name)
			}
		}
	}
}

// wrote judges a record that takes the place of an old one: no epoch falls, no healthy leader is replaced for nothing,
// and nothing is written again and again.
func (o *oracle) wrote(w *world, name string, old, now *v1alpha1.NamespaceLeader) {
	is := o.records[name]
	if is == nil {
		is = &recordOracle{}
		o.records[name] = is
	}
	for _, c := range now.Status.Candidates {
		o.candidates[c.Reason] = true
	}
	if s := int(w.now.Seconds()); s != is.second {
		is.second, is.writes = s, 0
	}
	if is.writes++; is.writes > o.mostWrites {
		o.mostWrites = is.writes
	}
	most := writesASecond
	if w.steps {
		most *= 4 // two replicas whose clocks differ by more than ε may both decide, until the wrong one finds out
	}
	if is.writes > most {
		o.loop(w, "%s: the record was written %d times within a second", name, is.writes)
	}
	switch s := now.Spec; { // the API server would refuse these
	case old != nil && s.Epoch < old.Spec.Epoch:
		o.loop(w, "%s: the record's epoch goes back from %d to %d", name, old.Spec.Epoch, s.Epoch)
	case s.State == "", s.Since == nil, s.State == v1alpha1.StateVacant && s.Leader != "",
		s.State == v1alpha1.StateLeading &&
			(s.Leader == "" || s.Epoch == 0 || s.LeaseDurationSeconds == 0 || s.LeaseName == ""):
		o.loop(w, "%s: the record is incomplete: %+v", name, s)
	}
	if now.Spec.State != v1alpha1.StateLeading {
		return
	}
	if is.leader != "" && is.leader != now.Spec.Leader && w.steady {
		o.needless++
		for _, c := range now.Status.Candidates {
			w.say("ORACLE", "%+v", c)
		}
		o.loop(w, "%s: %s replaces %s (%s), and nothing was wrong with it", name, now.Spec.Leader, is.leader, now.Spec.Reason)
	}
	is.leader = now.Spec.Leader
}

// sends judges a Lease that is on its way (rule 2): the seal holds the D and the ε under which it is sent. A tenure
// that finds no record counts with these.
func (o *oracle) sends(w *world, obj *coordinationv1.Lease) {
	c, _ := wire.Read(obj)
	if c.Hub == "" || !c.LeadsHere() {
		return
	}
	data := w.hub.secret.Data
	d, _ := time.ParseDuration(string(data["largest-lease-duration-seconds"]) + "s")
	skew, _ := time.ParseDuration(string(data["largest-max-clock-skew"]))
	if c.Duration > d || c.Skew > skew {
		o.fail(w, "%s: a Lease with D %v and ε %v is sent, and the seal has %v and %v", c.Namespace, c.Duration, c.Skew, d,
			skew)
	}
}

// looks judges a replica that looks at a namespace to decide on it: one that does so again and again, without waiting
// for anything, would keep a processor busy.
func (o *oracle) looks(r *replica, name string, d *decision) {
	if s := int(r.w.now.Seconds()); s != d.second {
		d.second, d.looks = s, 0
	}
	if d.looks++; d.looks > o.mostLooks {
		o.mostLooks = d.looks
	}
	if d.looks > looksASecond {
		o.loop(r.w, "%s: %s has looked at it %d times within a second", name, r.name, d.looks)
	}
}

// loop tells of a hub that does what it need not do.
func (o *oracle) loop(w *world, format string, args ...any) { w.stuck(format, args...) }

// mayDecide reports whether the replica has the right to decide now, and knows that no earlier one has it.
func (r *replica) mayDecide() bool {
	now := r.host.read(r.w.now)
	return r.tenure.MayWrite(now) && r.tenure.Overlap(now, r.w.timings.Skew) == 0
}
