package main

const (
	membersGo      = "hub/controller/members.go"
	guardKeeperGo  = "hub/worker/guard.go"
	watchReadersGo = "hub/worker/readers.go"
)

// What must notice the breakages that all tests and thousands of seeds had let live.
var (
	unsure      = tests{"./hub/publish", "^TestWhatLeavesOpenWhetherAWriteWasDone$"}
	restored    = tests{"./hub/publish", "^(TestASingleSignOfARestoreIsEnough|TestARestoreTakesBackWhatReadersHaveReleased|TestWhichAnswerToAWriteShowsAnOlderState)$"}
	enduring    = tests{"./hub/publish", "^TestADeadReadersRegistrationStaysForTheLargestEpsilon$"}
	remembering = tests{"./hub/publish", "^TestAcks"}
	succeeding  = tests{"./hub/controller", "^TestANewWorkerWaitsForTheEndOfTheOldOne$"}
	guarding    = tests{"./hub/worker", "^TestSilenceSaysNothingOfAGuard$"}
	sealed      = tests{"./hub/worker", "^TestAGuardWaitsForTheSeal"}
	relisting   = tests{"./hub/worker", "^TestWhatANewListOfReadersLacksIsNoEnd$"}
	beginning   = tests{"./hub/controller", "^TestWhoWritesTheFirstLeaseOfATerm$"}
	believing   = tests{"./hub/controller", "^TestReadersAreBelievedOnceTheLongestDOfTheTermHasPassed$"}
	sealing     = tests{"./hub/controller", "^TestADecisionKnowsTheLargestDurationsOfTheSeal$"}
	overlapping = tests{"./hub/controller", "^TestNothingIsDecidedOnARecordThatWasReadBesideAnEarlierTenure$"}
	counting    = tests{"./hub/controller", "^TestMostClustersAreMoreThanHalfOfThoseThatWereReached$"}
	preparing   = tests{"./hub/controller", "^TestWhatAFreshLeaseShowsItShowsOfOneDrainingOnly$"}
	promoting   = tests{"./member", "^TestNobodyIsPromotedWithoutARegistration$"}
	ending      = tests{"./member", "^TestContextEndsWithTheTermAndNotBefore$"}
	moving      = tests{"./api/lease/clock", "^TestBootIsAskedAgainWhenTheClocksMoveApart$"}
	recording   = tests{"./hub/controller", "^TestARecordThatMayHaveBeenWrittenIsNoEdit$"}
)

// survivors are breakages that adversaries tried, and that nothing noticed: of what is done once in a long while, and of
// what another rule makes good as a rule. Each names the test that notices it now.
var survivors = []mutant{
	// What an answer says, and when a member is not what it was.
	{"survivor: a server that gave up waiting has certainly not done it", unsure, []edit{{answerGo, "	case apierrors.IsForbidden(err), ", "	case apierrors.IsTimeout(err), apierrors.IsForbidden(err), "}}},
	{"survivor: a renewTime that fell is no sign of a restore", restored, []edit{{historyGo, "c.RenewTime.Before(s.before.content.RenewTime) &&", "false &&"}}},
	{"survivor: an edit of the renewTime is a sign of a restore", restored, []edit{{historyGo, " && s.before.sealed && l.self.key.Sealed(c, mac)", " && mac != \"\""}}},
	{"survivor: a write answered by an older version is no sign of a restore", restored, []edit{{historyGo, "return s.newestVersion != \"\" && older(obj.ResourceVersion, s.newestVersion)", "return false"}, {historyGo, "&& obj.ResourceVersion != s.basedOn()\n", "\n"}}},
	{"survivor: a write that changes nothing is a sign of a restore", restored, []edit{{historyGo, " && obj.ResourceVersion != s.basedOn()", ""}}},
	{"survivor: an object that is older than the one that was known is no sign of a restore", restored, []edit{{historyGo, "	case k == nil:\n", "	case k == nil || k.UID != obj.UID:\n"}}},
	{"survivor: versions that a watch of Leases shows are not noted", restored, []edit{{inmemberGo, "	p.history.observe(obj.ResourceVersion)\n", ""}}},
	{"survivor: versions that a watch of readers shows are not noted", restored, []edit{{acksListGo, "	p.history.observe(obj.ResourceVersion)\n", ""}}},
	{"survivor: a release outlives a restore", restored, []edit{{historyGo, "		l.status.Released = 0\n", "		_ = l\n"}}},

	// Readers.
	{"survivor: the last ε counts, not the largest", enduring, []edit{{publisherGo, "p.skew = max(p.skew, t.Skew)", "p.skew = t.Skew"}}},
	{"survivor: the ε of assignments is dropped", enduring, []edit{{publisherGo, "	p.skew = max(p.skew, t.Skew)\n", ""}}},
	{"survivor: an ε that is not known is none", enduring, []edit{{acksExpiryGo, "		return unknownSkew\n", "		return 0\n"}}},
	{"survivor: an older event of a registration replaces a newer one", remembering, []edit{{acksGo, "e != nil && !older(e.lease.ResourceVersion, obj.ResourceVersion)", "e != nil && e.lease == nil"}}},

	// The work in a member.
	{"survivor: a new worker does not wait for the old one of its member", succeeding, []edit{{membersGo, "			<-before\n", "			_ = before\n"}}},
	{"survivor: the end of an old engagement forgets the new one", succeeding, []edit{{membersGo, "s.engaged.ctx == e.ctx {", "e.ctx.Err() != nil {"}}},
	{"survivor: silence takes the guard away", guarding, []edit{{guardKeeperGo, "		return false\n	}\n	return w.noteGuard(err)", "		w.noteGuard(err)\n	}\n	return w.noteGuard(err)"}}},
	{"survivor: a guard is put in place before the fleet has its seal", sealed, []edit{{guardKeeperGo, "Serve(ctx, w.Member.Fleet); !ok {", "Serve(ctx, w.Member.Fleet); !ok && ctx.Err() != nil {"}}},
	{"survivor: a registration that a new list lacks counts as released", relisting, []edit{{watchReadersGo,
		"				if l, ok := o.(*coordinationv1.Lease); ok {\n					p.ObserveReaderGone",
		"				if t, ok := o.(toolscache.DeletedFinalStateUnknown); ok {\n					o = t.Obj\n				}\n				if l, ok := o.(*coordinationv1.Lease); ok {\n					p.ObserveReaderGone"}}},

	// What a decision rests on.
	{"survivor: the largest ε of the seal is never used", sealing, []edit{{gatherGo, "= b.Duration, b.Skew, b.Stop", "= b.Duration, 0, b.Stop"}}},
	{"survivor: the largest D of the seal is never used", sealing, []edit{{gatherGo, "max(b.Duration, v.policy.election.Timings.Duration)", "v.policy.election.Timings.Duration"}}},
	{"survivor: an overlap is judged by a reading from after the record was read", overlapping, []edit{{reconcileGo, "	if rest := c.Tenure.Overlap(asked, v.skew); rest > 0 {", "	asked = c.Clock.Now()\n	if rest := c.Tenure.Overlap(asked, v.skew); rest > 0 {"}}},
	{"survivor: half counts as most", counting, []edit{{gatherGo, "2*lost > reached", "2*lost >= reached"}}},
	{"survivor: a successor is prepared by a Lease of an earlier draining", preparing, []edit{{candidatesGo, "m.facts.InPlace && m.facts.MinRenewTime.Equal(v.state.Record.Since)", "m.facts.InPlace"}}},
	{"survivor: a successor is refused for an earlier draining", preparing, []edit{{candidatesGo, "m.facts.Refused && m.facts.MinRenewTime.Equal(v.state.Record.Since)", "m.facts.Refused"}}},

	// What follows from it.
	{"survivor: the first Lease of an adopted term may be written", beginning, []edit{{reconcileGo, "is.Reason == reason.Adopted {", "is.Reason == reason.Adopted && false {"}}},
	{"survivor: the first Lease of a term that was renewed may be written", beginning, []edit{{reconcileGo, "c.promises.Get(v.key).Epoch != d.Record.Epoch", "true"}}},
	{"survivor: doubt of a member counts by the present D only", believing, []edit{{reconcileGo, "max(t.Duration, r.Duration) + t.Skew", "t.Duration + t.Skew"}}},
	{"survivor: doubt of a member counts without ε", believing, []edit{{reconcileGo, "max(t.Duration, r.Duration) + t.Skew", "max(t.Duration, r.Duration)"}}},
	{"survivor: doubt of a member counts without ε for readers", believing, []edit{{historyGo, "p.acks.longestDuration()+p.slack()", "p.acks.longestDuration()"}}},
	{"survivor: a write of the record without an answer is not forgotten", recording, []edit{{persistGo, "			c.mayComeTrue(v.key, spec)\n", "			_ = spec\n"}}},
	{"survivor: a conflict has a record taken as it is", recording, []edit{{persistGo, "!apierrors.IsConflict(err) && !apierrors.IsNotFound(err)", "!apierrors.IsNotFound(err)"}}},
	{"survivor: a deletion has a record taken as gone", recording, []edit{{persistGo, "!apierrors.IsConflict(err) && !apierrors.IsNotFound(err)", "!apierrors.IsConflict(err)"}}},

	// Readers' side.
	{"survivor: a member is promoted without a registration", promoting, []edit{{termsGo, "leads := p.Holds(now) && t.limit.Load().Holds(now) && !t.stopped", "leads := p.Holds(now) && !t.stopped"}}},
	{"survivor: contexts outlive a suspend by a second", ending, []edit{{termsGo, "const recheck = 100 * time.Millisecond", "const recheck = time.Second"}}},
	{"survivor: a suspend of half a second goes unnoticed", moving, []edit{{clockGo, "const drift = 500 * time.Microsecond", "const drift = 600 * time.Millisecond"}}},
	{"survivor: a suspend that a step back of the clock outdoes goes unnoticed", moving, []edit{{clockGo, "apart < drift && apart > -drift", "apart < drift"}}},
	{"survivor: a suspend goes unnoticed", moving, []edit{{clockGo, "apart < drift && apart > -drift", "apart > -drift"}}},
}
