package fleet

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// snapshot is the member as the controller sees it. owners has the rightful owner of each UID.
func (m *member) snapshot(owners map[string]Key) Member {
	s := m.get()
	priority, priorityReason := s.spec.priority()
	patient := s.tracks.MostPatient()
	is := Member{
		Key:            m.key,
		UID:            s.known(),
		Pinned:         s.pinned(),
		Priority:       priority,
		PriorityReason: priorityReason,
		Connected:      s.cluster != nil,
		Problem:        s.problem(m.key, owners),
		Unreachable:    patient.Failure().Reason == reason.Unreachable,
		Deleting:       s.spec.deleting,
		Gone:           s.spec.gone,
		Paused:         s.spec.paused,
		Drain:          s.spec.drain.At(m.clock.Now().Wall),
		Fenced:         s.spec.fenced,
		DeleteForMove:  s.spec.moved,
		Labels:         s.spec.labels,
		live:           m,
	}
	if s.target != nil {
		is.Expires = s.target.Access.Expires()
	}
	return is
}

// problem picks the gravest.
func (s *state) problem(k Key, owners map[string]Key) Problem {
	owner, owned := owners[s.known()]
	name := nameProblem(k)
	patient := s.tracks.MostPatient() // what one policy finds too slow is no problem for all
	failure := patient.Failure()
	switch {
	case s.spec.gone:
		return Problem{reason.Gone, "the Cluster does not exist any more"}
	case s.spec.deleting:
		return Problem{reason.Deleting, "the Cluster is being deleted"}
	case name != "":
		return Problem{reason.NameTooLong, name}
	case s.contact.Reason == reason.WrongCluster:
		return s.contact
	case owned && owner != k:
		return Problem{reason.DuplicateCluster,
			fmt.Sprintf("the kubeconfig leads to the same cluster as that of Cluster %s", owner)}
	case s.kubeconfig.Reason != "":
		return s.kubeconfig
	case s.contact.Reason != "":
		return s.contact
	case failure.Reason != "":
		return Problem{failure.Reason, failure.Message}
	case s.cluster == nil:
		return Problem{reason.NeverReached, "not connected yet"}
	}
	if unheld := cmp.Or(s.unheld[:]...); unheld != "" {
		return Problem{reason.TooManyObjects, unheld}
	}
	return Problem{}
}

// uidOwner is the member as a claimant of its UID.
func (s *state) uidOwner(k Key) uidOwner {
	o := uidOwner{key: k, proved: s.spec.pinProved, created: s.spec.created}
	switch {
	case s.spec.pinProved:
		o.uid = s.spec.pin
	case s.spec.pin == "", s.spec.pin == s.uid:
		o.uid = s.uid
	}
	o.pinned = s.uid != "" && (s.pinned() || s.ownsUID)
	return o
}

// asProblem describes an error to people.
func asProblem(err error) Problem {
	var contact *transport.ContactError
	if errors.As(err, &contact) {
		return Problem{contact.Reason, contact.Message}
	}
	return Problem{reason.Unreachable, transport.Shorten(err.Error())}
}
