package member

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/leasecast/leasecast/api/lease"
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
	// Trouble is why the Leases of the namespace cannot be followed, and what to do, or why the last one is not believed.
	// It is empty if there is no problem. A term that is led goes on despite a problem until it runs out.
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
const noLease = "who leads is not known here: there is no Lease of a hub (the namespace is missing, or no LeadershipPolicy selects it)"

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
		if len(v.(*nsState).leases) > 0 && !t.stopped {
			names = append(names, name.(string))
		}
		return true
	})
	slices.Sort(names)
	return names
}

// noNews precedes the reason why the Leases cannot be followed.
const noNews = "; its Leases cannot be followed: "

// state is State for a caller that holds mu.
func (t *terms) state(namespace string) State {
	s := State{Namespace: namespace}
	n := t.lookup(namespace)
	if n != nil {
		s.Cluster, s.Epoch, s.Duration, s.Terms = n.seen.Cluster, n.seen.Epoch, n.seen.Duration, n.terms
		if t.releases != nil {
			s.Duration = min(s.Duration, registrationDuration)
		}
		if len(n.leases) > 0 {
			s.Leader = n.seen.Holder
		}
	}
	unknown := ""
	if t.news != nil && !t.stopped {
		unknown, s.Trouble = t.news(namespace)
	}
	if n != nil {
		if tm := n.term.Load(); tm != nil && tm.holds() {
			s.Leads, s.Leader, s.Cluster, s.Epoch = true, tm.cluster, tm.cluster, tm.epoch
			if s.Trouble == "" { // a renewal that is not believed does not extend the term
				s.Trouble = n.doubted.text
			}
			return s
		}
	}
	switch {
	case !t.watches(namespace):
		s.Why = ErrNotWatched.Error()
	case t.stopped:
		s.Why = ErrStopped.Error()
	case unknown != "" && s.Trouble != "":
		s.Why = unknown + ": " + s.Trouble
	case unknown != "":
		s.Why = unknown
	default:
		s.Why = t.why(n, s.Trouble)
		if n != nil && len(n.leases) > 0 && s.Trouble == "" {
			s.Trouble = n.doubted.text
		}
	}
	return s
}

// why returns why a namespace is not led here, from its last Lease and from the problem of its watch.
func (t *terms) why(n *nsState, trouble string) string {
	if trouble != "" {
		trouble = noNews + trouble
	}
	switch now := t.clock.Now(); {
	case n == nil, len(n.leases) == 0 && n.seen.Name == "":
		return noLease + trouble
	case len(n.leases) == 0:
		return goneLease + trouble
	case n.doubted.text != "":
		return n.doubted.text + trouble
	case !n.seen.LeadsHere():
		return describe(n.seen) + trouble
	case n.waits(n.reader.Current(), now):
		return n.arrived.ranOut() + "; the next term begins " + exactly(n.duration(n.seen.Epoch)) + " after this one began, so that it does not flap"
	}
	return t.ranOut(n, n.arrived)
}

// notLeader returns why there is no context for work in a namespace. The caller holds mu.
func (t *terms) notLeader(namespace string) error {
	if namespace == "" {
		return fmt.Errorf("%w: the name of the namespace is empty, and a cluster leads one namespace at a time", ErrMisused)
	}
	if !t.watches(namespace) {
		return fmt.Errorf("%w: namespace %s: the Options.Namespaces of this Member are %s",
			ErrNotWatched, namespace, strings.Join(t.only, ", "))
	}
	return &NotLeaderError{t.state(namespace), t.stopped}
}

// watches reports whether the terms receive Leases of the namespace.
func (t *terms) watches(namespace string) bool {
	if len(t.only) == 0 {
		return true
	}
	for _, ns := range t.only {
		if ns == namespace {
			return true
		}
	}
	return false
}

// arrival describes a Lease that names its own cluster. It has the Lease's age when first seen, by the wall clock, and
// how long it lasts after its renewTime.
type arrival struct {
	age, lasts time.Duration
	at         time.Duration // as in Reading.Boot
}

// late reports whether more than half of the duration had passed. Where clocks agree this is rare: the hub renews about
// every third of the duration.
func (a arrival) late() bool { return a.age > a.lasts/2 }

// ranOut returns why a term ended that was not renewed in time.
func (a arrival) ranOut() string {
	text := fmt.Sprintf("it ran out: the last Lease was %s old on arrival, and lasts %s", seconds(max(a.age, 0)), exactly(a.lasts))
	if a.late() {
		text += "; this machine's clock is ahead of the hub's, or Leases are late"
	}
	return text
}

// waits reports whether the next term has to wait, because the last one of its epoch ran out early. Otherwise a reader
// whose clock is ahead by nearly D would lead and stop with each renewal. A reader that sees renewals in time does not
// wait.
func (n *nsState) waits(p lease.Permit, now lease.Reading) bool {
	d := n.duration(p.Epoch)
	return n.lapsed == p.Epoch && now.Boot < n.began+d && p.Remaining(now) < d/2
}

// seconds formats a measured duration, to a tenth of a second.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s" }

// exactly formats a configured duration.
func exactly(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" }
