package member

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// State is a reader's view of one namespace.
type State struct {
	// Namespace is the namespace.
	Namespace string
	// Cluster is the identity of this cluster, `<cluster>.<namespace of the Cluster>`. It comes from a Lease, so it is
	// empty before the first one.
	Cluster string
	// Leads reports whether this cluster leads now. If so, Leader is Cluster.
	Leads bool
	// Leader is the identity of the leader in the last Lease that was believed; empty: no leader is known. A follower's
	// Lease is not renewed. So a follower cannot know whether the term of another cluster still goes on.
	Leader string
	// Epoch is the epoch of that Lease; 0: no Lease was believed yet.
	Epoch int64
	// Duration is how long a term lasts after a renewal, by that Lease. In a registered Member it is at most the time that
	// a confirmation of the registration lasts.
	Duration time.Duration
	// Terms is how many terms of this cluster have begun here since the Member was made.
	Terms int64
	// Why is the reason why this cluster does not lead; empty if it leads. It contains the Trouble.
	Why string
	// Trouble is why the Leases of the namespace are not followed, and what to do, or why the last one is not believed. It
	// is set before the first list, too, and while a registration is not confirmed. It is empty if there is no problem. A
	// term that is led goes on despite a problem until it runs out.
	Trouble string
}

// NotLeaderError reports that this cluster does not lead a namespace, which cluster does, and why not this one. It
// wraps ErrNotLeader, and ErrStopped if the Member has stopped.
type NotLeaderError struct {
	State
	stopped bool
}

// Error implements error.
func (e *NotLeaderError) Error() string {
	return fmt.Sprintf("%v: namespace %s: %s", ErrNotLeader, e.Namespace, e.Why)
}

// Unwrap returns ErrNotLeader.
func (e *NotLeaderError) Unwrap() error { return ErrNotLeader }

// Is reports whether the error is ErrStopped too.
func (e *NotLeaderError) Is(target error) bool { return e.stopped && target == ErrStopped }

// ErrStopped reports that the Member has stopped, because the context of its Start has ended. It will never lead again,
// and its view of other clusters grows old. Whatever waits for it returns at once.
var ErrStopped = errors.New("the Member has stopped")

// ErrNotWatched reports that a namespace is not among the Options.Namespaces of a Member: it will never lead there.
var ErrNotWatched = errors.New("the namespace is not watched")

// noLease is why a namespace without a Lease is not led.
const noLease = "there is no Lease of a hub (the namespace is missing, or no LeadershipPolicy selects it)"

// State implements Member.State.
func (t *terms) State(namespace string) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state(namespace)
}

// Namespaces returns the namespaces that have a Lease of a hub now, in ascending order.
func (t *terms) Namespaces() (names []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.namespaces.Range(func(name, v any) bool {
		if len(v.(*nsState).leases) > 0 && !t.over() {
			names = append(names, name.(string))
		}
		return true
	})
	slices.Sort(names)
	return names
}

// state is State for a caller that holds mu.
func (t *terms) state(namespace string) State {
	s := State{Namespace: namespace}
	trouble, known := t.status(namespace)
	s.Trouble = trouble
	n := t.lookup(namespace)
	if n != nil {
		s.Cluster, s.Epoch, s.Duration, s.Terms = n.seen.Cluster, n.seen.Epoch, n.seen.Duration, n.terms
		if t.releases.needed {
			s.Duration = min(s.Duration, registrationDuration)
		}
		if len(n.leases) > 0 {
			s.Leader = n.seen.Holder
		}
		s.Trouble = cmp.Or(trouble, n.problem.text)
		if tm := n.term.Load(); tm != nil && tm.holds() {
			s.Leads, s.Leader, s.Cluster, s.Epoch = true, tm.cluster, tm.cluster, tm.epoch
			return s
		}
	}
	switch {
	case !watched(t.only, namespace):
		s.Why, s.Trouble = ErrNotWatched.Error(), ""
	case t.over():
		s.Why, s.Trouble = ErrStopped.Error(), ""
	case !known:
		s.Why = trouble
	default:
		s.Why = because(t.why(n), trouble)
	}
	return s
}

// why returns why a namespace is not led here, by its last Lease.
func (t *terms) why(n *nsState) string {
	switch {
	case n == nil, len(n.leases) == 0 && n.seen.Name == "":
		return noLease
	case len(n.leases) == 0:
		return goneLease
	case n.problem.text != "":
		return n.problem.text
	case n.seen.Holder == "":
		return fmt.Sprintf("no cluster leads in epoch %d", n.seen.Epoch)
	case !n.seen.LeadsHere():
		return fmt.Sprintf("%s leads in epoch %d", n.seen.Holder, n.seen.Epoch)
	}
	return ranOut(n.arrived)
}

// ranOut returns why a term ran out whose last renewal is known.
func ranOut(renewal arrival) string {
	text := fmt.Sprintf("it ran out: the last Lease was %s old on arrival, and lasts %s",
		seconds(max(renewal.age, 0)), exactly(renewal.lasts))
	if renewal.late() {
		text += "; this machine's clock is ahead of the hub's, or Leases are late"
	}
	return text
}

// notLeader returns why there is no context for work in a namespace. The caller holds mu.
func (t *terms) notLeader(namespace string) error {
	if namespace == "" {
		return fmt.Errorf("%w: the name of the namespace is empty, and a cluster leads one namespace at a time", ErrMisused)
	}
	if !watched(t.only, namespace) {
		return fmt.Errorf("%w: namespace %s: the Options.Namespaces of this Member are %s",
			ErrNotWatched, namespace, strings.Join(t.only, ", "))
	}
	return &NotLeaderError{t.state(namespace), t.over()}
}

// watched reports whether a Member with these Options.Namespaces receives Leases of the namespace.
func watched(only []string, namespace string) bool {
	return len(only) == 0 || slices.Contains(only, namespace)
}

// seconds formats a measured duration, to a tenth of a second.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s" }

// exactly formats a configured duration.
func exactly(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" }
