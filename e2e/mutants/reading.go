package main

// reading are the mutants of the reader's rule: what the holder of a Lease may do by it, and until when.
var reading = []mutant{
	{"reader: a renewTime in the future is believed", simulation, "api/lease.Reader.Doubt",
		`c.RenewTime.After(now.Wall.Add(r.Allowed(c)))`, `false`},
	{"reader: an epoch below the highest seen is believed", ofReader, "api/lease.Reader.Doubt",
		`c.Epoch < r.highest`, `false`},
	{"reader: the clock that never steps does not count", simulation, "api/lease.Permit.Holds",
		`now.Boot < p.boot`, `true`},
	{"reader: the wall clock does not count", simulation, "api/lease.Permit.Holds",
		`now.Wall.Before(p.wall)`, `true`},
	{"reader: what is delivered again extends the term", simulation, "api/lease.Reader.Observe",
		`c.Epoch != r.frozen.Epoch || deadline.After(r.frozen.wall)`, `deadline.After(time.Time{})`},
	{"reader: a term outlives the next holder", ofReader, "api/lease.Reader.Observe",
		`r.current = Permit{}`, ``},
	{"reader: any holder is this cluster", simulation, "api/lease.Content.LeadsHere",
		`c.Holder == c.Cluster`, `true`},
	{"reader: a Member leads that is not registered", ofMember, "member.terms.apply",
		`t.releases.holds(now)`, `true`},
	{"reader: a term is released before its work has ended", ofMember, "member.term.finished",
		`len(t.open) == 0`, `true`},
}
