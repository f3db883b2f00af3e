package main

const (
	nextRevokeGo = "hub/election/revoke.go"
	revokeGo     = "hub/publish/revoke.go"
	acksGo       = "hub/publish/acks.go"
	acksListGo   = "hub/publish/ackslist.go"
)

var (
	// revocation are the tests of when a term is revoked, and ends by it.
	revocation = tests{"./hub/election", "^(TestRevocation|TestAssignRevocation)$"}
	// asking are the tests of who is asked, and what counts as an answer.
	asking = tests{"./hub/publish", "^(TestASyncerRevokes|TestAcks.*|TestPublisher.*|TestAMemberThatShowsAnOlderStateIsDistrusted)$"}
)

// handover are the mutants of the hub's side of acknowledged handover.
var handover = []mutant{
	// Rule 4: a revocation is recorded, and for good.
	{"ack: a revoked epoch is resumed", revocation, []edit{{nextGo, " && s.Record.Revoked == 0 && holder.Answering", " && holder.Answering"}}},
	{"ack: the revocation keeps the epoch", revocation, []edit{{nextGo, "r.Revoked, r.Epoch = r.Epoch, r.Epoch+1", "r.Revoked = r.Epoch"}}},
	{"ack: the term after a revocation has its epoch", revocation, []edit{{nextGo,
		"return Decision{Record: grant(now, p, s, c, cs), Persist: true}\n		}\n		r.State",
		"s.Record.Epoch = s.Record.Revoked\n			return Decision{Record: grant(now, p, s, c, cs), Persist: true}\n		}\n		r.State"}}},
	{"ack: a revoked leader's Lease is renewed", revocation, []edit{{assignGo, "a.Role, a.Revoked = assign.Revoke, a.Term\n				a.Term.Holder, a.Term.Epoch = \"\", r.Epoch", "a.Role = assign.Lead"}}},
	{"ack: an edit brings a revoked term back", revocation, []edit{{assignGo, "if r.State == Draining && r.Revoked != 0 {", "if r.Revoked != 0 {"}}},
	{"ack: revoked before the successor can be written", revocation, []edit{{nextRevokeGo, "ok && (c.Prepared || c.Name == s.Record.Leader) && !mustWait", "ok && !mustWait"}}},

	// Rule 5: granted when all have released.
	{"ack: granted at the revocation", simulation, []edit{{nextRevokeGo, "s.Record.Revoked != 0 && s.Released &&", "s.Record.Revoked != 0 &&"}}},
	{"ack: granted without a revocation", revocation, []edit{{nextRevokeGo, "p.Acknowledged && s.Record.Revoked != 0 && s.Released &&", "p.Acknowledged && s.Released &&"}}},
	{"ack: granted where readers need not register", revocation, []edit{{nextRevokeGo, "return p.Acknowledged && s.Record.Revoked != 0", "return s.Record.Revoked != 0"}}},
	{"ack: an earlier tenure's promises are forgotten", revocation, []edit{{nextRevokeGo,
		"s.Released &&\n		inheritedExpiry(s, p.bounds()).passed(now)", "s.Released"}}},
	{"ack: a release for another question counts", simulation, []edit{{gatherGo, "s.Record.Revoked != 0 && m.facts.Released == s.Record.Revoked", "s.Record.Revoked != 0"}}},

	// The revocation replaces the live copy, and nothing else, without doubt.
	{"ack: acknowledgement on an expired Lease", asking, []edit{{revokeGo, " || !c.Live(now.Wall):", ":"}}},
	{"ack: acknowledgement on an unsealed Lease", asking, []edit{{revokeGo, "case !l.known.sealed || !c.SameTerm", "case !c.SameTerm"}}},
	{"ack: acknowledgement on the Lease of another term", asking, []edit{{revokeGo, "!l.known.sealed || !c.SameTerm(l.want.Revoked) ||", "!l.known.sealed ||"}}},
	{"ack: list after an ambiguous revoke", asking, []edit{{publisherGo, "	case ambiguous:\n		p.noteUnanswered(l, s)\n", "	case ambiguous:\n		p.askReaders(key, l, s)\n"}}},
	{"ack: a late create may bring the Lease back", asking, []edit{{revokeGo, "l.createPendingUntil = max(", "_ = max("}}},
	{"ack: an edit that readers believe is overlooked", asking, []edit{{acksListGo, " || l.status.PoisonedEpoch > s.revokes {", " {"}}},

	// Who is asked.
	{"ack: list before revoke", asking, []edit{{acksGo, "q.number <= asked && q.waiting == nil", "q.waiting == nil"}}},
	{"ack: list from cache", asking, []edit{{acksListGo, "Limit: readersPage}", "Limit: readersPage, ResourceVersion: \"0\"}"}}},
	{"ack: a version that a restored etcd gives again is no news", asking, []edit{{acksGo, "!e.missing && e.content == content {", "!e.missing {"}}},
	{"ack: a version that was given twice shows no restore", asking, []edit{{acksListGo, " || p.acks.contradicts(list.Items))", ")"}}},
	{"ack: an empty list counts as released", asking, []edit{{acksGo, "q.unanswerable = len(q.waiting) == 0 || r.full", "q.unanswerable = r.full"}}},
	{"ack: a registration that cannot be read is nobody's", asking, []edit{{acksGo, "if e.reader.Follows(namespace) {", "if !e.unreadable && e.reader.Follows(namespace) {"}}},
	{"ack: who is missing from the list has gone", asking, []edit{{acksGo, "			e.missing, e.since = true, now\n", "			r.gone(uid)\n"}}},
	{"ack: release of another epoch counted", simulation, []edit{{acksGo, "e.reader.HasReleased(namespace, q.epoch)", "e.reader.HasReleased(namespace, 0)"}}},
	{"ack: one release is enough", simulation, []edit{{acksGo, "		if len(q.waiting) == 0 {\n			delete(r.questions", "		if len(q.waiting) < 2 {\n			delete(r.questions"}}},

	// A member that went back.
	{"ack: a restored member is believed", asking, []edit{{historyGo, "	p.acks.cancelAll()\n", ""}, {acksListGo, "p.mayMissReaders(now, l.timings.LongestPromise) || ", ""}}},
	{"ack: what happened before the start is forgotten", asking, []edit{{initialGo, "newestVersion: list.ResourceVersion, since: p.Clock.Now().Boot}", "newestVersion: list.ResourceVersion, since: -time.Hour}"}}},
	{"ack: older versions are overlooked", asking, []edit{{historyGo, "	n, err := resourceversion.CompareResourceVersion(a, b)\n", "	n, err := 0, error(nil)\n"}, {historyGo, "	\"k8s.io/apimachinery/pkg/util/resourceversion\"\n", ""}}},

	// Registrations of the dead.
	{"ack: a registration goes when its time is over, without ε", asking, []edit{{acksExpiryGo, "case now.Boot < e.since.Boot+d+skew, now.Wall.Before(until.Add(skew)):", "case now.Boot < e.since.Boot+d, now.Wall.Before(until):"}}},
	{"ack: a registration goes by the wall clock alone", asking, []edit{{acksExpiryGo, "case now.Boot < e.since.Boot+d+skew, now", "case now"}}},
	{"ack: a registration goes although it was confirmed", asking, []edit{{acksExpiryGo, "UID: &obj.UID, ResourceVersion: &obj.ResourceVersion}", "UID: &obj.UID, ResourceVersion: nil}"}, {acksExpiryGo, " || !left.Spec.RenewTime.Equal(obj.Spec.RenewTime) {", " {"}}},
}
