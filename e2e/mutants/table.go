package main

const (
	readerGo       = "api/lease/reader.go"
	termGo         = "api/lease/term.go"
	assignGo       = "hub/election/assign.go"
	expiryGo       = "hub/election/expiry.go"
	nextGo         = "hub/election/next.go"
	grantGo        = "hub/election/grant.go"
	raiseGo        = "hub/election/raise.go"
	syncerGo       = "hub/publish/leasesyncer.go"
	acksExpiryGo   = "hub/publish/acksexpiry.go"
	publishEditsGo = "hub/publish/edits.go"
	historyGo      = "hub/publish/history.go"
	initialGo      = "hub/publish/initial.go"
	decideGo       = "hub/publish/decide.go"
	inmemberGo     = "hub/publish/inmember.go"
	promisesGo     = "hub/publish/promises.go"
	publisherGo    = "hub/publish/publisher.go"
	gatherGo       = "hub/controller/gather.go"
	candidatesGo   = "hub/controller/candidates.go"
	claimGo        = "hub/controller/claim.go"
	reconcileGo    = "hub/controller/reconcile.go"
	persistGo      = "hub/controller/persist.go"
	editsGo        = "hub/controller/edits.go"
	tenureGo       = "hub/tenure/tenure.go"
)

// expiry are the mutants of the rules under which only expiry ends a term, ordered by the
// protocol's rules. A source of stamps that a decision does not close is closed by the
// assignment that follows, and the bound is counted anew after that.
var expiry = []mutant{
	// Reader's rule.
	{"reader: renewTimes of the future are believed", simulation, []edit{{readerGo, "	case c.RenewTime.After(now.Wall.Add(r.Allowed(c))):\n		return FutureRenewTime\n", ""}}},
	{"reader: the monotonic half is dropped", simulation, []edit{{readerGo, "return now.Boot < p.boot && now.Wall", "return now.Wall"}}},
	{"reader: the wall clock's half is dropped", simulation, []edit{{readerGo, "now.Boot < p.boot && now.Wall.Before(p.wall)", "now.Boot < p.boot"}}},
	{"reader: what the policy allows clocks does not count", tests{"./api/lease", "^TestReaderLeadsUntil"}, []edit{{readerGo, "return min(r.Skew, c.Skew)", "return r.Skew"}}},
	{"reader: a policy that allows more than the reader is heeded", tests{"./api/lease", "^TestReaderLeadsUntil"}, []edit{{readerGo, "return min(r.Skew, c.Skew)", "return c.Skew"}}},
	{"seal: what the policy allows clocks is not sealed", tests{"./hub/seal", "^TestSeal"}, []edit{{"hub/seal/key.go", "	if c.Skew != 0 {", "	if false {"}}},
	{"publish: a Lease does not say what the policy allows clocks", tests{"./hub/publish", "^TestALeaseSays"}, []edit{{"hub/publish/decide.go", "Hub: l.self.hub, Skew: l.timings.Skew,", "Hub: l.self.hub,"}}},
	{"reader: what remains is frozen again by a re-delivery", simulation, []edit{{readerGo,
		"c.Epoch != r.frozen.Epoch || deadline.After(r.frozen.wall)", "deadline.After(time.Time{})"}}},
	{"reader: by observation alone, as client-go's elector does", simulation, []edit{
		{readerGo, "wall:  deadline,", "wall:  now.Wall.Add(c.Duration),"},
		{readerGo, "boot:  now.Boot + deadline.Sub(now.Wall),", "boot:  now.Boot + c.Duration,"},
		{readerGo, "r.current = r.frozen.until(c.Deadline(), now)", "r.current = r.frozen"}}},
	{"reader: any holder is this cluster", simulation, []edit{{termGo, "return c.Holder != \"\" && c.Holder == c.Cluster", "return c.Holder != \"\""}}},

	// Rule 1.
	{"1: renewTime is chosen after the check", stories, []edit{{publisherGo, "l.next(now, p.MayWrite(now), answered)", "l.next(p.Clock.Now(), p.MayWrite(now), answered)"}}},
	{"1: no deadline check", simulation, []edit{{tenureGo, "t.held && !t.released && now.Wall.Before(t.wall) && now.Boot < t.boot", "t.held && !t.released"}}},
	{"1: deadline counted from the response", simulation, []edit{
		{tenureGo, "t.wall = renewTime.Add(t.h)", "t.wall = after.Wall.Add(t.h)\n	_ = renewTime"},
		{tenureGo, "t.boot = sent.Boot - max(0, sent.Wall.Sub(renewTime)) + t.h", "t.boot = after.Boot + t.h"}}},
	{"1: deadline of 1.5 h", stories, []edit{
		{tenureGo, "t.wall = renewTime.Add(t.h)", "t.wall = renewTime.Add(t.h * 3 / 2)"},
		{tenureGo, "sent.Wall.Sub(renewTime)) + t.h", "sent.Wall.Sub(renewTime)) + t.h*3/2"}}},
	{"1: renewals go on after the release", tenureTests, []edit{{tenureGo, "	t.released = true\n", ""}}},
	{"1: a tenure goes on with an election made anew", tests{"./hub/tenure", "^TestATenureThatHasLapsedNeverGoesOn$"}, []edit{{tenureGo, "	if l.tenure.wasHeld() {", "	if false {"}}},
	{"1: a tenure that has lapsed goes on", simulation, []edit{{tenureGo, "	if !l.tenure.unbroken(r, sent) {", "	if false {"}}},
	{"1: the election of another replica is released", simulation, []edit{{tenureGo, "if !l.tenure.leaseIsOwn(l.Identity()) {", "if false {"}}},

	// Rule 2.
	{"2: member write before record", simulation, []edit{{reconcileGo,
		"	if err := c.persist(ctx, v, d); err != nil {", "	if d.Persist {\n		c.namespace(v.key).granted = d.Record.Epoch\n	}\n	c.assign(v, d)\n	if err := c.persist(ctx, v, d); err != nil {"}}},
	{"2: no record compare-and-swap", tests{"./hub/controller", "^TestARecordIsWritten"}, []edit{{persistGo,
		"	store := func() error { return c.client.Update(ctx, object) }",
		"	store := func() error { object.ResourceVersion = \"\"; return c.client.Update(ctx, object) }"}}},
	{"2: what somebody else writes is not looked at", tests{"./hub/controller", "^TestARecordIsReadLive"}, []edit{{editsGo, "	if s.versions.foreign() {", "	if false {"}}},
	{"2: after a failed write the record is not looked at", tests{"./hub/controller", "^TestARecordIsReadLive"}, []edit{{reconcileGo, "		c.lookAgain(v.key)\n		return reconcile.Result{RequeueAfter: rightAway}", "		return reconcile.Result{RequeueAfter: rightAway}"}}},
	{"2: a record of a restored hub passes for this tenure's", tests{"./hub/controller", "^TestWhoseWriteAWatchShows$"}, []edit{{"hub/controller/namespace.go", "	v.known = v.known[i:]\n", ""}}},
	{"2: an answer that is slower than the watch makes a write somebody else's", tests{"./hub/controller", "^TestWhoseWriteAWatchShows$"}, []edit{{"hub/controller/namespace.go", "func(version string) bool { return !v.pass(version) }", "func(string) bool { return true }"}}},
	{"2: a record that an earlier tenure may still change is not read again", tests{"./hub/controller", "^TestARecordIsKnownForGood"}, []edit{{editsGo, "		s.known, s.current = nil, false\n		return\n	}\n	s.known, s.current = o", "		s.known, s.current = o.DeepCopy(), true\n		return\n	}\n	s.known, s.current = o"}}},
	{"2: the word of an earlier tenure counts as an edit", simulation, []edit{{editsGo, "c.fromElsewhere(o) || c.Tenure.EarlierEndIn(asked, v.skew) > 0 {", "c.fromElsewhere(o) {"}}},
	{"8: another hub's record counts as known once it was explained", tests{"./hub/controller", "^TestARecordOfAnotherHub"}, []edit{{editsGo, "if c.fromElsewhere(o) || c.Tenure", "if c.Tenure"}}},
	{"2: a longer D is promised before the seal remembers it", stories, []edit{{persistGo, "	if d.Record.State == election.Leading && v.policy != nil {", "	if false {"}}},
	{"2: a longer D is sent before it is recorded", stories, []edit{
		{assignGo, "Duration: min(duration, r.Duration),", "Duration: duration,"},
		{nextGo, "	r.raise(p) // recorded before any Lease is sent under it\n", ""}}},

	// Rule 3.
	{"3: an expired Lease is renewed", stories, []edit{{decideGo, "c.SameTerm(l.want.Term) && c.Live(now.Wall)", "c.SameTerm(l.want.Term)"}}},
	{"3: first Lease written by another tenure", simulation, []edit{{decideGo, "l.sentEpoch == l.want.Term.Epoch || !l.want.First:", "l.sentEpoch == l.want.Term.Epoch:"}}},
	{"3: an unsealed Lease is believed", simulation, []edit{{syncerGo, "c, l.self.key.Sealed(c, seal), wire", "c, true, wire"}}},
	// As a write without a version would be carried out; that of a Lease cannot be sent by an update.
	{"3: no member compare-and-swap", simulation, []edit{{"hub/controller/sim_leases_test.go",
		"obj.UID != old.UID, obj.ResourceVersion != \"\" && obj.ResourceVersion != old.ResourceVersion:", "obj.UID != old.UID:"}}},

	// Rule 4.
	{"4: renew while draining", simulation, []edit{{assignGo, "a.Role = assign.Hold // a draining record forbids renewal by every replica", "a.Role = assign.Lead"}}},
	{"4: bound before close", simulation, []edit{
		{nextGo, "	r := s.Record\n	if !b.passed(now) {\n		if resumes(",
			"	r := s.Record\n	if !r.NotBefore.IsZero() {\n		b = expiry{wall: r.NotBefore}\n	}\n	if !b.passed(now) {\n		if resumes("},
		{nextGo, "	if why == \"\" {\n		return keep(now, p, s, cs)\n	}\n	if !s.Sent.Final {\n		return Decision{Record: s.Record, StopRenewing: true}\n	}\n",
			"	if why == \"\" {\n		return keep(now, p, s, cs)\n	}\n"}}},
	{"4: another tenure's bound is trusted", simulation, []edit{{nextGo,
		"	r := s.Record\n	if !b.passed(now) {\n		if resumes(",
		"	r := s.Record\n	if !s.GrantedHere && !r.NotBefore.IsZero() {\n		b = expiry{wall: r.NotBefore}\n	}\n	if !b.passed(now) {\n		if resumes("}}},
	{"4: a renewTime is in no ledger", simulation, []edit{{publisherGo, "	if s.promised > 0 {", "	if s.promised > time.Hour {"}}},
	{"4: the ledger keeps the last renewTime, not the latest", simulation, []edit{{promisesGo, "latest(p.Until, sent.Wall.Add(d))", "sent.Wall.Add(d)"}, {promisesGo, "max(p.BootUntil, sent.Boot+d)", "sent.Boot + d"}}},

	// Rule 5.
	{"5: no ε after this tenure's renewTimes", simulation, []edit{
		{expiryGo, "s.Sent.Until.Add(p.skew + s.Sent.Stop)", "s.Sent.Until.Add(s.Sent.Stop)"}, {expiryGo, "s.Sent.BootUntil+p.skew", "s.Sent.BootUntil"}}},
	{"5: no ε after what is inherited", simulation, []edit{{expiryGo, "s.Tenure.Inherited.Add(d + skew + stop)", "s.Tenure.Inherited.Add(d + stop)"}}},
	{"5: the monotonic half is dropped", stories, []edit{{expiryGo, "now.Boot >= b.boot && (!now", "(!now"}}},
	{"5: this tenure's renewTimes are not counted", simulation, []edit{{expiryGo, "	if !s.Sent.Until.IsZero() {", "	if false {"}}},
	{"5: the policy's D instead of the sent one", simulation, []edit{{expiryGo,
		"	b := inheritedExpiry(s, p)\n	if !s.Sent", "	b := inheritedExpiry(s, p)\n	s.Sent.Until, s.Sent.BootUntil = s.Sent.Until.Add(min(0, p.d-s.Record.Duration)), s.Sent.BootUntil+min(0, p.d-s.Record.Duration)\n	if !s.Sent"}}},
	{"5: a smaller ε shortens what was promised", stories, []edit{{expiryGo, "	p.skew = max(p.skew, s.Sent.Skew)\n", ""}}},
	{"5: what was sent under a larger ε is forgotten", tests{"./hub/publish", "^TestEachPromise"}, []edit{{promisesGo, "skew < p.Skew || ", ""}}},
	{"5: a larger ε or stop time is forgotten on the wall clock", tests{"./hub/publish", "^TestEachPromise"}, []edit{{promisesGo, "p.EarlierEnd = latest(p.EarlierEnd, p.Until.Add(rest))", "_ = rest"}}},
	{"5: a larger ε or stop time is forgotten on the boot clock", tests{"./hub/publish", "^TestEachPromise"}, []edit{{promisesGo, "p.BootEarlierEnd = max(p.BootEarlierEnd, p.BootUntil+rest)", ""}}},
	{"5: a shorter D is recorded at once", tests{"./hub/election", "^TestTheRecordKeepsTheLongestDThatIsOut$"}, []edit{{nextGo, "		wait = outlasting(now, p, s)\n", ""}}},

	// Rule 6.
	{"6: no takeover assumption", simulation, []edit{{expiryGo, "	b := inheritedExpiry(s, p)\n	if !s.Sent", "	b := expiry{}\n	if !s.Sent"}}},
	{"6: the predecessor renewed only until its last renewal", simulation, []edit{{tenureGo,
		"t.inherited = r.RenewTime.Add(t.earlierDuration)", "t.inherited = r.RenewTime.Time"}}},
	{"6: a missing election Lease promises nothing", simulation, []edit{{tenureGo, "started.Wall.Add(t.h) // where nothing is known", "started.Wall.Add(-time.Minute)"}}},
	{"6: no D of the record is added", simulation, []edit{{expiryGo, "s.Tenure.Inherited.Add(d + skew + stop)", "s.Tenure.Inherited.Add(skew + stop)"}}},
	{"6: an empty record grants at once", simulation, []edit{{nextGo, "	case !b.passed(now):\n		wait, why", "	case !s.Record.Lost() && !b.passed(now):\n		wait, why"}}},
	{"6: the largest D is forgotten", stories, []edit{
		{expiryGo, "d := max(p.d, longest(s), s.LargestDuration)", "d := max(p.d, longest(s))"},
		{expiryGo, "return max(s.Record.Duration, s.LargestDuration)", "return s.Record.Duration"},
		{nextGo, "max(s.LargestDuration, p.Timings.Duration) // still", "p.Timings.Duration // stays"}}},
	{"6: an edit of the record shortens what was inherited", tests{"./hub/election", "^TestGrantAfterWhatEarlierTenuresSent$"}, []edit{{expiryGo, "d := max(p.d, longest(s), s.LargestDuration)", "d := max(p.d, longest(s))"}}},
	{"6: a smaller ε shortens what was inherited", tests{"./hub/election", "^TestGrantAfterWhatEarlierTenuresSent$"}, []edit{{expiryGo, "	skew := max(p.skew, s.Record.Skew, s.LargestSkew)\n", "	skew := p.skew\n"}}},
	{"6: the largest ε is not remembered", tests{"./hub/controller", "^TestNothingIsGrantedUnderWhat"}, []edit{{persistGo, "b.Max(v.policy.bounds()))", "seal.Bounds{Duration: b.Duration, Stop: b.Stop})"}}},
	{"6: stale record at takeover", simulation, []edit{{editsGo, "switch err := c.live.Get(ctx, v.key, object); {", "switch err := c.client.Get(ctx, v.key, object); {"}}},
	{"6: exact bound read from a member that may be restored", simulation, []edit{{expiryGo,
		"	b := inheritedExpiry(s, p)\n	if !s.Sent", "	b := inheritedExpiry(s, p)\n	if s.Found != nil {\n		b = expiry{wall: s.Found.Term.Deadline().Add(p.skew)}\n	}\n	if !s.Sent"}}},
	{"6: an expired Lease raises the record", tests{"./hub/election", "^TestRais"}, []edit{{raiseGo, "!st.live(now)", "st == nil"}}},
	{"6: Leases without a leader here raise the record", tests{"./hub/controller", "^TestOnlyTheLeadersOwnLease"}, []edit{{gatherGo, "if cp.LeadsHere() && cp.Cluster == m.Identity() && (", "if cp.Holder != \"\" && ("}}},
	{"6: a holder that was edited away counts as a release", tests{"./hub/tenure", "^TestInherited$"}, []edit{{tenureGo, "case r.HolderIdentity == \"\" && r.AcquireTime.Time.Equal(r.RenewTime.Add(releaseMark)):", "case r.HolderIdentity == \"\":"}}},
	{"6: a claim whose holder was edited away counts as a release", tests{"./hub/tenure", "^TestInherited$"}, []edit{{tenureGo, "r.AcquireTime.Time.Equal(r.RenewTime.Add(releaseMark)):", "!r.AcquireTime.Time.Before(r.RenewTime.Time):"}}},

	// Rule 7.
	{"7: epochs do not start from the seconds", simulation, []edit{{grantGo, "return max(highest+1, lease.EpochFloor(now))", "return highest + 1"}}},
	{"7: epoch without 1+", simulation, []edit{{grantGo, "return max(highest+1, lease.EpochFloor(now))", "return max(highest, lease.EpochFloor(now))"}}},
	{"7: Leases do not raise the epoch", tests{"./hub/controller", "^TestALeaseRaises"}, []edit{{gatherGo, "		s.Highest = max(s.Highest, cp.Epoch)\n", "		_ = s\n"}}},
	{"7: what a cluster without a label knows of epochs is ignored", tests{"./hub/controller", "^TestALeaseRaises"}, []edit{{gatherGo, "		s.Highest = max(s.Highest, cp.Epoch)\n", "		if m.takesPart {\n			s.Highest = max(s.Highest, cp.Epoch)\n		}\n"}}},
	{"7: the record does not raise the epoch", simulation, []edit{{grantGo, "max(s.Record.Epoch, s.Highest)", "s.Highest"}, {gatherGo, "max(known.granted, s.Record.Epoch)", "known.granted"}}},
	{"7: what was found at the start makes a record again", stories, []edit{{inmemberGo, "	p.initial.Leases = slices.DeleteFunc(", "	_ = slices.DeleteFunc("}}},
	{"7: a Lease that held still outlives the record", tests{"./hub/publish", "^TestForget$"}, []edit{{inmemberGo, " || l.want.Role == assign.Hold\n", "\n"}}},
	{"7: a Lease that is newer than the record is waited for", tests{"./hub/controller", "^TestALeaseThatIsNewer"}, []edit{{gatherGo, "max(s.Highest, m.facts.PoisonedEpoch, m.facts.Newer)", "max(s.Highest, m.facts.PoisonedEpoch)"}}},
	{"7: an absurd record is believed", stories, []edit{{editsGo, "	case !lease.PlausibleEpoch(now, r.Epoch):", "	case false:"}}},
	{"7: a term of years is believed", stories, []edit{{editsGo, "	case r.Duration > lease.MaxDuration, ", "	case false, "}}},
	{"7: epochs start from the minutes", simulation, []edit{{termGo, "now.Sub(epochZero)/time.Second", "now.Sub(epochZero)/time.Minute"}}},
	{"7: a record goes before its bound", tests{"./hub/election", "^Test"}, []edit{{nextGo,
		"	if !b.passed(now) {\n		return Decision{Record: r, Waiting: reason.WaitingForExpiry, After: b.wait(now)}\n	}\n	if ahead", "	if ahead"}}},
	{"7: a record goes before the seconds have caught up", simulation, []edit{{nextGo, "; ahead > 0 {", "; ahead > 1<<40 {"}}},

	// Rule 13.
	{"13: a cluster without the namespace may lead", simulation, []edit{{candidatesGo, "	case m.namespace == nil || v.policy == nil || !v.policy.matches(v.key.Name, m.namespace.Labels):\n		return election.Unfit,", "	case m.namespace == nil:\n		return election.Fit,"}}},

	// What the simulation found once.
	{"a vacant record names a leader", tests{"./hub/election", "^Test"}, []edit{{assignGo, "if r.Leader != \"\" && r.State != Vacant {", "if r.Leader != \"\" {"}}},
	{"9: a lost record counts as one that no policy claims", tests{"./hub/controller", "^TestWhoClaims"}, []edit{{claimGo, "if v.policy == nil && recorded == \"\" && v.unread(policies) {", "if false {"}}},
	{"what answers tell needs no watch", simulation, []edit{{decideGo, "		return l.awaitWatch(now)\n", "		return step{}\n"}}},
}
