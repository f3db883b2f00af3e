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

// State is what a reader knows of one namespace.
type State struct {
	// Namespace is the namespace.
	Namespace string
	// Cluster is the identity of this cluster, `<cluster>.<namespace of the Cluster>`. A Lease tells it, so it is empty
	// before the first one.
	Cluster string
	// Leads says whether this cluster leads now. If so, Leader is Cluster.
	Leads bool
	// Leader is the identity of the cluster that leads by the last Lease that was believed; empty: none. A follower's Lease
	// is not renewed. So a follower cannot tell whether the term of another cluster still goes on.
	Leader string
	// Epoch is the epoch of that Lease; 0: none was believed yet.
	Epoch int64
	// Duration is how long a term lasts after a renewal, by that Lease. In a registered Member that is no longer than after
	// a confirmation of its registration.
	Duration time.Duration
	// Terms is how many terms of this cluster have begun here since the Member was made.
	Terms int64
	// Why says why this cluster does not lead; empty if it does. It contains the Trouble.
	Why string
	// Trouble says why the Leases of the namespace cannot be followed, and what to do, or why the last one is not believed;
	// empty: nothing. What is led goes on in trouble until its term runs out.
	Trouble string
}

// NotLeaderError says that this cluster does not lead a namespace, who does, and why not this one. It wraps ErrNotLeader,
// and ErrStopped if that is why.
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

// ErrStopped says that the Member has stopped, because the context of its Start has ended. It will never lead again, and
// what it knows of others grows old. Whatever waits for it returns at once.
var ErrStopped = errors.New("the Member has stopped")

// ErrNotWatched says that a Member was asked about a namespace that is not among its Options.Namespaces: it will never
// lead there.
var ErrNotWatched = errors.New("the namespace is not watched")

// noLease is why nothing is led in a namespace without a Lease.
const noLease = "who leads is not known here: there is no Lease of a hub (the namespace is missing, or no LeadershipPolicy selects it)"

// State is that of Member.
func (t *terms) State(namespace string) State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.state(namespace)
}

// Namespaces returns the namespaces that have a Lease of a hub now, in order.
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

// noNews comes before what keeps them from coming.
const noNews = "; its Leases cannot be followed: "

// state is State under mu.
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
			if s.Trouble == "" { // a renewal that is not believed does not make the term longer
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

// why says why a namespace is not led here, by what was seen of it and by what keeps news from coming.
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

// notLeader is why there is no context for work in a namespace. Called under mu.
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

// watches reports whether Leases of the namespace are fed to the terms.
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

// arrival is how old a Lease that names its own cluster was when it was first seen, by the wall clock, and how long after
// its renewTime it lasts.
type arrival struct {
	age, lasts time.Duration
	at         time.Duration // as in Reading.Boot
}

// late reports whether more than half of the time had passed. Where clocks agree that is rare: the hub renews every
// third of it, or so.
func (a arrival) late() bool { return a.age > a.lasts/2 }

// ranOut says why a term ended that was not renewed in time.
func (a arrival) ranOut() string {
	text := fmt.Sprintf("it ran out: the last Lease was %s old on arrival, and lasts %s", seconds(max(a.age, 0)), exactly(a.lasts))
	if a.late() {
		text += "; this machine's clock is ahead of the hub's, or Leases are late"
	}
	return text
}

// waits reports whether the next term has to wait, because the last one of its epoch ran out early. A reader whose clock
// is ahead by nearly D would otherwise lead and stop with each renewal. One that is told in time does not wait.
func (n *nsState) waits(p lease.Permit, now lease.Reading) bool {
	d := n.duration(p.Epoch)
	return n.lapsed == p.Epoch && now.Boot < n.began+d && p.Remaining(now) < d/2
}

// seconds shows what was measured, to a tenth of a second.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + " s" }

// exactly shows what somebody has set.
func exactly(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + " s" }
