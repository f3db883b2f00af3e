package publish

import (
	"fmt"
	"testing"
)

// breakage is what is broken around the real code, or in its input. Deliberate breakages of the code itself are
// in e2e/mutants.
type breakage struct {
	noSkew               bool // the bound is counted without ε
	stampsNotCounted     bool // nor with what this tenure has renewed
	noBootForHub         bool // nor by the clock that never steps
	nothingInherited     bool // nor with what earlier tenures can have renewed
	lastRenewalInherited bool // or only until they renewed their election last
	boundTrusted         bool // the bound is the one in the record, whoever wrote it
	endingRenews         bool // the record of an ending term lets the leader be renewed
	stampAfterCheck      bool // the renewTime is read two ticks after the right to it was checked
	noBootForReaders     bool // a reader looks at its wall clock only
	frozenAgain          bool // a reader freezes again what it is shown again
	byObservation        bool // a reader counts from when it saw a Lease
	noDeadline           bool // renewTimes are drawn whatever the tenure's deadline, by a process that goes on after it
	noRecordSwap         bool // the record is written whatever it has become
	grantsFirst          bool // a grant is acted upon before it is recorded
	recordAlone          bool // what Leases show, and what was granted, raises no epoch
	noMemberSwap         bool // a Lease is written whatever it has become
	// Of the acknowledged handover:
	noRelease          bool // a revoked term counts as released
	anyRelease         bool // the release of an earlier epoch counts too
	newTenureCounts    bool // whatever registrations say counts, also for a tenure that has revoked nothing
	listBeforeRevoke   bool // a list counts that was begun before the revocation was answered
	askAnyway          bool // a revocation counts that may not have been carried out
	trustsUnregistered bool // a reader trusts Leases before it registers
	readsFromCache     bool // a reader trusts an older Lease after it has registered
	releasesFirst      bool // a reader says that it released before it has stopped
}

// broken is a scope in which a breakage must be found.
type broken struct {
	breakage
	ticks, faults int
	steps         bool
	without       []what
	change        func(*scope) // what else there is to the scope
	wide          bool         // too large for `make test`
	// alone are the parts of a breakage that are not found alone, because each rule covers for the other.
	alone map[string]breakage
}

// What a breakage that only shows under one kind of fault has no use for.
var onlyStalls = []what{crashes, releases, drops, lost, rulingLost, decidesFit}

var breakages = map[string]broken{
	"rule 1: renewTime after check": {breakage: breakage{stampAfterCheck: true}, ticks: 6, faults: 1,
		without: onlyStalls, wide: true},
	"rule 1: no check of the deadline": {breakage: breakage{noDeadline: true}, ticks: 6, faults: 1,
		without: onlyStalls, wide: true},
	"rule 2: a grant is acted upon before it is recorded": {breakage: breakage{grantsFirst: true},
		change: startingAt(grantedUnrecorded), wide: true},
	"rule 2: no compare-and-swap of the record, and nothing else raises the epoch": {
		breakage: breakage{noRecordSwap: true, recordAlone: true}, change: startingAt(grantedUnresumed), wide: true,
		alone: map[string]breakage{
			"no compare-and-swap of the record, alone": {noRecordSwap: true},
			"nothing else raises the epoch, alone":     {recordAlone: true},
		},
	},
	"rule 3: no compare-and-swap of a Lease": {breakage: breakage{noMemberSwap: true},
		change: acknowledged(lostWrite), wide: true},
	"rule 4: the record of an ending term renews, by the bound it was given": {
		breakage: breakage{endingRenews: true, boundTrusted: true}, ticks: 6,
	},
	"rule 5: no ε":                       {breakage: breakage{noSkew: true}, ticks: 6},
	"rule 5: renewTimes are not counted": {breakage: breakage{stampsNotCounted: true}, ticks: 6},
	"rule 5: the monotonic half is dropped": {breakage: breakage{noBootForHub: true}, ticks: 6,
		steps: true},
	"rule 6: nothing is inherited": {breakage: breakage{nothingInherited: true}, ticks: 6,
		faults: 1},
	"rule 6: an earlier tenure renewed until its last renewal": {breakage: breakage{lastRenewalInherited: true},
		ticks: 4, faults: 1, without: onlyStalls},
	"reader: the monotonic half is dropped":                 {breakage: breakage{noBootForReaders: true}, ticks: 6},
	"reader: what remains is frozen again by a re-delivery": {breakage: breakage{frozenAgain: true}, ticks: 6},
	"reader: by observation alone":                          {breakage: breakage{byObservation: true}, ticks: 6},

	"acknowledged: granted before the release and the expiry": {breakage: breakage{noRelease: true},
		change: acknowledged()},
	"acknowledged: the release of another epoch counts": {breakage: breakage{anyRelease: true},
		change: acknowledged()},
	"acknowledged: a release counts for a tenure that has not asked": {breakage: breakage{newTenureCounts: true},
		change: acknowledged(release)},
	"acknowledged: list before revoke": {breakage: breakage{listBeforeRevoke: true},
		change: acknowledged()},
	"acknowledged: list after an ambiguous revoke": {breakage: breakage{askAnyway: true},
		change: acknowledged(lostWrite)},
	"acknowledged: trust before registering": {breakage: breakage{trustsUnregistered: true},
		change: acknowledged()},
	"acknowledged: no consistent read after registering": {breakage: breakage{readsFromCache: true},
		change: acknowledged()},
	"acknowledged: release before stop": {breakage: breakage{releasesFirst: true},
		change: acknowledged()},
}

// startingAt is a scope that begins where a fault has happened, and in which the tenure ends after that. The members
// are found fit by then.
func startingAt(start func(*explorer) *world) func(*scope) {
	return func(s *scope) {
		only(2, release)(s)
		s.start, s.without = start, append(s.without, decidesUnfit)
	}
}

// acknowledged is a scope in which readers register, with at most one fault of these kinds.
func acknowledged(ks ...kind) func(*scope) {
	return func(s *scope) {
		only(min(1, len(ks)), ks...)(s)
		acknowledging(s)
	}
}

// grantedUnrecorded is a world in which a grant is under way to the record, and the first Lease, which was sent at
// once, got lost.
func grantedUnrecorded(e *explorer) *world {
	s := e.wait(e.follow(inOrder(e), move{what: decidesUnfit}, move{what: rulingArrives}))
	return e.follow(s, move{what: decidesUnfit}, move{what: works, m: 1}, move{what: lost, m: 1})
}

// grantedUnresumed is a world in which the record got lost that would have let the leader of an ending term resume.
// Another one leads.
func grantedUnresumed(e *explorer) *world {
	s := e.wait(e.follow(inOrder(e), move{what: decidesUnfit}, move{what: rulingArrives}, move{what: decidesFit},
		move{what: rulingLost}))
	return e.follow(s, move{what: decidesUnfit}, move{what: rulingArrives}, move{what: works, m: 1},
		move{what: arrives, m: 1})
}

// wait lets time pass until nobody has a promise any more.
func (e *explorer) wait(s *world) *world {
	for range e.d + e.skew + 1 {
		s = e.follow(s, move{what: tickPasses})
	}
	return s
}

// follow does one move after the other.
func (e *explorer) follow(s *world, ms ...move) *world {
	for _, mv := range ms {
		n := e.do(s, mv)
		if n == nil {
			panic(fmt.Sprintf("it cannot happen: %v", mv))
		}
		e.before = append(e.before, e.say(mv, n))
		s = n
		_ = e.violation(s)
	}
	return s
}

// scope is the narrowest in which the breakage shows: the clock of the replica that grants is ahead.
func (b broken) scope(name string) scope {
	s := narrow(name, 1, 0)
	if b.faults > 0 {
		s = narrow(name, 0, 1)
	}
	s.ticks, s.faults, s.steps, s.without = b.ticks, b.faults, b.steps, b.without
	if b.change != nil {
		b.change(&s)
	}
	s.broken = b.breakage
	return s
}

// TestTheExplorationFindsWhatIsBroken: an exploration that finds nothing says something only if it can find it.
func TestTheExplorationFindsWhatIsBroken(t *testing.T) {
	for name, b := range breakages {
		if b.wide {
			continue
		}
		t.Run(name, func(t *testing.T) { mustFind(t, name, b) })
	}
}

// mustFind explores a breakage and prints the shortest trace to where it shows.
func mustFind(t *testing.T, name string, b broken) findings {
	t.Helper()
	f, err := newExplorer(b.scope(name)).explore(exploreMost)
	if err != nil {
		t.Error(err)
	}
	for of, part := range b.alone {
		s := b.scope(name)
		s.name, s.broken = of, part
		alone := mustHold(t, s)
		f.Alone += alone.States
	}
	if f.violation == "" {
		t.Errorf("not found in %v", f)
	}
	t.Logf("%s: found at depth %d after %d states: %s\n  %s", name, f.Depth, f.States, f.violation, f.story())
	return f
}
