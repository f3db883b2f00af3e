package main

// special are the worlds of the simulation that have something special.
var specials = tests{"./hub/controller", "^TestSpecialWorlds$"}

// holes are what adversaries found: each was a hole in what is promised, or in rule 12.
var holes = []mutant{
	// What an earlier tenure did while it overlapped with this one.
	{"6: whether an earlier tenure has ended is judged by the seal's ε only", tests{"./hub/controller", "^TestTheSealIsReadAgain"}, []edit{{"hub/controller/installation.go", "	skew = max(skew, known.Largest().Skew)", "	skew = known.Largest().Skew"}}},
	{"6: what an earlier tenure raises while it is still at work is not read", tests{"./hub/controller", "^TestTheSealIsReadAgain"}, []edit{{"hub/controller/installation.go", "	if read && !ended(c.Tenure.Overlap) && !ended(c.Tenure.EarlierEndIn) {", "	if read && ended != nil {"}}},

	// After an outage of the hub.
	{"12: after an outage of the hub an unknown leader has no time to answer", electionTests, []edit{{replaceGo, "		if timeToAnswer(now, p, s) > 0 || !promiseExpiry", "		if !promiseExpiry"}}},
	{"12: nor has one that begins to answer", electionTests, []edit{{replaceGo, "		if notReady(holder) && timeToAnswer(now, p, s) > 0 {", "		if false {"}}},
	{"12: whoever answers first replaces a leader whose Lease has run out meanwhile", electionTests, []edit{{nextGo, "	if late, wait := waitsFor(now, p, s, c, cs); wait > 0 {\n		return Decision{Record: r, Waiting", "	if late, wait := waitsFor(now, p, s, c, cs); wait > time.Hour {\n		return Decision{Record: r, Waiting"}}},
	{"12: the leader is waited for only if its priority is higher", electionTests, []edit{{nextGo, "outranks(o, c) || o.Name == s.Record.Leader && whyDepose(now, p, s, ranked) == \"\")", "outranks(o, c))"}}},
	{"12: a leader that cannot be reached is forgotten when nobody can replace it", electionTests, []edit{{nextGo, "	case !ok && comesBack(s, cs):\n		return Decision{Record: r, Waiting: reason.NoCandidate}\n", ""}}},
	{"12: one that comes back is replaced by who was faster", electionTests, []edit{{nextGo, "	case holder.Reason == reason.Recovering && comesBack(s, ranked):", "	case holder.Reason == reason.Gone && comesBack(s, ranked):"}}},
	{"12: one that an operator replaces is waited for", electionTests, []edit{{nextGo, "unreached(s.Record.Reason) && unreached(holder.Reason)", "unreached(holder.Reason)"}}},

	// Edits that promise more.
	{"3: an earlier deadline does not shorten what an edit promised", readerTests, []edit{{readerGo, "	r.current = r.frozen.until(c.Deadline(), now)", "	r.current = r.frozen"}}},
	{"3: it does so on the wall clock only", readerTests, []edit{{readerGo, "deadline, min(p.boot-earlier, now.Boot+deadline.Sub(now.Wall))", "deadline, p.boot"}}},
	{"3: a stepped wall clock undoes it", readerTests, []edit{{readerGo, "min(p.boot-earlier, now.Boot+deadline.Sub(now.Wall))", "now.Boot + deadline.Sub(now.Wall)"}}},
	{"3: an edit of the renewTime is no reason for a new term", tests{"./hub/publish", "^TestAnEditThatPromisesMore"}, []edit{{publishEditsGo, "c.Epoch == want.Epoch && l.promisesMore(now)", "c.Epoch == want.Epoch && l.promisesMore(now) && c.Duration > want.Duration"}}},
	{"3: an edit that promises more stays while its term is being replaced", specials, []edit{{decideGo, "		case l.promisesMore(now):\n			return l.undoExtension(now)\n		case tries", "		case tries"}}},
	{"3: nobody waits until readers have seen the repair", tests{"./hub/publish", "^TestAnEditThatPromisesMore"}, []edit{{publishEditsGo, "	s.reading, s.promised = now, l.want.Term.Duration\n	return s", "	return s"}}},
	{"3: a revocation leaves an edit that promises more", tests{"./hub/publish", "^TestASyncerRevokes$"}, []edit{{revokeGo, "	case l.promisesMore(now):\n		return l.undoExtension(now)\n", ""}}},

	// Two replicas at once.
	{"6: a clock that is behind by ε is not waited for", tenureTests, []edit{{tenureGo, "		end = end.Add(skew)", "		end = end.Add(0)"}}},
	{"6: the end of an earlier tenure is judged by the wall clock alone", tenureTests, []edit{{tenureGo, "max(end.Sub(at.Wall), t.started.Boot+end.Sub(t.started.Wall)-at.Boot)", "end.Sub(at.Wall)"}}},
	{"6: the end of an earlier tenure is judged by the boot clock alone", tenureTests, []edit{{tenureGo, "max(end.Sub(at.Wall), t.started.Boot+end.Sub(t.started.Wall)-at.Boot)", "t.started.Boot + end.Sub(t.started.Wall) - at.Boot"}}},
	{"6: an orderly release holds the next tenure up", tenureTests, []edit{{tenureGo, "	if !t.orderly {\n		end", "	if true {\n		end"}}},
	{"6: a release beside an earlier tenure is orderly", tenureTests, []edit{{tenureGo, "	if t.orderly || now.Boot >= t.started.Boot+t.earlierLasts(t.skew) {", "	if true {"}}},
	{"6: a Lease that an old request has made is released in order", tests{"./hub/tenure", "^TestWhatIsReleased$"}, []edit{{tenureGo, "t.lastRecord.HolderIdentity == holder && t.isOwn(*t.lastRecord) &&", "t.lastRecord.HolderIdentity == holder &&"}}},
	{"6: a Lease from before the last renewal is released in order", tests{"./hub/tenure", "^TestWhatIsReleased$"}, []edit{{tenureGo, " && !asStored(t.lastRecord.RenewTime).Add(t.h).Before(t.wall)\n}", "\n}"}}},
	{"6: a release by a clock that was set back hides renewTimes", tenureTests, []edit{{tenureGo, "t.lastWrite.After(latest) {", "false {"}}},
	{"6: an election of 68 years is believed", tenureTests, []edit{{tenureGo, ", lasts > longestElection/time.Second: // odd", ": // odd"}}},
	{"6: a candidate overlooks renewals within one second", tests{"./hub/tenure", "^TestPrompt"}, []edit{{"hub/tenure/takeover.go", " || !r.RenewTime.Equal(&p.last.RenewTime) {", " || r.RenewTime.Unix() != p.last.RenewTime.Unix() {"}}},
	{"8: the leader's sealed newer Lease is overwritten", tests{"./hub/publish", "^TestASealedNewer"}, []edit{{decideGo, "	case l.newerThanRecord(now):\n", "	case l.want.Role != assign.Lead && l.newerThanRecord(now):\n"}}},

	{"13: a cluster that cannot be read in order to be written is chosen again and again", tests{"./hub/publish", "^TestALeaseWithAMinRenewTime$"}, []edit{{"hub/publish/answer.go", "	if s.writes() || proves {", "	if s.writes() {"}}},

	// Whose word a record is.
	{"8: what another hub makes of its record is put right", tests{"./hub/controller", "^TestARecordOfAnotherHubIsSeen$"}, []edit{{editsGo, "		last = nil // whatever", "		// whatever"}}},
	{"2: a write that comes true late is an edit", tests{"./hub/controller", "^TestARecordThatIsWrittenLate"}, []edit{{editsGo, "	case c.isOwn(v.key, v.found):", "	case false:"}}},

	// The first election of a namespace.
	{"13: the first leader waits for nobody", firstTests, []edit{{nextGo, "delay > wait {", "false {"}}},
	{"13: it does not wait for the namespace", firstTests, []edit{{nextGo, "(notReady(o) || o.Reason == reason.NamespaceMissing)", "notReady(o)"}}},
	{"13: it does not wait for a cluster that is settling", firstTests, []edit{{nextGo, "(notReady(o) || o.Reason == reason.NamespaceMissing)", "o.Reason == reason.NamespaceMissing"}}},
	{"13: it waits for worse ones", firstTests, []edit{{nextGo, "outranks(o, c) && (notReady(o) ||", "(notReady(o) ||"}}},
	{"13: every leader waits so", firstTests, []edit{{nextGo, "r.Epoch != 0 || r.Since.After(now.Wall)", "r.Since.After(now.Wall)"}}},
	{"13: a clock that was ahead makes it wait", firstTests, []edit{{nextGo, "r.Epoch != 0 || r.Since.After(now.Wall)", "r.Epoch != 0"}}},

	// Clocks of the hub.
	{"5: a clock that was ahead holds a replacement up for as long as it was ahead", electionTests, []edit{{expiryGo, "(!now.Wall.Before(b.wall) || now.Boot >= b.boot+b.extra)", "!now.Wall.Before(b.wall)"}}},
	{"5: the wall clock's half is dropped", electionTests, []edit{{expiryGo, "(!now.Wall.Before(b.wall) || now.Boot >= b.boot+b.extra)", "true"}}},
	{"7: an epoch of a clock that was days ahead is gone on from, as a Lease shows it", tests{"./hub/controller", "^TestWhichLeaseIsAStandingTerm$"}, []edit{{gatherGo, "!lease.PlausibleEpoch(now, cp.Epoch) {", "false {"}}},
	{"7: an epoch of a clock that was days ahead is gone on from, as this tenure remembers it", tests{"./hub/controller", "^TestTheHighestEpochThatIsKnown$"}, []edit{{gatherGo, "	if !lease.PlausibleEpoch(now, s.Highest) {", "	if false {"}}},
	{"6: a Lease that was found at the start is live by the wall clock alone", electionTests, []edit{{typesGo, " && now.Boot < s.Boot", ""}}},
}
