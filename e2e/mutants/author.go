package main

const (
	stateGo   = "member/state.go"
	tellGo    = "member/tell.go"
	listenGo  = "member/listen.go"
	doubtGo   = "member/doubt.go"
	outagesGo = "member/outages.go"
	healthzGo = "member/healthz.go"
	runningGo = "member/running.go"
	optionsGo = "member/options.go"
	gateGo    = "member/gate/gate.go"
	memberCap = "member/gate/cap.go"
	resyncGo  = "member/gate/resync.go"
	countedGo = "hub/worker/readers.go"
)

// What has to notice the mutants of what a controller's author meets.
var (
	told            = tests{"./member", "^Test(AReader|ALeader|AMember|ALease|AFollower|ATerm|ANamespace|ADiffer|TheSmaller|Starting|Healthz|Lead|Context|State|What|Who|Many|OneOf|AWatch|ATrouble|APlanned|AConfirm|AFailure|New|Two|Lines)"}
	capped          = tests{"./member", "^TestARegistrationIsRefusedWithoutCapWrites$"}
	cutOff          = tests{"./member", "^TestAWriteThat"}
	advised         = tests{"./member", "^TestAFailureHasTheAdvice"}
	seeing          = tests{"./member", "^TestARegisteredMemberSays"}
	gated           = tests{"./member/gate", "^Test(CapClient|Resync|ANamespace|Gate|AList|ABuilder|NamespacesThat|APromotion)"}
	countingReaders = tests{"./hub/worker", "^Test(RegisteredReaders|WhatANewList)"}
	showingReaders  = tests{"./hub/controller", "^TestTheStatusShows"}
)

// author are the mutants of what keeps a controller's author from failing in silence.
var author = []mutant{
	// Clocks that are off.
	{"author: a reader flaps with each renewal", told, []edit{{termsGo, "	if leads && !n.waits(p, now) {", "	if leads {"}}},
	{"author: a term waits though it was told in time", told, []edit{{stateGo, " && p.Remaining(now) < d/2", ""}}},
	{"author: a term waits after another epoch", told, []edit{{stateGo, "return n.lapsed == p.Epoch && now", "return now"}}},
	{"author: nobody says how old a Lease was", told, []edit{{doubtGo, "n.arrived = arrival{age: now.Wall.Sub(c.RenewTime), lasts", "n.arrived = arrival{lasts"}}},
	{"author: a Lease is refused in silence", told, []edit{{tellGo, "	if a.trouble.begins(l.what, now) {", "	if false {"}}},
	{"author: a Lease is refused again and again", told, []edit{{tellGo, "	if a.trouble.begins(l.what, now) {", "	if l.doubt != \"\" {"}}},
	{"author: options may contradict the policy", told, []edit{{tellGo, "	case l.allowed < t.own && t.chosen:\n", "	case false:\n"}}},

	// Rights, and what was forgotten.
	{"author: missing rights are told once", told, []edit{{tellGo, "	return now >= t.at+tellEvery && t.tell(now)", "	return false"}}},
	{"author: missing rights are told every few seconds", told, []edit{{tellGo, "	return now >= t.at+tellEvery && t.tell(now)", "	return t.told"}}},
	{"author: a Member that is not started says nothing", told, []edit{{memberGo, "	utilclock.RealClock{}.AfterFunc(unstartedAfter, m.unstarted)", "	utilclock.RealClock{}.AfterFunc(unstartedAfter, func() {})"}}},
	{"author: a namespace that is not watched is like any other", told, []edit{{stateGo, "	if !t.watches(namespace) {\n		return fmt", "	if false {\n		return fmt"}}},
	{"author: Lead waits for a namespace that is not watched", told, []edit{{"member/lead.go", "|| !t.watches(namespace) {", "|| false {"}}},
	{"author: a Lease that is gone goes on naming a leader", told, []edit{{stateGo, "		if len(n.leases) > 0 {\n", "		if true {\n"}}},
	{"author: never listed is called stale", told, []edit{{healthzGo, "	case !w.everListed():", "	case false:"}}},

	// Registration.
	{"author: a registration without CapWrites", capped, []edit{{registrationGo, "	if r.Client == nil || !capsWrites(r.Client) {", "	if r.Client == nil {"}}},
	{"author: any wrapper passes for CapWrites", capped, []edit{{capGo, "		if !ok {\n			return false\n", "		if !ok {\n			return rt != client.Transport\n"}}},
	{"author: readers that have gone are counted", countingReaders, []edit{{countedGo, "	delete(w.readers.all, uid)\n", ""}}},
	{"author: a registration that cannot be read is not counted", countingReaders, []edit{{countedGo, "return r.reader.Follows(namespace)", "return !r.broken && r.reader.Follows(namespace)"}}},
	{"author: the status does not count readers", showingReaders, []edit{{"hub/controller/status.go", "int32(min(c.readers, math.MaxInt32))", "int32(min(0, math.MaxInt32))"}}},

	{"author: a term is released while another Member of the process acts in it", told, []edit{{runningGo, "		if (m.registrar == nil) != (other.registrar == nil) {", "		if false {"}}},
	{"author: a registered Member is silent about writes that it cannot see", seeing, []edit{{releaseGo, "t.releases != nil && t.worked && !t.wrote", "t.releases == nil && t.worked && !t.wrote"}}},
	{"author: a registered Member complains of writes that it has seen", seeing, []edit{{releaseGo, "	t.terms.wrote = true\n", ""}}},
	{"author: a Member that has stopped keeps others from starting", told, []edit{{runningGo, "return o == m })", "return false })"}}},

	{"author: a listener acts before the log gives the reason", told, []edit{{listenGo, "		t.write()\n", ""}}},
	{"author: who leads is told before who does not any more", told, []edit{{tellGo, "	t.terms.write()\n", ""}}},
	{"author: a restart of the API server is an error", told, []edit{{tellGo, "	if again || !mayEnd(err) {", "	if again || err != nil {"}}},
	{"author: a failure that lasts is no error", told, []edit{{tellGo, "	if again || !mayEnd(err) {", "	if !mayEnd(err) {"}}},
	{"author: missing rights are no error", told, []edit{{tellGo, "	return !apierrors.IsForbidden(err) && ", "	return "}}},
	{"author: Healthz fails in silence", told, []edit{{tellGo, "		if t.unwell.due(\"fails\", t.clock.Now().Boot) {", "		if false {"}}},
	{"author: Healthz is told each time that it is asked", told, []edit{{tellGo, "		if t.unwell.due(\"fails\", t.clock.Now().Boot) {", "		t.unwell.told = true\n		if true {"}}},
	{"author: nobody hears that Healthz succeeds again", told, []edit{{tellGo, "t.unwell.over(); failed {", "t.unwell.over(); failed && false {"}}},

	{"author: the hub is blamed though nobody answers", told, []edit{{alarmGo, "a != nil && a.unheard() {", "false && a.unheard() {"}}},
	{"author: Lead waits in silence for a namespace without a Lease", told, []edit{{memberGo, "	m.teller.wants(namespace)\n	return", "	return"}}},

	// Package gate.
	{"author: CapClient lets a write after the term through", gated, []edit{{memberCap, "	if err := member.Check(ctx); err != nil {", "	if err := member.Check(ctx); false && err != nil {"}}},
	{"author: CapClient lets a write take longer than its term", gated, []edit{{memberCap, "	err := write(capped)", "	err := write(context.WithoutCancel(capped))"}}},
	{"author: CapClient forgets subresources", gated, []edit{{memberCap, "	return fence(ctx, verb+", "	return fence(context.Background(), verb+"}}},
	{"author: Resync ignores predicates", gated, []edit{{resyncGo, "		if !w.passes(created) {", "		if false {"}}},
	{"author: Resync lists other namespaces", gated, []edit{{resyncGo, "	if w.local {", "	if false {"}}},
	{"author: Resync looks for cluster-scoped objects in a namespace", gated, []edit{{resyncGo, "	if w.local {", "	if true {"}}},
	{"author: a promotion enqueues requests of other namespaces", gated, []edit{{resyncGo, "return s.namespace(req) == namespace }", "return s.namespace(req) != \"\" }"}}},
	{"author: a namespace waits until others are worked off", gated, []edit{{resyncGo, " - bits.Len64(", " - 0*bits.Len64("}}},
	{"author: what is resynced comes before what happens now", gated, []edit{{resyncGo, "= handler.LowPriority + ", "= -handler.LowPriority + "}}},
	{"author: a cluster-scoped kind is built like any other", gated, []edit{{"member/gate/builder.go", "	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {", "	if mapping.Scope.Name() == meta.RESTScopeName(\"\") {"}}},
	{"author: a controller to which nothing is brought back is built", gated, []edit{{"member/gate/builder.go", "	if len(b.watches) == 0 {", "	if len(b.watches) < 0 {"}}},
	{"author: a write that its term cuts off looks like one that its caller has stopped", cutOff, []edit{{capGo, "	if t.Holds() {\n		return err", "	if t.Epoch() > 0 {\n		return err"}}},
	{"author: an answer that is cut off looks whole", cutOff, []edit{{capGo, "		err = a.term.cut(err)\n", "		_ = a.term.cut(err)\n"}}},
	{"author: State does not say why a Lease is not believed", told, []edit{{stateGo, "len(n.leases) > 0 && s.Trouble == \"\" {", "len(n.leases) > 0 && s.Trouble != \"\" {"}}},
	{"author: a planned change is called silence of the hub", told, []edit{{termsGo, "return t.clock.Now().Boot-last.at > 2*last.lasts }", "return t.clock.Now().Boot > last.at }"}}},
	{"author: nobody says that the hub is silent", told, []edit{{tellGo, "		case n.seen.LeadsHere() && n.term.Load() == nil &&", "		case !n.seen.LeadsHere() && n.term.Load() == nil &&"}}},
	{"author: who may not watch is told to bind another role", advised, []edit{{tellGo, "	case mustWatch(err):", "	case mustWatch(nil):"}}},
	{"author: Resync tries namespaces outside of the cache for ever", gated, []edit{{resyncGo, "		case outsideOfCache(err):", "		case err == nil && outsideOfCache(err):"}}},
	{"author: Gate is silent about namespaces that nobody watches", gated, []edit{{gateGo, "LoadOrStore(ns, true); before {", "LoadOrStore(ns, true); before || true {"}}},
	{"author: Gate refuses each object of a namespace that nobody watches", gated, []edit{{gateGo, "LoadOrStore(ns, true); before {", "LoadOrStore(ns, true); before && false {"}}},
	{"author: Gate returns the error of a term that is over", gated, []edit{{gateGo, "lost := member.Check(term);", "lost := context.Cause(term);"}}},
	{"author: a write that nothing is left for leaves its term standing", gated, []edit{{releaseGo, "		t.permit.CompareAndSwap(p, nil) // so", "		// so"}}},
	{"author: a list of Resync that fails is told each time", gated, []edit{{resyncGo, "err.Error() != told ||", "err.Error() != told || true ||"}}},
	{"author: the end of a term is a trouble of Resync", gated, []edit{{resyncGo, "case err != nil && ctx.Err() != nil:", "case false:"}}},

	// Leases that no hub can have written.
	{"author: a Lease may last for ever", told, []edit{{doubtGo, "	case c.Duration > lease.MaxDuration:", "	case false:"}}},
	{"author: a Lease may have no epoch", told, []edit{{doubtGo, "	case c.Epoch <= 0:", "	case false:"}}},
	{"author: what an impossible Lease has ended begins again with one that is not believed", told, []edit{{doubtGo, "		n.reader.Gone()\n		return lease.Permit{}", "		return lease.Permit{}"}}},
	{"author: an impossible Lease leaves its term standing", told, []edit{{doubtGo, "		n.reader.Gone()\n		return lease.Permit{}", "		return n.reader.Current()"}}},
	{"author: a Lease that is refused again is not told again", told, []edit{{tellGo, "	if what != t.what {\n", "	if what != \"\" && what != t.what {\n"}}},
	{"author: what comes and goes floods the log", told, []edit{{tellGo, "	if t.times == mostTellings {", "	if false {"}}},
	{"author: a Lease that says nothing of clocks is not told", told, []edit{{tellGo, "	case l.unsaid != \"\":\n		what", "	case false:\n		what"}}},

	// Where the reason lies.
	{"author: State hides what keeps news from coming", told, []edit{{stateGo, "		s.Why = t.why(n, s.Trouble)", "		s.Why = t.why(n, \"\")"}}},
	{"author: State blames the Leases for the registration", told, []edit{{tellGo, "		case !m.terms.registered():", "		case false:"}}},
	{"author: a Member that has stopped is one like any other", told, []edit{{stateGo, "	case t.stopped:\n", "	case false:\n"}}},
	{"author: Lead waits for a Member that has stopped", told, []edit{{"member/lead.go", "		case <-t.ended:\n", ""}}},
	{"author: many namespaces that fail alike are told one by one", told, []edit{{outagesGo, "	if len(o.member.watches) == 1 {", "	if true {"}}},
	{"author: a watch that ends at once is called mended", told, []edit{{watchGo, "			err = w.lasts(ctx, tooShort)\n", "			err = w.lasts(ctx, 0)\n"}}},
	{"author: Healthz of a follower waits for StaleAfter", told, []edit{{healthzGo, "	case asked > 0 && w.everListed()", "	case false && w.everListed()"}}},
	{"author: a server that refuses counts as dead", told, []edit{{watchGo, "			w.asked.Store(0) // it has answered\n", ""}}},
	{"author: any name is one of a namespace", told, []edit{{optionsGo, "len(wrong) > 0 {", "len(wrong) > 0 && false {"}}},
	{"author: a leader hides that its renewals are refused", told, []edit{{stateGo, "			if s.Trouble == \"\" { // a", "			if false { // a"}}},
}
