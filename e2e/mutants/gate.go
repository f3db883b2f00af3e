package main

const (
	gateRule     = "member/command/rule.go"
	gateRun      = "member/command/run.go"
	gateGroup    = "member/command/group_linux.go"
	gateWatchdog = "member/command/watchdog.go"
	gateLeader   = "member/command/leader.go"
	memberState  = "member/state.go"
	lockGo       = "member/resourcelock/lock.go"
)

// What has to notice a mutant of leasecast-gate, in a bubble and with real processes, and of the drop-in lock.
var (
	gateTests    = tests{"./member/command", "^Test(When|TheWatchdog|TheProgram|AProgram|TheTerm|TheGateOutlives|How|Signals|What)"}
	processTests = tests{"./member/command", "^Test(NoProcess|NoDaemon|NoTerm|AChild|AllThat|TheExitCode|TheGateEnds|ARevoked)"}
	lockTests    = tests{"./member/resourcelock", "^Test"}
)

// gate are the mutants of the program's gate and of the drop-in lock.
var gate = []mutant{
	// When signals come.
	{"gate: SIGKILL comes after the deadline", gateTests, []edit{{gateRule, "s.remaining-s.killAhead)", "s.remaining+s.killAhead)"}}},
	{"gate: SIGKILL never comes", gateTests, []edit{{gateRule, "	case s.over && s.elsewhere, r.until.come(s.now):", "	case s.over && s.elsewhere:"}}},
	{"gate: a program may end slowly where another cluster leads", gateTests, []edit{{gateRule,
		"	case s.over && s.elsewhere, r.until.come(s.now):", "	case r.until.come(s.now):"}}},
	{"gate: no SIGTERM before the deadline", gateTests, []edit{{gateRule, "(s.over || s.remaining <= s.stopAhead)", "s.over"}}},
	{"gate: no SIGTERM when the term is lost", gateTests, []edit{{gateRun, "	s.over = ctx.Err() != nil || s.remaining == 0\n", ""}}},
	{"gate: a promise that was taken back counts", gateTests, []edit{{gateRule,
		"bound.in(s.now) < r.until.in(s.now) {", "bound.in(s.now) > 1<<62 {"}}},
	{"gate: the deadline by the monotonic clock alone", gateTests, []edit{{gateRule, "return min(i.Boot-now.Boot, i.Wall.Sub(now.Wall))", "return i.Boot - now.Boot"}}},
	{"gate: the deadline by the wall clock alone", gateTests, []edit{{gateRule, "return min(i.Boot-now.Boot, i.Wall.Sub(now.Wall))", "return i.Wall.Sub(now.Wall)"}}},
	{"gate: the stop takes all of the term that is asked for", gateTests, []edit{{gateRun, "min(r.StopAhead, state.Duration/3)", "r.StopAhead"}}},
	{"gate: the stop forgets how long a registration lasts", reader, []edit{{memberState, "		if t.releases != nil {\n			s.Duration", "		if false {\n			s.Duration"}}},

	// Until when the term is held.
	{"gate: the term is released before the program has ended", gateTests, []edit{{gateRun, "	defer r.finish(g)\n", "	defer func() { go r.finish(g) }()\n"}}},
	{"gate: what the program leaves behind lives on", processTests, []edit{{gateGroup,
		"	g.signal(syscall.SIGKILL)\n	g.children.killSince(g.started)\n", "	_ = syscall.Kill(g.program.pid, syscall.SIGKILL)\n"}}},
	{"gate: a daemon of the program lives on", processTests, []edit{{gateGroup, "	g.children.killSince(g.started)\n", "	g.children.killSince(math.MaxUint64)\n"}}},
	{"gate: a daemon lives on while the gate is paused", processTests, []edit{{gateGroup, "	killChildrenOf(gate)\n", "	_, _ = gate, killChildrenOf\n"}}},
	{"gate: what ran before the gate is killed", processTests, []edit{{"member/command/children_linux.go", " && s.started >= since {", " {"}}},
	{"gate: the program gets the epoch of another gate", processTests, []edit{{gateGroup, "strings.HasPrefix(v, variablePrefix)", "strings.HasPrefix(v, variablePrefix+variablePrefix)"}}},
	{"gate: signals reach the program alone", processTests, []edit{{gateGroup, "syscall.Kill(-g.watchdog.pid, s)", "syscall.Kill(g.program.pid, s)"}}},
	{"gate: the program leads a group of its own", processTests, []edit{{gateGroup,
		"files, g.watchdog.pid)", "files, 0)"}}},
	{"gate: an end that was asked for is forgotten", gateTests, []edit{{gateRun, "	if r.asked {\n		r.cancel(", "	if false {\n		r.cancel("}}},

	// The watchdog.
	{"gate: the watchdog does not kill at the deadline", processTests, []edit{{gateWatchdog, "		if until.come(now) {", "		if false {"}}},
	{"gate: the watchdog outlives the gate", processTests, []edit{{gateWatchdog,
		"		case until, open = <-told:\n", "		case next, more := <-told:\n			if told = nil; more {\n				until = next\n			}\n"}}},
	{"gate: the watchdog obeys signals", processTests, []edit{{gateGroup, "	signal.Ignore(", "	signal.Reset("}}},
	{"gate: the watchdog does not hear of a renewal", gateTests, []edit{{gateRun, "		if !now.until.near(told) {", "		if false && !now.until.near(told) {"}}},
	{"gate: the program goes on without a watchdog", gateTests, []edit{{gateRun, "			return r.unlessKilled(errUnguarded, told, term)\n", "			return nil\n"}}},
	{"gate: the gate ends when the watchdog has killed the program in time", gateTests, []edit{{gateRun, "	if term.Holds() && !told.come(r.Clock.Now()) {", "	if term.Holds() {"}}},

	// What is told.
	{"gate: a follower answers with 200", gateTests, []edit{{gateLeader, "w.WriteHeader(http.StatusServiceUnavailable)", "w.WriteHeader(http.StatusOK)"}}},
	{"gate: /leader reports a term that is over", gateTests, []edit{{gateLeader, "if t, ok := m.Term(namespace); ok {", "if t, ok := m.Term(namespace); ok || !ok {"},
		{gateLeader, "left > 0 {", "left >= 0 {"}}},

	// The lock.
	{"gate: the lock is taken where the cluster does not lead", lockTests, []edit{{lockGo,
		"		return fmt.Errorf(\"lock %s: %w\", l.Describe(), err)\n	}\n	request", "		work, finish = ctx, func() {}\n	}\n	request"}}},
	{"gate: the lock is renewed in the next term", lockTests, []edit{{lockGo, "	if term != nil {", "	if false {"}}},
	{"gate: the lock is taken although the term has ended meanwhile", lockTests, []edit{{lockGo, "over != nil {", "over != nil && false {"}}},
	{"gate: the lock is taken again in a later term", lockTests, []edit{{lockGo, "	if l.ctx.Err() != nil {", "	if false {"}, {lockGo, "l.ctx.Err() != nil, l.term == nil", "false, l.term == nil"},
		{lockGo, "	if term != nil {", "	if false {"}}},
	{"gate: the work under the lock outlives the term", lockTests, []edit{{lockGo, "l.end(context.Cause(work))", "_ = context.Cause(work)"}}},
	{"gate: a lock that was written while the work ended is kept", lockTests, []edit{{lockGo, "l.ctx.Err() != nil, l.term == nil", "false, l.term == nil"}}},
	{"gate: the lock is not released in a follower", lockTests, []edit{{lockGo, "	if record.HolderIdentity == \"\" {", "	if false {"}}},
	{"gate: a Pod that was not elected holds the term", lockTests, []edit{{lockGo, "	if err != nil {\n		finish()\n", "	if err != nil {\n		_ = l.taken(work, finish)\n"}}},
}
