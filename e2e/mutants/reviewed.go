package main

// What must notice the mutants that an independent review chose before it had read a test.
var (
	tied    = tests{"./hub/election", "^TestWhatMovesAHealthyLeader$"}
	between = tests{"./hub/publish", "^TestPublisherAsksReaders$"}
	asleep  = tests{"./hub/fleet", "^TestPausesOfTheHubAreNotHeldAgainstMembers$"}
	paused  = tests{"./member/command", "^TestTheWatchdogIsToldNoLateDeadlineByAGateThatIsPaused$"}
)

// reviewed are mutants that no test noticed when that review tried them.
var reviewed = []mutant{
	{"reviewed: a tie moves a leader by its name", tied, []edit{
		{replaceGo, "c.Priority <= holder.Priority", "!outranks(c, holder)"}}},
	{"reviewed: a list of readers that was begun before the revocation counts", between, []edit{
		{acksListGo, "	done := p.noteReleases()\n	p.listReadersLater()", "	if err == nil && whole {\n" +
			"		p.acks.observeList(list.Items, list.ResourceVersion, p.acks.asked, p.Clock.Now())\n	}\n" +
			"	done := p.noteReleases()\n	p.listReadersLater()"}}},
	{"reviewed: a pause of the hub is held against writes", asleep, []edit{
		{"hub/fleet/pause.go", "		m.excuse(health.Write, *last, now)\n", ""}}},
	{"reviewed: the gate reads the clock after the term", paused, []edit{
		{gateRun, "	s.remaining = term.Remaining()\n", "	s.remaining = term.Remaining()\n	s.now = r.Clock.Now()\n"}}},
}
