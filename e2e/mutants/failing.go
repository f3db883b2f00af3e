package main

const (
	backoffGo  = "hub/publish/backoff.go"
	answerGo   = "hub/publish/answer.go"
	scheduleGo = "hub/publish/schedule.go"
)

// What must notice the mutants of clusters that answer and cannot be written, and of clocks that were ahead.
var (
	writing    = tests{"./hub/publish", "^(TestWritesThatFail|TestALostLeaseIsReported|TestWritesThatAreChanged)"}
	changing   = tests{"./hub/controller", "^TestAClusterThatChangesWhatIsWritten$"}
	refusing   = tests{"./hub/controller", "^TestAClusterThatCannotBeWritten$"}
	stamping   = tests{"./hub/publish", "^(TestARenewTimeInTheFuture|TestALeaseWithAMinRenewTimeInTheFuture)"}
	tomorrow   = tests{"./hub/controller", "^(TestTheHubsClockIsPutRight|TestARecordThatDrainsSinceTomorrow)$"}
	recovering = tests{"./hub/controller", "^TestAnOutageOfTheHubsNetwork"}
)

// failing are the mutants of what keeps a namespace from being led by nobody, although a cluster could.
var failing = []mutant{
	{"failing: a cluster that cannot be written is as good as any", refusing, []edit{{candidatesGo, "	if v.failing(m) {\n", "	if false && v.failing(m) {\n"}}},
	{"failing: it counts against a leader only while it leads", refusing, []edit{{candidatesGo, "return r.State != election.Leading", "return r.State == election.Leading"}}},
	{"failing: it counts where nobody finds out that it is over", simulation, []edit{{candidatesGo, "	case m.facts.Failing == \"\", r.Epoch == 0:\n", "	case m.facts.Failing == \"\":\n"}}},
	{"failing: an outage that is over is held against whoever led", recovering, []edit{{backoffGo, "	if !l.writeTried {\n", "	if false {\n"}}},
	{"failing: what was found out once is never asked again", writing, []edit{{backoffGo, "	l.lookAgain = now.Boot + recheck\n", ""}}},
	{"failing: a read tells that writes succeed", writing, []edit{{answerGo, "		return l.checkStored(s)\n", "		pause := l.checkStored(s)\n		if s.action == read {\n			l.noteSuccess()\n		}\n		return pause\n"}}},
	{"failing: what is changed on its way is written again at once", changing, []edit{{decideGo, "	case l.backsOff(now):\n", "	case l.backsOff(now) && !may:\n"}, {backoffGo, "	pause := min(pauseSilent<<min(l.failedWrites, 10), recheck)\n", "	pause := time.Duration(0)\n"}}},
	{"failing: what is changed on its way is written again as soon as a watch shows it", writing, []edit{{decideGo, "	case l.backsOff(now):\n", "	case l.backsOff(now) && !may:\n"}}},
	{"failing: what is changed on its way is as good as what was written", changing, []edit{{backoffGo, "	if l.known.sealed && l.known.labelled && ", "	if l.known.labelled && "}}},
	{"failing: an old Lease that is stored in the place of a new one is as good", writing, []edit{{backoffGo, " && l.known.lease.Spec.RenewTime.Equal(s.lease.Spec.RenewTime) {", " {"}}},
	{"failing: a label that only people read makes a cluster unfit", changing, []edit{{"api/lease/wire/wire.go", "return l.Labels[v1alpha1.ManagedLabel] == \"true\" }", "return l.Labels[v1alpha1.ManagedLabel] == \"true\" && l.Labels[v1alpha1.ManagedByLabel] == v1alpha1.ManagedByValue }"}}},
	{"failing: a write without an answer that was carried out has failed", writing, []edit{{decideGo, "		l.noteSuccess() // also if the answer was lost\n		return l.awaitWatch(now)", "		return l.awaitWatch(now)"}}},
	{"failing: what fails for long is tried as often as ever", writing, []edit{{backoffGo, "l.failedWrites > fastRetries", "false"}}},
	{"failing: it is remembered where nothing is written any more", writing, []edit{{syncerGo, "a.Role == assign.Absent {\n		l.noteSuccess()", "a.Role == assign.Absent && t.LongestPromise < 0 {\n		l.noteSuccess()"}}},

	// Clocks that were ahead.
	{"failing: a renewTime of the future stands until its time has come", stamping, []edit{{decideGo, " && !l.inFuture(c, now) {", " {"}}},
	{"failing: a renewTime of the future is replaced at once", stamping, []edit{{scheduleGo, "now.Boot-l.futureSince >= c.Duration", "true"}}},
	{"failing: a renewTime within ε is one of the future", stamping, []edit{{scheduleGo, "now.Wall.Add(l.timings.Skew)", "now.Wall"}}},
	{"failing: a Lease is written before it can be fresh", tomorrow, []edit{{decideGo, "Sub(now.Wall); wait > 0 {\n		return step{after: min(wait, pauseRefused)}", "Sub(now.Wall); wait < 0 && false {\n		return step{after: min(wait, pauseRefused)}"}}},
	{"failing: what drains since tomorrow drains until then", tomorrow, []edit{{nextGo, "r.Since.IsZero() || r.Since.After(now.Wall)", "r.Since.IsZero()"}}},
}
