package main

const (
	alarmGo = "member/alarm.go"
	hurryGo = "member/hurry.go"
	linkGo  = "member/link.go"
	termsGo = "member/terms.go"
	pingsGo = "member/pings/pings.go"
)

// What has to notice the mutants of a reader's watches and lines, and of connections that prove that they live.
var (
	watching = tests{"./member", "^Test(A(Silent|Fresh|List|Line|Dead|Server|nother|Reader)|Renewals|Nothing|Healthz|Connections)"}
	pinging  = tests{"./e2e/proxy", "^Test"}
)

// connections are the mutants of what a reader does about a connection that died without a word.
var connections = []mutant{
	// News that are missing.
	{"reader: a renewal that is missing is not asked for", watching, []edit{{alarmGo, "	if tm.alerted || left >=", "	if left >= 0 || left >="}}},
	{"reader: a missing renewal is asked for at half a term", watching, []edit{{alarmGo, "const scarcity = 3", "const scarcity = 2"}}},
	{"reader: a missing renewal is asked for at each look", watching, []edit{{alarmGo, "	tm.alerted = true\n", ""}}},
	{"reader: a list without news counts as a renewal", watching, []edit{{termsGo, "tm.alerted = tm.alerted && *was == p", "tm.alerted = false && *was == p"}}},
	{"reader: a renewal after a missing one is not missed", watching, []edit{{termsGo, "tm.alerted = tm.alerted && *was == p", "_ = was"}}},
	{"reader: a term that ran out in suspend is not asked for", watching, []edit{{termsGo, "			t.alert(n, tm, now, 0)\n", ""}}},
	{"reader: a silent hub is asked for without a pause", watching, []edit{{hurryGo, "	w.hurry.until = w.now() + w.hurry.gap", "	w.hurry.until = 0"}}},
	{"reader: a silent hub is asked for as often as ever", watching, []edit{{hurryGo, "2*w.hurry.gap)", "w.hurry.gap)"}}},
	{"reader: a fresh list takes the suspect connection", watching, []edit{{watchGo, "	if w.hurry.on {\n		if err := w.member.link.leave", "	if false {\n		if err := w.member.link.leave"}}},
	{"reader: a fresh list waits for one that hangs", watching, []edit{{watchGo, "			cancel()\n		}\n	}\n	if err != nil", "		}\n	}\n	if err != nil"}}},
	{"reader: a fresh list that hangs takes all that is left", watching, []edit{{hurryGo, "max(left/2,", "max(2*left,"}}},
	{"reader: the other connection is left as well", watching, []edit{{linkGo, "	if l.line != suspect {", "	if false {"}}},

	// From one watch to the next.
	{"reader: a watch ends before the next list", watching, []edit{{watchGo, "	err := w.list(ctx)\n", "	w.drop()\n	err := w.list(ctx)\n"}}},
	{"reader: a list undoes what happened since", watching, []edit{{watchGo, "items := with(list.Items, version, w.since)", "items := list.Items"}}},
	{"reader: what happened before a restore counts as newer", watching, []edit{{watchGo, "	if version < before {", "	if false && version < before {"}}},

	// Pings.
	{"reader: short terms have slow pings", watching, []edit{{linkGo, "duration <= 0 || duration >= l.line.duration", "true"}}},
	{"reader: pings take as long as the term", watching, []edit{{linkGo, "half := max(duration/6,", "half := max(duration/2,"}}},
	{"pings: none but client-go's", pinging, []edit{{pingsGo, "	connections.HTTP2 = t.HTTP2()\n", ""}}},
	{"pings: connections are shared", pinging, []edit{{pingsGo, "DialHolder: all.DialHolder, ", ""}}},
	{"pings: the configuration's wrappers are dropped", pinging, []edit{{pingsGo, "transport.HTTPWrappersForConfig(all, own)", "own, error(nil)"}}},

	// Healthz.
	{"reader: Healthz is content when a term ran out unheard", watching, []edit{{healthzGo, "w.alarm.silent(now); err != nil", "w.alarm.silent(now); false && err != nil"}}},
	{"reader: Healthz blames the reader for a silent hub", watching, []edit{{watchGo, "	w.alarm.hear(now)\n", ""}}},
	{"reader: Healthz does not count what the watch says", watching, []edit{{watchGo, "	w.alarm.hear(w.now())\n", ""}}},
}
