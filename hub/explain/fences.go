package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/guard/locks"
)

// Fences is what is known of the fences of a policy.
type Fences struct {
	Policy  *decide.Policy
	Wanted  []guard.Fence
	Members []decide.Member
	// Missing is why fences are missing in each of the members; nil: all are in force.
	Missing []error
	Closed  []string // locks that no cluster may hold yet
	// Young: this tenure has just begun, and may not have checked the fences of clusters that answer.
	Young bool
}

// Fenced returns the condition that names the members in which a fence is missing, or was not checked.
func Fenced(f Fences) metav1.Condition {
	var open, unchecked []string
	if len(f.Members) == 0 {
		open = append(open, "no cluster takes part yet")
	}
	for i, m := range f.Members {
		err := f.Missing[i]
		if err == nil {
			continue
		}
		message := missingMessage(err)
		if message == guard.ErrUnchecked.Error() && (f.Young || !m.IsReached()) {
			unchecked = append(unchecked, m.Name+" ("+message+")")
		} else {
			open = append(open, m.Name+" ("+message+answerIn(err)+")")
		}
	}
	if f.Policy.Refused != "" {
		open = append(open, f.Policy.Refused)
	}
	if f.Policy.Unknown {
		open, unchecked = []string{"the policy is invalid: the fences that it had stay as they were"}, nil
	}
	switch {
	case len(open) > 0:
		return condition(v1alpha1.ConditionFencesInForce, no, reason.Unfenced, strings.Join(append(open, unchecked...), "; "))
	case len(unchecked) > 0:
		return condition(v1alpha1.ConditionFencesInForce, unknown, reason.FenceUnchecked, strings.Join(unchecked, "; "))
	case f.Wanted[0].Warns():
		return condition(v1alpha1.ConditionFencesInForce, yes, reason.Warns, "every cluster warns, and nothing is refused")
	}
	message := fmt.Sprintf("in force in all %d clusters", len(f.Members))
	if len(f.Closed) > 0 {
		message += "; refused in every cluster until each earlier holder must have stopped: " + strings.Join(f.Closed, ", ")
	}
	if l := f.Policy.SlowestLock(); l != nil {
		message += fmt.Sprintf("; a change of leader takes %v more, for the lock %s: "+
			"shorten its elector's durations to shorten that", l.StopTime(), l.NamespacedName)
	}
	return condition(v1alpha1.ConditionFencesInForce, yes, reason.InForce, message)
}

// answerIn returns a member's answer in an error, after a colon, or "" without one.
func answerIn(err error) string {
	if s := apierrors.APIStatus(nil); errors.As(err, &s) {
		return ": " + cut(s.Status().Message, 256)
	}
	return ""
}

// LeaseRefused returns why the hub cannot write the Leases of a policy somewhere, or "". An older policy may fence
// a lock of their name in one of these members, in a namespace that this policy names.
func LeaseRefused(policies []*decide.Policy, p *decide.Policy, members []decide.Member) string {
	for _, older := range policies {
		if older.Object.Name == p.Object.Name {
			break // policies are in order, oldest first
		}
		warns := older.Object.Spec.Fencing != nil && older.Object.Spec.Fencing.Enforcement == v1alpha1.EnforcementWarn
		if warns || !slices.ContainsFunc(members, func(m decide.Member) bool { return older.Selects(m.Member) }) {
			continue
		}
		for _, l := range locks.Of(older.Object.Spec.Fencing) {
			if l.Name == p.Object.LeaseName() && p.Names[l.Namespace] {
				return fmt.Sprintf("the policy %s fences the lock %s, so there is no Lease of that name for this policy: "+
					"create it again with another leaseName", older.Object.Name, l)
			}
		}
	}
	return ""
}
