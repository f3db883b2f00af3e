package controller

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// oracle judges what readers may do, by their own clocks, at every instant of true
// time. A permit ends by itself, so that it is enough to look whenever one begins.
type oracle struct {
	violation string
	highest   map[string]int64   // the highest epoch permitted so far, by namespace
	last      map[string]*member // whose it was
	seen      int64              // the highest epoch that any reader has seen
	overlap   bool
	stuck     bool
	terms     int
	records   map[string]*recordOracle
	// needless is how many leaders were replaced for nothing, together how often two replicas could decide.
	needless, together, mostWrites, mostLooks int
	// revoked is how many terms were, acknowledged how many of them their readers released in time.
	revoked, acknowledged int
	// unfenced and unguarded are how often a record has shown such a cluster.
	unfenced, unguarded int
	// fenced are the namespaces that a policy with locks has ever named.
	fenced []string
}

func (o *oracle) check(w *world, r *reader, namespace string, p lease.Permit) {
	if !r.may(p) || o.violation != "" {
		return
	}
	if p.Epoch < o.highest[namespace] && !w.ahead {
		o.fail(w, "%s may act for %s in epoch %d after epoch %d", r.name, namespace, p.Epoch, o.highest[namespace])
		return
	}
	if p.Epoch != o.highest[namespace] {
		o.terms++
	} else if o.last[namespace] != r.m && !w.ahead {
		o.fail(w, "%s may act for %s in epoch %d, which was that of %s", r.name, namespace, p.Epoch, o.last[namespace].name)
		return
	}
	o.highest[namespace], o.last[namespace] = p.Epoch, r.m
	for _, other := range w.readers {
		if other == r || !other.alive {
			continue
		}
		for key, q := range other.permits {
			if key.Namespace == namespace && other.may(q) && (other.m != r.m || q.Epoch != p.Epoch) {
				o.fail(w, "%s (epoch %d) and %s (epoch %d) may both act for %s", r.name, p.Epoch, other.name, q.Epoch, namespace)
			}
		}
		for _, l := range other.lates {
			if l.namespace == namespace && l.holds(other.host.read(w.now)) && (other.m != r.m || l.permit.Epoch != p.Epoch) {
				o.fail(w, "%s (epoch %d) may act for %s while %s still does (epoch %d)", r.name, p.Epoch, namespace, other.name,
					l.permit.Epoch)
			}
		}
	}
}

func (o *oracle) fail(w *world, format string, args ...any) {
	if o.violation == "" {
		o.violation, o.overlap = fmt.Sprintf(format, args...), true
		w.say("ORACLE", "%s", o.violation)
	}
}

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
		switch c.Reason {
		case reason.Unfenced:
			o.unfenced++
		case reason.Unguarded:
			o.unguarded++
		}
	}
	if s := int(w.now.Seconds()); s != is.second {
		is.second, is.writes = s, 0
	}
	if is.writes++; is.writes > o.mostWrites {
		o.mostWrites = is.writes
	}
	most := writesASecond
	if w.steps || w.installations > 1 {
		// Two replicas may both decide: whose clocks differ by more than ε, until the wrong one finds out, or of two
		// installations, until the one that reaches a member serves the fleet.
		most *= 4
	}
	if is.writes > most {
		w.stuck("%s: the record was written %d times within a second", name, is.writes)
	}
	switch s := now.Spec; { // the API server would refuse these
	case old != nil && s.Epoch < old.Spec.Epoch:
		w.stuck("%s: the record's epoch goes back from %d to %d", name, old.Spec.Epoch, s.Epoch)
	case s.State == "", s.Since == nil, s.State == v1alpha1.StateVacant && s.Leader != "",
		s.State == v1alpha1.StateLeading &&
			(s.Leader == "" || s.Epoch == 0 || s.LeaseDurationSeconds == 0 || s.LeaseName == ""):
		w.stuck("%s: the record is incomplete: %+v", name, s)
	}
	if now.Spec.State != v1alpha1.StateLeading {
		return
	}
	if is.leader != "" && is.leader != now.Spec.Leader && w.steady {
		o.needless++
		for _, c := range now.Status.Candidates {
			w.say("ORACLE", "%+v", c)
		}
		w.stuck("%s: %s replaces %s (%s), and nothing was wrong with it", name, now.Spec.Leader, is.leader, now.Spec.Reason)
	}
	is.leader = now.Spec.Leader
}

// sends judges a Lease that is on its way (rule 2): the seal holds the D and the ε under which it is sent. A tenure
// that finds no record counts with these.
func (o *oracle) sends(w *world, obj *coordinationv1.Lease) {
	if !managed(obj) {
		return
	}
	c, _ := wire.Read(obj)
	if c.Hub == "" || !c.LeadsHere() {
		return
	}
	if b := w.hub.sealed; c.Duration > b.Duration || c.Skew > b.Skew {
		o.fail(w, "%s: a Lease with D %v and ε %v is sent, and the seal has %v and %v", c.Namespace, c.Duration, c.Skew,
			b.Duration, b.Skew)
	}
}

// sealed returns the largest bounds of all policies in a seal.
func sealed(secret *corev1.Secret) (b seal.Bounds) {
	var all map[string]struct{ LeaseDuration, MaxClockSkew, StopTime string }
	_ = json.Unmarshal(secret.Data["policies"], &all)
	for _, texts := range all {
		d, _ := time.ParseDuration(texts.LeaseDuration)
		skew, _ := time.ParseDuration(texts.MaxClockSkew)
		stop, _ := time.ParseDuration(texts.StopTime)
		b = b.Max(seal.Bounds{Duration: d, Skew: skew, Stop: stop})
	}
	return b
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
		r.w.stuck("%s: %s has looked at it %d times within a second", name, r.name, d.looks)
	}
}

// mayDecide reports whether the replica has the right to decide now, and knows that no earlier one has it.
func (r *replica) mayDecide() bool {
	now := r.host.read(r.w.now)
	return r.tenure.MayWrite(now) && r.tenure.Overlap(now, r.w.timings.Skew) == 0
}

// holds judges a controller whose lock was just admitted: where fences have admitted two, one works too long. Where all
// members are reached and take their fences, nobody works beside one that a fence has admitted.
func (o *oracle) holds(s *stock) {
	if !s.works || !s.fenced && !s.w.allFenced {
		return
	}
	for _, other := range s.w.stocks {
		bothFenced, oneFenced := s.fenced && other.fenced, s.fenced || other.fenced
		if other.lock == s.lock && other.m != s.m && other.works && other.alive &&
			(bothFenced || oneFenced && s.w.allFenced) {
			o.fail(s.w, "%s and %s both work under the lock %s", s.name, other.name, s.lock)
		}
	}
}

// judgeFast asks whether the namespaces without locks have a leader as soon as if nobody had one. A record that was
// made under a policy with locks keeps its stop time until the next term.
func (w *world) judgeFast() {
	if len(w.locks) == 0 || w.jumped || w.ahead {
		return
	}
	w.run(w.length() - 2*w.stops)
	for _, policy := range policyNames[:len(w.spaces)] {
		ns := w.homeOf(policy)[0]
		r := w.hub.records[ns]
		stops := r != nil && r.Spec.StopTimeSeconds > 0 && slices.Contains(w.oracle.fenced, ns)
		if len(w.homes[policy]) == 0 && !stops && w.leader(ns) == nil {
			w.stuck("%s: nobody leads yet, and no lock is fenced there", ns)
		}
	}
}

// judgeLocks asks whether each fenced lock is held where its leader is, and nowhere else.
func (w *world) judgeLocks() {
	for _, s := range w.stocks {
		if w.members[s.m.index] != s.m {
			continue // the hub does not reach what was behind a Cluster once
		}
		for policy := range w.homes {
			r := w.leader(w.homeOf(policy)[0])
			if r != nil && w.fences(policy, s.lock) && s.works != (r.m == s.m) {
				w.stuck("%s leads %s, and whether %s works is %v", r.m.name, w.homeOf(policy)[0], s.name, s.works)
			}
		}
	}
}
