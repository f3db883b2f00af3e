package main

const (
	estimateGo = "hub/skew/estimate.go"
	othersGo   = "hub/skew/others.go"
	trackGo    = "hub/skew/track.go"
	answersGo  = "hub/fleet/clocks.go"
	sampleGo   = "hub/skew/sample/sample.go"
)

var (
	measuring = tests{"./hub/skew", "."}
	deciding  = tests{"./hub/election", "^TestALeaderWhoseClockIsOff$"}
	choosing  = tests{"./hub/controller", "^(TestClocksDecideWhoMayLead|TestTheBoundWaitsForTheLeadersClockOnly)$"}
	answering = tests{"./hub/fleet", "^(TestAnswersMeasureTheClock|TestProbesAim)$"}
	sampling  = tests{"./hub/skew/sample", "."}
)

// clocks are the mutants of what measures the members' clocks, and of what follows from it.
var clocks = []mutant{
	// What a sample proves.
	{"clocks: an answer takes no time, on the way back", measuring, []edit{{estimateGo, "s.Shown.Add(-s.Before-slack)", "s.Shown.Add(-s.After-slack)"}}},
	{"clocks: an answer takes no time, on the way there", measuring, []edit{{estimateGo, "s.Grain - s.After + slack", "s.Grain - s.Before + slack"}}},
	{"clocks: a second has no length", measuring, []edit{{estimateGo, "s.Grain - s.After + slack", "-s.After + slack"}}},
	{"clocks: nothing drifts", measuring, []edit{{estimateGo, "max(boot-e.at, e.at-boot) / drift", "time.Duration(0)"}}},
	{"clocks: what contradicts is believed too", measuring, []edit{{estimateGo, "if lo.After(e.hi) || hi.Before(e.lo) {", "if false {"}}},
	{"clocks: what contradicts is not believed", measuring, []edit{{estimateGo, "		e.lo, e.hi, e.samples = lo, hi, 1\n", ""}}},
	{"clocks: the hub's own never steps", measuring, []edit{{estimateGo, "	own := now.Wall.Add(-now.Boot)\n	return Interval{", "	if first.IsZero() {\n		first = now.Wall.Add(-now.Boot)\n	}\n	own := first\n	return Interval{"},
		{estimateGo, "func cut(", "var first time.Time\n\nfunc cut("}}},
	{"clocks: probes aim at the edges of what is known", measuring, []edit{{estimateGo, "lo.Add(width / 2)", "lo"}}},
	{"probe: a read counts from when it was sent", tests{"./hub/fleet", "^TestProbesThatAreSentLate"}, []edit{{"hub/fleet/probe.go", "	found, err := t.Identify(ctx)\n", "	at = p.p.clock.Now()\n	found, err := t.Identify(ctx)\n"}}},
	{"probe: a write counts from when it was sent", tests{"./hub/fleet", "^TestProbesThatAreSentLate"}, []edit{{"hub/fleet/probe.go", "		desired := p.desired(known, at)\n", "		at = p.p.clock.Now()\n		desired := p.desired(known, at)\n"}}},
	{"clocks: probes do not aim", answering, []edit{{"hub/fleet/probe.go", "|| aimed && now.Boot >= at", "|| aimed && now.Boot < 0 && now.Boot >= at"}}},

	// The verdict.
	{"clocks: what is possible is proved", measuring, []edit{{trackGo, "beyond := off.Least() > g.eps", "beyond := off.Most() > g.eps"}}},
	{"clocks: half of ε is beyond", measuring, []edit{{trackGo, "beyond := off.Least() > g.eps", "beyond := off.Least() > g.eps/2"}}},
	{"clocks: twice ε is within", measuring, []edit{{trackGo, "beyond := off.Least() > g.eps", "beyond := off.Least() > 2*g.eps"}}},
	{"clocks: behind is no skew", measuring, []edit{{estimateGo, "return max(i.Lo, -i.Hi, 0)", "return max(i.Lo, 0)"}}},
	{"clocks: one sample is a proof", measuring, []edit{{trackGo, "g.proofs >= confirm", "g.proofs >= 1"}}},
	{"clocks: proofs need not follow each other", measuring, []edit{{trackGo, "		g.proofs = 0\n", ""}}},
	{"clocks: let off at ε", measuring, []edit{{trackGo, "inner := g.eps * 3 / 4", "inner := g.eps"}}},
	{"clocks: let off at once", measuring, []edit{{trackGo, "lasts(g.within, Calm, now.Boot)", "g.within != nil"}}},
	{"clocks: let off unmeasured", measuring, []edit{{trackGo, "lasts(g.clear, longCalm, now.Boot)", "lasts(g.clear, Calm/2, now.Boot)"}}},
	{"clocks: never let off where the way is long", measuring, []edit{{trackGo, " || lasts(g.clear, longCalm, now.Boot)", ""}}},
	{"clocks: a rebuilt cluster inherits a verdict", measuring, []edit{{trackGo, "judgement{eps: g.eps})", "g)"}}},

	// Hosts and other API servers.
	{"clocks: a host's renewal is admitted at the start of a second", measuring, []edit{{othersGo, "r.Admitted.Add(time.Second).Sub(lo)", "r.Admitted.Sub(lo)"}}},
	{"clocks: a host's renewal takes no time", measuring, []edit{{othersGo, "After: from - Delay", "After: from"}}},
	{"clocks: one renewal is the fastest", measuring, []edit{{othersGo, "if len(o.latest) < window {", "if false {"}}},
	{"clocks: old renewals count", measuring, []edit{{othersGo, "age <= recent && ", ""}}},
	{"clocks: hosts are never forgotten", measuring, []edit{{othersGo, "if boot-o.seen > forget {", "if boot-o.seen > 1000*forget {"}}},
	{"clocks: API servers all have one clock", measuring, []edit{{trackGo, "if t.several {", "if false {"}}},
	{"clocks: an API server's renewal takes no time", measuring, []edit{{othersGo, "*before-Lag", "*before"}}},
	{"clocks: whatever was written last tells when a renewal was admitted", sampling, []edit{{sampleGo, "f.FieldsV1.GetRawString(), `\"f:renewTime\"`", "f.FieldsV1.GetRawString(), ``"}}},

	// Whose Date it is.
	{"clocks: the Date of a gateway counts", sampling, []edit{{sampleGo, " || status >= http.StatusInternalServerError", ""}}},
	{"clocks: the Date of a cache counts", sampling, []edit{{sampleGo, " || header[\"Age\"] != nil", ""}}},
	{"clocks: answers to the caches do not count", answering, []edit{{"hub/fleet/state.go", "	m.cachesConfig = m.caches.Config(m.caches)\n", "	m.caches.RequestSent = nil\n	m.cachesConfig = m.caches.Config(m.caches)\n"}}},
	{"clocks: the clock of a cluster that is gone stays", answering, []edit{{"hub/fleet/connect.go", "		c.clocks.Reset()\n", ""}}},
	{"clocks: a new verdict asks for no decision", answering, []edit{{answersGo, "			s.clockVerdicts++\n", ""}}},

	// What follows from a verdict.
	{"clocks: a leader whose clock is off stays", choosing, []edit{{candidatesGo, "	case m.clocks.State == skew.Beyond:\n", "	case m.clocks.State == skew.Beyond && v.policy == nil:\n"}}},
	{"clocks: if all are off, all are replaced", choosing, []edit{{candidatesGo, "return off > 0 && off == measured", "return false"}}},
	{"clocks: if most are off, nobody is replaced", choosing, []edit{{candidatesGo, "off == measured", "2*off > measured"}}},
	{"clocks: what is not known is held against a cluster", choosing, []edit{{candidatesGo, "	case m.clocks.State == skew.Beyond:\n", "	case m.clocks.State != skew.Within:\n"}}},
	{"clocks: the bound does not wait for a late leader", deciding, []edit{{expiryGo, "max(p.skew, min(s.Behind, max(p.d, longest(s))))", "p.skew"}}},
	{"clocks: the bound waits for ever for a leader of 1970", deciding, []edit{{expiryGo, "min(s.Behind, max(p.d, longest(s)))", "s.Behind"}}},
	{"clocks: the bound waits for anybody's clock", choosing, []edit{{gatherGo, "	if m.Name == v.state.Record.Leader {\n		v.state.Behind", "	{\n		v.state.Behind"}}},
	{"clocks: the least that a leader is behind is what it is behind", measuring, []edit{{trackGo, "return (-v.Offset.Lo + tenth", "return (-v.Offset.Hi + tenth"}}},
	{"clocks: a leader is replaced by nobody", deciding, []edit{{replaceGo, " || holder.Reason == reason.ClockSkewed", ""}}},
}
