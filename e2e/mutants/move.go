package main

const (
	movedGo      = "hub/election/moved.go"
	relinquishGo = "hub/publish/relinquish.go"
	moveGo       = "hub/fleet/move.go"
	takeGo       = "hub/controller/move.go"
)

// What must notice the mutants of a move.
var (
	departures = tests{"./hub/publish", "^(TestRelinquish|TestTakingOver)$"}
	arrivals   = tests{"./hub/election", "^(TestMoved|TestWhatIsTakenKeepsTheLongestD|TestRaise)$"}
	moves      = tests{"./hub/fleet", "^TestMoveOf$"}
	takeovers  = tests{"./hub/controller", "^(TestWhoseRecord|TestTaken|TestWhatIsFoundOfAMovedNamespaceCountsAtOnce)$"}
)

// move are the mutants of rules 8 and 11: two hubs, one after the other and at once.
var move = []mutant{
	{"8: foreign hub mark ignored", departures, []edit{{publishEditsGo, "	case c.Hub != \"\" && c.Hub != l.self.hub:", "	case false:"}}},
	{"8: what carries no mark is left without one", departures, []edit{{decideGo, "l.status.InPlace = l.known.labelled && l.marked()", "l.status.InPlace = l.known.labelled"}}},
	{"8: unsealed Lease believed", departures, []edit{{relinquishGo, "l.known.lease != nil && l.known.sealed && l.known.content.Hub == l.self.hub", "l.known.lease != nil && l.known.content.Hub == l.self.hub"}}},
	{"8: a term of another hub is deposed before its Lease is taken", arrivals, []edit{{movedGo, "	case s.Record.State == Leading && !s.LeaseLost:", "	case false:"}}},
	{"8: a term is granted while another hub's mark stands", arrivals, []edit{{movedGo, "	case s.OtherHub:", "	case false:"}}},
	{"8: Leases are taken before every cluster was read", arrivals, []edit{{movedGo, "return c.Fitness == Unknown", "return false"}}},
	{"8: what came from another hub is decided on as any other", arrivals, []edit{{nextGo, "	if s.Moved && p != nil && len(cs) > 0 {", "	if false {"}}},
	{"8: the largest D of the other hub is forgotten", arrivals, []edit{{movedGo, "max(longest(s), p.Timings.Duration)", "p.Timings.Duration"}}},
	{"8: a leader counts as taken before its Lease is", takeovers, []edit{{takeGo, "m.Name == r.Leader && m.facts.Marked && m.facts.InPlace", "m.Name == r.Leader"}}},
	{"8: Leases of clusters that were not read count as taken", takeovers, []edit{{takeGo, "	case !m.isRead || m.publisher == nil:\n		return false\n", ""}}},
	{"8: what this hub has let go of is its own", takeovers, []edit{{takeGo, "o.Spec.Hub != \"\" && o.Spec.Hub != c.HubID", "o.Spec.Hub != \"\" && o.Spec.Hub != v1alpha1.NoHub && o.Spec.Hub != c.HubID"}}},
	{"8: whose the Leases are is not asked before nothing stands", takeovers, []edit{{takeGo, "s.OtherHub || v.moved || live", "s.OtherHub || live"}}},
	{"8: a Lease with a seal of somebody else is the standing term", takeovers, []edit{{takeGo, "			case sealed && v.moved && lease", "			case (sealed || true) && v.moved && lease"}}},
	{"8: that another hub's Lease has gone is not found out", tests{"./hub/publish", "^TestInitial$"}, []edit{{decideGo, "	case may:\n		return step{action: read}\n", "	case may && false:\n"}}},
	{"6: an epoch is granted twice", arrivals, []edit{{raiseGo, "s.Found.Cluster && !s.GrantedHere", "s.Found.Cluster"}}},
	{"11: renewals go on after the mark is gone", departures, []edit{{decideGo, "	case l.relinquished:\n		return l.relinquish(may)\n", ""}}},
	{"11: the mark stays", departures, []edit{{decideGo, "	if l.relinquished {\n		c.Hub, c.OpenLocks = \"\", l.known.content.OpenLocks\n	}\n", ""}}},
	{"11: the mark goes without the right to write", departures, []edit{{relinquishGo, "	case !may:\n		return step{after: pauseSilent}\n", ""}}},
	{"11: a Cluster that is not paused may be gone in a move", moves, []edit{{moveGo, "		if !s.paused && !s.moved {", "		if !s.paused && !s.moved && s.gone {"}}},
	{"11: no Clusters at all are a move", moves, []edit{{moveGo, "	case left:\n", "	case true:\n"}}},
}
