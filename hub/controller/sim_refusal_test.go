package controller

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// refusalWorld has members that refuse the hub for a moment, as one does that was restored: first it knows no token,
// and then no role. The term is not over before its deadline, so nobody else leads.
var refusalWorld = special{"a member refuses the hub for a moment", func(w *world) {
	w.acknowledged, w.steady, w.quiet = false, true, true
	w.durations = w.durations[2:] // so that something of a term is left
	w.only(func(fault) bool { return false })
	w.lateHub, w.stopAtReading = 0, 0
	w.kinds = []fault{refusalFault}
}}

// refusalFault has one member refuse all requests of the hub. A leader's last renewal is Renew old at most, its next
// one comes after the refusal has ended and the member has answered for RecoverAfter, which is Renew.
var refusalFault = fault{name: "a member refuses the hub", do: func(w *world) {
	if w.now < w.refused {
		return
	}
	m := pick(w.rng, w.members)
	d := time.Duration(w.durations[0]) * time.Second
	until := w.now + w.between(100*time.Millisecond, d-3*w.timings.Renew-w.timings.Timeout-w.timings.Skew)
	w.refused = until + 2*d
	err := pick(w.rng, []error{apierrors.NewUnauthorized("unknown token"),
		apierrors.NewForbidden(leaseResource, "", errRefused)})
	m.deny = func(key types.NamespacedName) error {
		if w.now < until && key.Namespace != podSpace {
			return err
		}
		return nil
	}
	m.refuse = m.deny
}, member: true}

// answersProbe is what the member says to a probe of the hub.
func (m *member) answersProbe() (struct{}, error) {
	return struct{}{}, m.unread(types.NamespacedName{})
}
