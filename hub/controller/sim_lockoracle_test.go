package controller

import (
	"slices"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

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

// plans judges a record that begins to replace a leader because people asked for another one: not while the replica
// that writes it has known since before its decision that a fence of the leader is missing.
func (o *oracle) plans(r *replica, name string, old, now *v1alpha1.NamespaceLeader) {
	if old == nil || old.Spec.State != v1alpha1.StateLeading || now.Spec.State != v1alpha1.StateDraining ||
		now.Spec.Reason != reason.PriorityChanged {
		return
	}
	i := slices.IndexFunc(r.contacts, func(ct *contact) bool { return ct.m.name == old.Spec.Leader })
	if i < 0 || r.contacts[i].worker == nil {
		return
	}
	for fence, is := range r.contacts[i].worker.found {
		if is.err != nil && is.missed < r.decisions[name].began && is.policy == now.Spec.Policy {
			o.loop(r.w, "%s: %s is replaced as planned, and its fence %s is missing", name, old.Spec.Leader, fence)
		}
	}
}

// judgeFast asks whether the namespaces without locks have a leader as soon as if nobody had one.
func (w *world) judgeFast() {
	if len(w.locks) == 0 || w.jumped || w.ahead {
		return
	}
	w.run(w.length() - 2*w.stops)
	for _, policy := range policyNames[:len(w.spaces)] {
		if ns := w.homeOf(policy)[0]; len(w.homes[policy]) == 0 && w.leader(ns) == nil {
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
			if r != nil && w.fences(policy, s.lock) && w.isMended(policy) && s.works != (r.m == s.m) {
				w.stuck("%s leads %s, and whether %s works is %v", r.m.name, w.homeOf(policy)[0], s.name, s.works)
			}
		}
	}
}
