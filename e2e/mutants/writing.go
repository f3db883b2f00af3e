package main

// writing are the mutants of rules 1 to 4: who writes a Lease, when, and what is noted of it before.
var writing = []mutant{
	{"1: the renewTime is read after the check", stories, "hub/publish.Publisher.nextStep",
		`l.next(now, p.MayWrite(now), answered)`, `l.next(p.Clock.Now(), p.MayWrite(now), answered)`},
	{"1: the deadline does not count", simulation, "hub/tenure.Tenure.MayWrite",
		`t.held && !t.released && now.Wall.Before(t.wall) && now.Boot < t.boot`, `t.held && !t.released`},
	{"1: a tenure that has lapsed goes on", simulation, "hub/tenure.lock.Update",
		`!l.tenure.unbroken(r, sent)`, `false`},
	{"1: the election of another replica is released", simulation, "hub/tenure.lock.Update",
		`!l.tenure.leaseIsOwn(l.Identity())`, `false`},
	{"1: renewals go on after the release", ofTenure, "hub/tenure.Tenure.release",
		`t.released = true`, ``},

	{"2: a Lease is written before its record", simulation, "hub/controller.Controller.reconcileNamespace",
		`written, err := c.persist(ctx, v, p)`,
		`if p.Persist {
			v.Granted = p.Record.Epoch
		}
		c.assign(v, p)
		written, err := c.persist(ctx, v, p)`},
	{"2: a record is written without compare-and-swap", ofLedger, "hub/ledger.Ledger.write",
		`return l.Client.Update(ctx, object)`, `object.ResourceVersion = ""; return l.Client.Update(ctx, object)`},
	{"2: a longer D is promised before the seal holds it", stories, "hub/controller.Controller.persist",
		`p.Record.State == election.Leading && v.Policy != nil`, `false`},

	{"3: an expired Lease is renewed", stories, "hub/publish.leaseSyncer.lead",
		`c.Live(now.Wall)`, `true`},
	{"3: an unsealed Lease is believed", simulation, "hub/publish.self.see",
		`s.key.Sealed(c, mac)`, `true`},
	{"3: an edit that promises more stays while its term is replaced", ofPublish, "hub/publish.leaseSyncer.hold",
		`l.known.promisesMore(now, l.timings.Skew, l.sent)`, `false`},
	{"3: an edit that promises more is no promise", ofPublish, "hub/publish.leaseSyncer.undoExtension",
		`s.reading, s.promised = now, l.want.Term.Duration`, ``},
	{"3: a sealed Lease that is newer than the record is overwritten", ofPublish, "hub/publish.leaseSyncer.decide",
		`l.known.newerThan(l.want.Term.Epoch, now)`, `false`},

	{"4: the leader of an ending term is renewed", simulation, "hub/election.Assign",
		`if r.Revoked != 0 {
			a.Role, a.Revoked = assign.Revoke, a.Term
			a.Term.Holder, a.Term.Epoch = "", r.Epoch
		}`,
		`if r.Revoked != 0 {
			a.Role, a.Revoked = assign.Revoke, a.Term
			a.Term.Holder, a.Term.Epoch = "", r.Epoch
		} else {
			a.Role = assign.Lead
		}`},
	{"4: the expiry is computed while renewals go on", ofElection, "hub/election.lead",
		`!s.Sent.Final`, `false`},
	{"4: the expiry that another tenure computed is trusted", simulation, "hub/election.awaitEnd",
		`b := promiseExpiry(s, p.bounds())`,
		`b := promiseExpiry(s, p.bounds())
		if s.Sent.Until.IsZero() && !s.Record.NotBefore.IsZero() {
			b = expiry{wall: s.Record.NotBefore}
		}`},
	{"4: a promise is not noted", simulation, "hub/publish.Publisher.nextStep",
		`s.promised > 0`, `s.promised > time.Hour`},
	{"4: a revoked term is resumed", ofElection, "hub/election.resumes",
		`s.Record.Revoked == 0`, `true`},
}
