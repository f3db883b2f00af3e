package main

// expiring are the mutants of rules 5 to 7: when a promise has certainly ended, and which epoch comes after it.
var expiring = []mutant{
	{"5: no ε after what this tenure has sent", ofElection, "hub/election.promiseExpiry",
		`s.Sent.Until.Add(p.skew + s.Sent.Stop)`, `s.Sent.Until.Add(s.Sent.Stop)`},
	{"5: the clock that never steps does not count", stories, "hub/election.expiry.passed",
		`now.Boot >= b.boot`, `true`},
	{"5: a smaller ε shortens what was promised", stories, "hub/election.promiseExpiry",
		`p.skew = max(p.skew, s.Sent.Skew)`, ``},
	{"5: a promise under a larger ε is forgotten", ofPublish, "hub/publish.Promises.add",
		`skew < p.Skew`, `false`},
	{"5: a shorter D is recorded at once", ofElection, "hub/election.keep",
		`wait = outlasting(now, p, s)`, ``},
	{"5: a revoked term is over at once", simulation, "hub/election.acknowledged",
		`s.Released`, `true`},
	{"5: the release of another epoch counts", simulation, "hub/publish.acks.answered",
		`e.reader.HasReleased(namespace, q.epoch)`, `e.reader.HasReleased(namespace, 0)`},

	{"6: a new tenure inherits nothing", simulation, "hub/election.promiseExpiry",
		`inheritedExpiry(s, p)`, `expiry{}`},
	{"6: a new tenure does not count D", simulation, "hub/election.inheritedExpiry",
		`s.Tenure.Inherited.Add(d + skew + stop)`, `s.Tenure.Inherited.Add(skew + stop)`},
	{"6: the earlier tenure wrote until its last renewal only", simulation, "hub/tenure.Tenure.inherit",
		`r.RenewTime.Add(t.earlierDuration)`, `r.RenewTime.Time`},
	{"6: an election Lease that is gone promises nothing", simulation, "hub/tenure.Tenure.inherit",
		`started.Wall.Add(t.h)`, `started.Wall.Add(-time.Minute)`},
	{"6: an edit of the record shortens what was inherited", ofElection, "hub/election.inheritedExpiry",
		`max(p.d, longest(s), s.LargestDuration)`, `max(p.d, longest(s))`},
	{"6: a new tenure reads the record from a cache", simulation, "hub/controller.Controller.look",
		`c.live.Get(ctx, v.key, object)`, `c.client.Get(ctx, v.key, object)`},
	{"6: two tenures decide at once", ofController, "hub/controller.Controller.reconcileNamespace",
		`rest > 0`, `rest < 0`},
	{"6: a Lease that a member shows shortens the wait", simulation, "hub/election.promiseExpiry",
		`b := inheritedExpiry(s, p)`,
		`b := inheritedExpiry(s, p)
		if s.Found != nil {
			b = expiry{wall: s.Found.Term.Deadline().Add(p.skew)}
		}`},

	{"7: epochs do not start from the seconds", simulation, "hub/election.nextEpoch",
		`max(highest+1, lease.EpochFloor(now))`, `highest + 1`},
	{"7: two terms have one epoch", simulation, "hub/election.nextEpoch",
		`highest + 1`, `highest`},
	{"7: sealed Leases do not raise the epoch", ofController, "hub/controller.Controller.addInitial",
		`s.Highest = max(s.Highest, cp.Epoch)`, `_ = s`},
	{"7: an absurd record is believed", stories, "hub/controller.view.dropAbsurd",
		`!lease.PlausibleEpoch(now, r.Epoch)`, `false`},
	{"7: a record goes before what it promised has passed", ofElection, "hub/election.retire",
		`!b.passed(now)`, `false`},
	{"7: a record goes before the seconds are above its epoch", simulation, "hub/election.retire",
		`ahead > 0`, `ahead > 1<<40`},
}
