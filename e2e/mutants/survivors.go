package main

// What must notice the breakages that all tests and thousands of seeds had let live.
var (
	unsure      = tests{"./hub/publish", "^TestWhatLeavesOpenWhetherAWriteWasDone$"}
	restored    = tests{"./hub/publish", "^(TestASingleSignOfARestoreIsEnough|TestARestoreTakesBackWhatReadersHaveReleased)$"}
	enduring    = tests{"./hub/publish", "^TestADeadReadersRegistrationStaysForTheLargestEpsilon$"}
	remembering = tests{"./hub/publish", "^TestRoll"}
)

// survivors are breakages that adversaries tried, and that nothing noticed: of what is done once in a long while, and of
// what another rule makes good as a rule. Each names the test that was written for it.
var survivors = []mutant{
	// What an answer says, and when a member is not what it was.
	{"survivor: a server that gave up waiting has certainly not done it", unsure, []edit{{answerGo, "	case apierrors.IsForbidden(err), ", "	case apierrors.IsTimeout(err), apierrors.IsForbidden(err), "}}},
	{"survivor: a stamp that fell is no sign of a restore", restored, []edit{{laneRevokeGo, "c.Renewed.Before(s.before.copy.Renewed) &&", "false &&"}}},
	{"survivor: an edit of the stamp is a sign of a restore", restored, []edit{{laneRevokeGo, " && s.before.sealed && lease.Sealed(l.self.key, c, mac)", " && mac != \"\""}}},
	{"survivor: a write answered by an older version is no sign of a restore", restored, []edit{{laneRevokeGo, "return s.newest != \"\" && older(obj.ResourceVersion, s.newest)", "return false"}}},
	{"survivor: versions that a watch of copies shows are not noted", restored, []edit{{publishGo, "	p.past.shows(obj.ResourceVersion)\n", ""}}},
	{"survivor: versions that a watch of readers shows are not noted", restored, []edit{{readersGo, "	p.past.shows(obj.ResourceVersion)\n", ""}}},
	{"survivor: a release outlives a restore", restored, []edit{{laneRevokeGo, "		l.facts.Released = 0\n", "		_ = l\n"}}},

	// Readers.
	{"survivor: the last ε counts, not the largest", enduring, []edit{{publishGo, "p.skew = max(p.skew, t.Skew)", "p.skew = t.Skew"}}},
	{"survivor: the ε of assignments is dropped", enduring, []edit{{publishGo, "	p.skew = max(p.skew, t.Skew)\n", ""}}},
	{"survivor: an ε that is not known is none", enduring, []edit{{readersGo, "		return unknownSkew\n", "		return 0\n"}}},
	{"survivor: an older event of a registration replaces a newer one", remembering, []edit{{rollGo, "e != nil && !older(e.lease.ResourceVersion, obj.ResourceVersion)", "e != nil && e.lease == nil"}}},
}
