package publish

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/tenure"
)

// The exploration looks at everything that can happen to one namespace at a small scale: two replicas of the hub, two
// or three members, two terms, and time that goes in ticks. It calls the real election.Next and Assign, the real
// syncers with their settling of answers, the real Ledger, the real Tenure and the real lease.Reader. Around them it
// models what the controller does between them (gather, decide, persist, assign), the API servers with their
// compare-and-swap, and a network that delays, loses and carries out late.
//
// The record and its version; the hub's election; of each replica its tenure, what it has sent and granted, what it
// read at its start, its syncers and the requests that it has under way; of each member its Lease, a write that nobody
// waits for any more, and the Leases that a reader may still see. Two states that differ by the time alone, or by
// which replica is which, are one (explore_key_test.go). What is past counts as past, so that time brings nothing new
// from some tick on, and a scope closes.
//
// Any process may do any of its next steps at any time, or none for as long as it likes. So a pause needs no step of
// its own. The steps are in explore_moves_test.go. A write is carried out and answered at any time up to τ after it
// was sent, or it is lost: then it may still be carried out at any later time. A late answer tells a syncer no more
// than it knows when it has been overtaken. Crashes, stalls and releases of a tenure, and losses, count as faults.
//
// Readers do not act on the hub, so they need no state: in every state every reader that there can be is asked, with
// any lag, restarted, by any of the clocks (explore_readers_test.go). Those that register do act on the
// hub: where there are any, they have steps of their own (explore_registered_test.go).
//
// Clocks are wrong by a constant out of -ε/2, 0 and ε/2, or only the two extremes where ε is a tick. A scope names
// its steps of clocks. The hub's election is renewed every tick until it stalls, and after a tenure another replica
// has the next one. A Lease is read as soon as a syncer has to. A syncer that has nothing to write says so at once. A
// write that promises nothing is answered at once or lost, except where answers are slow. At most one write that nobody
// waits for lies before each server. Nobody edits or deletes anything by hand, etcd is not restored, and D does not
// change. The controller does not remember its own records (recall). The simulations of hub/election and
// hub/controller have these. How far a scope goes is said with it. Only a closed one shows something for all time.
const (
	unit          = time.Second // a tick: D has to be whole seconds
	exploredRenew = 1
	exploredTau   = 1
	exploredH     = 2
)

// origin is when the explored world begins: before the seconds that epochs start from, so that an epoch is one above
// the highest that is known, and does not depend on the time. That it would start from the seconds if nothing
// were known is for the simulations.
var origin = zero.AddDate(-2, 0, 0)

const (
	replicas = 2
	sites    = 3 // at most
)

var siteNames = [sites]string{"east", "south", "west"}

// world is one state. What it points to is never changed: a step copies what it changes.
type world struct {
	now      int // true time, in ticks
	record   *election.Record
	version  int
	election ballot
	replicas [replicas]*replica
	sites    [sites]*site // those beyond the scope's are nil
	late     *ruling      // a write of the record that nobody waits for any more
	acted    int64        // the highest epoch that anybody may have acted in
	actor    int          // the member where that was
	readers  [readers]*reader
	faults   int // how many crashes, losses and releases there were
}

// ballot is the Lease of the hub's election.
type ballot struct {
	holder      int // -1: nobody
	renewed     time.Time
	released    bool
	transitions int
	changed     int // when, in true time
}

// replica is one process of the hub.
type replica struct {
	wrong    int // how far its wall clock is ahead, in ticks
	tenure   *tenure.Tenure
	right    right // what the tenure was made from
	stalled  bool  // its renewals of the election get lost
	promise  Promise
	granted  int64
	highest  int64
	standing *election.FoundTerm
	isRead   [sites]bool
	syncers  [sites]*leaseSyncer
	out      [sites]*posted
	ruling   *ruling
	// What is known of the registered readers, if there are any.
	roll    acks
	past    history
	listing *listing
}

// site is a member.
type site struct {
	copy    *coordinationv1.Lease
	said    sight // what the Lease says
	version int
	seen    []sight // the Leases that a reader may still be shown, oldest first
	late    *posted
}

// sight is a Lease as a reader sees it.
type sight = lease.Content

// posted is a write of a syncer.
type posted struct {
	step    step
	said    sight // what the Lease says that it writes
	sent    int   // when, in true time
	settled bool  // the server has answered
	obj     *coordinationv1.Lease
	err     error
}

// ruling is a write of the record.
type ruling struct {
	record  *election.Record
	base    int
	sent    int // when, in true time
	grants  bool
	settled bool // the server has answered
	done    bool
}

// scope bounds an exploration.
type scope struct {
	name    string
	d, skew int // D and ε in ticks
	sites   int
	ticks   int // the depth
	terms   int // how many epochs
	faults  int
	// wrong is by how many ticks the clocks of the replicas are ahead of the slowest clock that there may be.
	wrong [replicas]int
	// start is where it begins: see the functions that make worlds.
	start func(*explorer) *world
	// The steps that a wide scope has and a narrow one spares.
	sights      int  // how many Leases of one term a reader may still be shown
	anyOrder    bool // a new tenure reads members in any order, not those of lower rank first
	slowAnswers bool // an answer is under way for a while
	steps       bool // a replica decides by a wall clock that is stepped forward, and is corrected before it renews
	watch       bool // watches show syncers what other replicas wrote
	// acknowledged says that readers of the first leader register, and that the policy says so.
	acknowledged bool
	without      []what
	exact        bool // states are one only if they differ by the time alone, and not in how long ago things were
	broken       breakage
}

func (s *world) clone() *world {
	c := *s
	return &c
}

// at is what a process with such a clock reads now.
func (s *world) at(wrong int) lease.Reading { return reading(s.now, wrong) }

func reading(now, wrong int) lease.Reading {
	return lease.Reading{
		Wall: origin.Add(time.Duration(now+wrong) * unit),
		Boot: time.Duration(1000+now) * unit,
	}
}

// change returns a copy of a replica to be changed.
func (s *world) change(x int) *replica {
	c := *s.replicas[x]
	s.replicas[x] = &c
	return &c
}

// changeSite returns a copy of a member to be changed.
func (s *world) changeSite(m int) *site {
	c := *s.sites[m]
	s.sites[m] = &c
	return &c
}

func (s *world) identity(m int) string { return lease.Identity(siteNames[m], fleetName) }

// mayWrite asks the tenure.
func (e *explorer) mayWrite(s *world, r *replica) bool {
	if r.tenure == nil {
		return false
	}
	return r.tenure.MayWrite(s.at(r.wrong))
}

// sent is what the tenure has promised.
func (e *explorer) sent(r *replica, closed bool) election.Sent {
	p := r.promise
	if e.broken.stampsNotCounted {
		p = Promise{}
	}
	return election.Sent{
		Until: p.Until, BootUntil: p.BootUntil, Skew: p.Skew, Final: closed,
	}
}
