package main

const (
	stateGo   = "member/state.go"
	tellGo    = "member/tell.go"
	memberCap = "member/gate/cap.go"
	resyncGo  = "member/gate/resync.go"
	countedGo = "hub/worker/readers.go"
)

// What has to notice the mutants of what a controller's author meets.
var (
	told            = tests{"./member", "^Test(AReader|AMember|ALease|AFollower|ATerm|ANamespace|ADiffer|TheSmaller|Starting|Healthz|Lead|Context|State)"}
	capped          = tests{"./member", "^TestARegistrationIsRefusedWithoutCapWrites$"}
	gated           = tests{"./member/gate", "^Test(CapClient|Resync|ANamespace|Gate)"}
	countingReaders = tests{"./hub/worker", "^Test(RegisteredReaders|WhatANewList)"}
	showingReaders  = tests{"./hub/controller", "^TestTheStatusShows"}
)

// author are the mutants of what keeps a controller's author from failing in silence.
var author = []mutant{
	// Clocks that are off.
	{"author: a reader flaps with each renewal", told, []edit{{termsGo, "	if leads && !n.waits(p, now) {", "	if leads {"}}},
	{"author: a term waits though it was told in time", told, []edit{{stateGo, " && p.Remaining(now) < d/2", ""}}},
	{"author: a term waits after another epoch", told, []edit{{stateGo, "return n.lapsed == p.Epoch && now", "return now"}}},
	{"author: nobody says how old a Lease was", told, []edit{{stateGo, "n.arrived = arrival{age: now.Wall.Sub(c.RenewTime), lasts", "n.arrived = arrival{lasts"}}},
	{"author: a Lease is refused in silence", told, []edit{{tellGo, "	if a.trouble.begins(l.what, t.clock.Now().Boot) {", "	if false {"}}},
	{"author: a Lease is refused again and again", told, []edit{{tellGo, "	if a.trouble.begins(l.what, t.clock.Now().Boot) {", "	if l.doubt != \"\" {"}}},
	{"author: options may contradict the policy", told, []edit{{tellGo, "	case policy < t.own:\n", "	case policy < t.own && false:\n"}}},

	// Rights, and what was forgotten.
	{"author: missing rights are told once", told, []edit{{tellGo, "	if t.what == what && now < t.at+tellEvery {", "	if t.what == what {"}}},
	{"author: missing rights are told every few seconds", told, []edit{{tellGo, "	if t.what == what && now < t.at+tellEvery {", "	if false {"}}},
	{"author: a Member that is not started says nothing", told, []edit{{memberGo, "	m.nagging = utilclock.RealClock{}.AfterFunc(unstartedAfter, m.unstarted)", "	m.nagging = utilclock.RealClock{}.AfterFunc(unstartedAfter, func() {})"}}},
	{"author: a namespace that is not watched is like any other", told, []edit{{stateGo, "	if !t.watches(namespace) {\n		return fmt", "	if false {\n		return fmt"}}},
	{"author: Lead waits for a namespace that is not watched", told, []edit{{"member/lead.go", "	if !t.watches(namespace) {", "	if false {"}}},
	{"author: a Lease that is gone goes on naming a leader", told, []edit{{stateGo, "		if len(n.leases) > 0 {\n", "		if true {\n"}}},
	{"author: never listed is called stale", told, []edit{{memberGo, "		case w.unlisted() != \"\":", "		case false:"}}},

	// Registration.
	{"author: a registration without CapWrites", capped, []edit{{memberGo, "	if o.Registration != nil && !capsWrites(cfg) {", "	if false {"}}},
	{"author: any wrapper passes for CapWrites", capped, []edit{{capGo, "		if !ok {\n			return false\n", "		if !ok {\n			return cfg.WrapTransport != nil\n"}}},
	{"author: readers that have gone are counted", countingReaders, []edit{{countedGo, "	delete(w.readers.all, uid)\n", ""}}},
	{"author: a registration that cannot be read is not counted", countingReaders, []edit{{countedGo, "return r.broken || r", "return !r.broken && r"}}},
	{"author: the status does not count readers", showingReaders, []edit{{"hub/controller/status.go", "int32(min(c.readers, math.MaxInt32))", "int32(min(0, math.MaxInt32))"}}},

	// Package gate.
	{"author: CapClient lets a write after the term through", gated, []edit{{memberCap, "	if err := member.Check(ctx); err != nil {", "	if err := member.Check(ctx); false && err != nil {"}}},
	{"author: CapClient forgets subresources", gated, []edit{{memberCap, "	return begin(ctx, verb+", "	return begin(context.Background(), verb+"}}},
	{"author: Resync ignores predicates", gated, []edit{{resyncGo, "		if !s.passes(object) {", "		if false {"}}},
	{"author: Resync lists other namespaces", gated, []edit{{resyncGo, "		client.InNamespace(namespace), client.Limit(0),", "		client.Limit(0),"}}},
	{"author: Resync tries namespaces outside of the cache for ever", gated, []edit{{resyncGo, "		case outsideOfCache(err):", "		case err == nil && outsideOfCache(err):"}}},
	{"author: Gate is silent about namespaces that nobody watches", gated, []edit{{"member/gate/gate.go", "	case errors.Is(err, member.ErrNotWatched): // trying again changes nothing\n		return reconcile.Result{}, reconcile.TerminalError(err)",
		"	case errors.Is(err, member.ErrNotWatched): // trying again changes nothing\n		return reconcile.Result{}, nil"}}},
}
