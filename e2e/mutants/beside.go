package main

// What has to notice the mutants of rules that the simulation does not reach, or by which
// no two clusters lead at once: the tests beside the code. Those on real API servers and
// the small simulation are left out, because none of these need them.
var (
	readerTests   = tests{"./api/lease", "^Test"}
	clockTests    = tests{"./api/lease/clock", "^TestAPause"}
	firstTests    = tests{"./hub/election", "^TestTheFirstLeaderWaits"}
	electionTests = tests{"./hub/election", "^Test"}
	publishTests  = tests{"./hub/publish", "^Test[^O]"}
	tenureTests   = tests{"./hub/tenure", "^Test(Deadline|Release|Inherited|Doubt|ATenure)"}
	pinTests      = tests{"./hub/fleet", "^Test(IdentityOf|Owners)$"}
)

const (
	replaceGo  = "hub/election/replace.go"
	rankGo     = "hub/election/rank.go"
	typesGo    = "hub/election/types.go"
	clockGo    = "api/lease/clock/clock.go"
	identityGo = "hub/fleet/identity.go"
)

// beside are the mutants of rules that keep a leader where it is, choose the next one, or
// count only after two faults at once. As long as only expiry ends a term, the reader's
// epoch floor is among them, and so is the UID in an update: a copy of an earlier epoch
// has expired whenever a later one can be seen, and one that a late update makes again
// promises nothing that was not counted.
//
// There are none of locks and their stop time, of managedFields and of what else
// fencing.md asks for: these do not exist yet.
var beside = []mutant{
	// Reader's rule.
	{"reader: an epoch below the highest seen is believed", readerTests, []edit{{readerGo, "	case c.Epoch < r.highest:\n		return FallenEpoch\n", ""}}},
	{"reader: an absurd epoch is believed", readerTests, []edit{{readerGo, "	case !PlausibleEpoch(now.Wall, c.Epoch):\n		return AbsurdEpoch\n", ""}}},
	{"reader: what was permitted outlives the Lease", readerTests, []edit{{readerGo, "func (r *Reader) Gone() { r.current = Permit{} }", "func (r *Reader) Gone() {}"}}},
	{"reader: what was permitted outlives another holder", readerTests, []edit{{readerGo, "		r.current = Permit{}\n		return r.current", "		return r.current"}}},
	{"reader: wall read before monotonic", clockTests, []edit{{clockGo, "	before := boottime()\n	now := wallclock()\n", "	now := wallclock()\n	before := boottime()\n"}}},
	{"reader: readings that a pause came between are kept", clockTests, []edit{{clockGo, "boottime()-before <= tight", "boottime()-before <= time.Hour"}}},

	// Rule 1.
	{"1: the monotonic half of the deadline is dropped", tenureTests, []edit{{tenureGo, "now.Wall.Before(t.wall) && now.Boot < t.boot", "now.Wall.Before(t.wall)"}}},
	{"1: the wall clock's half of the deadline is dropped", tenureTests, []edit{{tenureGo, "now.Wall.Before(t.wall) && now.Boot < t.boot", "now.Boot < t.boot"}}},
	{"1: deadline counted from the send, not from renewTime", tenureTests, []edit{{tenureGo, "sent.Boot - max(0, sent.Wall.Sub(renewTime)) + t.h", "sent.Boot + t.h"}}},
	{"1: a tenure taken back goes on if the elector sends what it sent before", tenureTests, []edit{{tenureGo, " && (t.lastRecord == nil || t.lastRecord.HolderIdentity == r.HolderIdentity && t.isOwn(*t.lastRecord))", ""}}},
	{"1: a read that failed ends a tenure", tenureTests, []edit{{tenureGo, "(t.lastRecord == nil || t.lastRecord.HolderIdentity", "(t.lastRecord != nil && t.lastRecord.HolderIdentity"}}},
	{"1: a tenure taken back from a replica with as many transitions goes on", tenureTests, []edit{{tenureGo, " && asStored(r.AcquireTime).Equal(t.acquired)", ""}}},

	// Rule 3.
	{"3: a renewal makes a Lease that was deleted", publishTests, []edit{{publisherGo, "	case update:\n", "	case update:\n		s.lease.UID = \"\"\n"}}},
	{"3: renewTime is not held", publishTests, []edit{{decideGo, "	case l.sentEpoch == l.want.Term.Epoch && l.sent.Live(now.Wall):\n", "	case false:\n"}}},
	{"3: the Lease of a silent member is renewed", publishTests, []edit{{decideGo, "	if !answered {\n", "	if false {\n"}}},

	// Rule 6.
	{"6: a tenure decides beside an earlier one", tests{"./hub/controller", "^TestNothingIsDecided"}, []edit{{"hub/controller/reconcile.go",
		"	if rest := c.Tenure.Overlap(asked, v.skew); rest > 0 {", "	if rest := c.Tenure.Overlap(asked, v.skew); rest < 0 {"}}},
	{"6: what somebody wrote into the election holds a tenure up", tenureTests, []edit{{tenureGo,
		"max(0, min(rest, t.started.Boot+t.earlierLasts(skew)-at.Boot))", "max(0, rest)"}}},
	{"6: a tenure that lost its election is not waited for by a slow clock", tenureTests, []edit{{tenureGo,
		"max(0, min(rest, t.started.Boot+t.earlierLasts(skew)-at.Boot))", "max(0, min(rest, t.started.Boot+t.earlierDuration-at.Boot))"}}},
	{"6: a release beside a tenure whose clock is slow is orderly", tenureTests, []edit{{tenureGo, "t.started.Boot+t.earlierLasts(t.skew) {", "t.started.Boot+t.earlierDuration {"}}},
	{"6: a record is known for good before a slow clock has ended a tenure", tenureTests, []edit{{tenureGo,
		"max(0, t.started.Boot+t.earlierLasts(skew)-at.Boot)", "max(0, t.started.Boot+t.earlierDuration-at.Boot)"}}},
	{"6: takeover clock read before acquiring", tenureTests, []edit{
		{tenureGo, "		t.inherit(after)\n", "		_ = after\n		t.inherit(sent)\n"}}},
	{"6: an election whose renewTime is in the future tells until when", tenureTests, []edit{{tenureGo, ", r.RenewTime.After(started.Wall), lasts", ", lasts"}}},
	{"6: an election made anew tells of what was before it", tenureTests, []edit{{tenureGo, "	case r.AcquireTime.Equal(&r.RenewTime):", "	case r.LeaderTransitions == 0 && r.AcquireTime.Equal(&r.RenewTime) && false:"}}},
	{"6: a claim that was never renewed tells of what was before it", tenureTests, []edit{{tenureGo, "	case r.AcquireTime.Equal(&r.RenewTime):", "	case r.LeaderTransitions == 0 && r.AcquireTime.Equal(&r.RenewTime):"}}},
	{"6: a renewal hides what the tenure inherited", tenureTests, []edit{{tenureGo, " &&\n		!asStored(r.RenewTime).Add(t.h).Before(t.inherited.Truncate(time.Microsecond))", ""}}},
	{"6: the election's longer duration is ignored", tenureTests, []edit{{tenureGo, "max(t.h, lasts*time.Second)", "t.h"}}},
	{"6: a renewTime that the election does not account for is ignored", tenureTests, []edit{{tenureGo, "	if t.held && renewTime.After(t.inherited) {", "	if false {"}}},
	{"6: a newer Lease that has expired is forgotten", electionTests, []edit{{typesGo, "return s.Highest > s.Record.Epoch", "return false"}}},

	// Rule 7.
	{"7: a poisoned Lease is overwritten", publishTests, []edit{{decideGo, "		if l.known.content.Epoch > c.Epoch {", "		if false {"}}},
	{"7: an edit that readers believe burns no epoch", publishTests, []edit{{publishEditsGo, "		l.status.PoisonedEpoch = max(l.status.PoisonedEpoch, c.Epoch)\n", ""}}},

	// Rule 8.
	{"8: another hub leads, and is deposed", electionTests, []edit{{nextGo, "	if s.OtherHub {", "	if false {"}}},
	{"8: a term of another hub under another name does not count", tests{"./hub/controller", "^TestATermOfAnotherHub"}, []edit{{takeGo, "cp.LeadsHere() && cp.Live(now.Add(-s.LargestSkew-s.LargestStop))", "false"}}},
	{"8: a term of another hub counts without ε", tests{"./hub/controller", "^TestATermOfAnotherHub"}, []edit{{takeGo, "cp.Live(now.Add(-s.LargestSkew-s.LargestStop))", "cp.Live(now)"}}},
	{"8: a Lease with another hub's mark is overwritten", publishTests, []edit{{publishEditsGo, "	case c.Hub != \"\" && c.Hub != l.self.hub:", "	case false:"}}},

	// Rule 9.
	{"9: a leader that was never reached is dead", electionTests, []edit{{replaceGo, "		if timeToAnswer(now, p, s) > 0 || !promiseExpiry(s, p.bounds()).passed(now) {", "		if false {"}}},
	{"9: an empty list of members decides", electionTests, []edit{{nextGo, "	if len(cs) == 0 {", "	if false {"}}},

	// Rule 10.
	{"10: a hub that is cut off fails over", electionTests, []edit{{replaceGo, "	if s.MostUnreachable && !p.FailOverWhenMostUnreachable {", "	if false {"}}},
	{"10: a successor need not be written first", electionTests, []edit{{nextGo, "	case !c.Prepared && c.Name != r.Leader", "	case false && c.Name != r.Leader"}}},
	{"10: a successor that cannot be written leads", electionTests, []edit{{rankGo, "return c.Fitness == Fit && !c.Refused", "return c.Fitness == Fit"}}},

	// Rule 11.
	{"11: a paused cluster is newly chosen", electionTests, []edit{{rankGo, "return c.Fitness == Fit && !c.Refused", "return (c.Fitness == Fit || c.Fitness == RetainOnly) && !c.Refused"}}},
	{"11: a paused leader is deposed", electionTests, []edit{{replaceGo, "	case RetainOnly, Fit:\n", "	case RetainOnly:\n		return reason.Paused\n	case Fit:\n"}}},

	// Rule 12.
	{"12: recovery alone moves a leader", electionTests, []edit{{replaceGo, "return lowered || !ok || c.Priority > before", "return true || lowered || !ok || c.Priority > before"}}},
	{"12: a lowered priority moves nothing", electionTests, []edit{{replaceGo, "return lowered || !ok", "return false && lowered || !ok"}}},
	{"12: a raised priority moves nothing", electionTests, []edit{{replaceGo, "!ok || c.Priority > before", "!ok || false && c.Priority > before"}}},
	{"12: an edit of a cluster that cannot be reached is lost", electionTests, []edit{{replaceGo, "!notReady(c) && !isObservation(c.Reason)", "!notReady(c)"}}},
	{"12: an edit of a cluster that is not ready is lost", electionTests, []edit{{replaceGo, "all || !notReady(c) && !isObservation(c.Reason)", "all || !isObservation(c.Reason)"}}},
	{"12: a tie moves a leader", electionTests, []edit{{replaceGo, "c.Priority <= holder.Priority", "c.Priority < holder.Priority"}}},
	{"12: ties go by anything", electionTests, []edit{{rankGo, "cmp.Compare(a.Name, b.Name)", "cmp.Compare(b.Name, a.Name)"}}},

	// Rule 14.
	{"14: another UID behind a name is taken for the pinned one", pinTests, []edit{{identityGo, "	case pin != \"\" && found != pin:", "	case false:"}}},
	{"14: one UID behind two names belongs to the later", pinTests, []edit{{identityGo, "compareOwners(c, best) < 0", "compareOwners(c, best) > 0"}}},
	{"14: a Lease of another cluster is overwritten", publishTests, []edit{{publishEditsGo, "	case c.Cluster != \"\" && c.Cluster != l.self.cluster && !edited:", "	case false:"}}},
}
