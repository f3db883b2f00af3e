package main

const (
	tracksGo     = "hub/health/tracks.go"
	probingGo    = "hub/fleet/probing.go"
	concernGo    = "hub/controller/concern.go"
	quarantineGo = "hub/fleet/quarantine.go"
	heldGo       = "hub/fleet/held.go"
	localGo      = "hub/fleet/transport/local.go"
	ownersGo     = "hub/fleet/state.go"
	pinGo        = "hub/seal/pin.go"
)

// What must notice the mutants of rules that keep one member, tenant or fleet from disturbing another.
var (
	judging    = tests{"./hub/health", "^Test(ARequest|WhichFacts)"}
	demands    = tests{"./hub/fleet", "^Test(WhatPolicies|WhichPolicies|AnImpatient|Probers|AProbeThat)"}
	pinning    = tests{"./hub/fleet", "^Test(WhoseAUID|AnAnnotation|Owners|ReadSpec|SpecOf)"}
	proofs     = tests{"./hub/seal", "^TestWhatProves"}
	concerns   = tests{"./hub/controller", "^TestWhichNamespacesOfAMember"}
	ours       = tests{"./hub/publish", "^TestWhichNamespacesMay"}
	again      = tests{"./hub/publish", "^TestReadingAgain"}
	tellings   = tests{"./hub/publish", "^TestWhoMakes"}
	quarantine = tests{"./hub/fleet", "^Test(ForHowLong|AMemberInQ)"}
	holding    = tests{"./hub/fleet", "^Test(HowMuch|WhatALease|WhatIsKept)"}
	dialling   = tests{"./hub/fleet/transport", "^Test(WhichAddresses|ANameOf)"}
)

// starving are these mutants.
var starving = []mutant{
	// Each policy judges by its own timeout, and only members of its fleet that it selects.
	{"starving: a late answer is in time", judging, []edit{{tracksGo, "o.OK && o.Took > timeout", "o.OK && o.Took < 0"}}},
	{"starving: silence for a short time is silence for all", judging, []edit{{tracksGo, "o.Silent && o.Took < timeout", "o.Silent && o.Took < 0"}}},
	{"starving: a policy is judged by the facts of another", judging, []edit{{tracksGo, "if t.Timeout >= timeout {", "if t.Timeout >= 0 {"}}},
	{"starving: a policy has members probed that it does not select", demands, []edit{{probingGo, "return !p.Clusters.Matches(set)", "return p.Clusters.Matches(set) && false"}}},
	{"starving: a policy has members of other fleets probed", demands, []edit{{probingGo, "if k.Fleet == fleet {", "if k.Fleet != \"\" {"}}},
	{"starving: a probe that was cut off says nothing", demands, []edit{{"hub/fleet/connect.go", "o.Silent, o.Took = true, bound", "o.Silent = bound > 0"}}},
	{"starving: labels that change change nothing", demands, []edit{{ownersGo, "		m.p.probeAnew(m)\n", ""}}},
	{"starving: any number of timeouts is told apart", demands, []edit{{probingGo, "left := len(timeouts) - maxTimeouts", "left := len(timeouts) - 100*maxTimeouts"}}},
	{"starving: what one policy finds slow is a problem for all", demands, []edit{{ownersGo, "patient := s.tracks.MostPatient() // what", "patient := s.tracks.Of(0) // what"}}},

	// Rule 14.
	{"14: an annotation makes a Cluster the owner of a UID", pinning, []edit{{ownersGo, "case s.spec.pin == \"\", s.spec.pin == s.uid:\n		o.uid = s.uid", "default:\n		o.uid = s.known()"}}},
	{"14: the hub's own pin counts no more than another", pinning, []edit{{identityGo, "		first(a.proved, b.proved),\n", ""}}},
	{"14: a proof counts for any Cluster", proofs, []edit{{pinGo, "{pinned, fleet, cluster, uid}", "{pinned, fleet, cluster[:0], uid}"}}},
	{"14: a proof counts for any UID", proofs, []edit{{pinGo, "{pinned, fleet, cluster, uid}", "{pinned, fleet, cluster, uid[:0]}"}}},
	{"14: no key proves anything", proofs, []edit{{pinGo, "return len(key) > 0 && hmac", "return hmac"}}},

	// What is nobody's costs nothing.
	{"starving: every namespace of a member is decided on", concerns, []edit{{concernGo, "err != nil || !c.isKnown(ctx, key) && !c.isClaimed(ctx, key, ns.Labels)", "err != nil"}}},
	{"starving: a namespace that a policy claims is dropped", concerns, []edit{{concernGo, "!c.isKnown(ctx, key) && !c.isClaimed(ctx, key, ns.Labels)", "!c.isKnown(ctx, key)"}}},
	{"starving: a namespace with a record is dropped", concerns, []edit{{concernGo, "!c.isKnown(ctx, key) && !c.isClaimed(ctx, key, ns.Labels)", "!c.isClaimed(ctx, key, ns.Labels)"}}},
	{"starving: Leases that anybody has labelled are decided on", ours, []edit{{inmemberGo, "l.known.lease != nil && (l.known.sealed || l.known.ours)", "l.known.lease != nil"}}},

	// Bounds on one member.
	{"starving: a quarantine never gets longer", quarantine, []edit{{quarantineGo, "				times = q.times\n", "				times = 0 * q.times\n"}}},
	{"starving: what two requests notice counts twice", quarantine, []edit{{quarantineGo, "			if now.Boot < q.until {", "			if false {"}}},
	{"starving: caches hold any number of objects", holding, []edit{{heldGo, "h.objects > maxHeld || h.bytes", "h.bytes"}}},
	{"starving: caches hold objects of any size", holding, []edit{{heldGo, "h.objects > maxHeld || h.bytes > maxHeldBytes", "h.objects > maxHeld"}}},
	{"starving: the owners of a Lease weigh nothing", holding, []edit{{heldGo, "n += heldOverhead + len(r.APIVersion) + len(r.Kind) + len(r.Name)", "n += heldOverhead + len(r.APIVersion) + len(r.Kind)"}}},
	{"starving: loopback is dialled", dialling, []edit{{localGo, "ip.IsLoopback() || ", ""}}},
	{"starving: a cloud's metadata service is dialled", dialling, []edit{{localGo, "ip.IsLinkLocalUnicast() || ", ""}}},
	{"starving: IPv4 in IPv6 is not seen", dialling, []edit{{localGo, "to.Addr().Unmap()", "to.Addr()"}}},
	{"starving: metadata beyond the link is dialled", dialling, []edit{{localGo, " || slices.Contains(metadata, ip)", " || slices.Contains(metadata[:0], ip)"}}},
	{"starving: a zone hides an address", dialling, []edit{{localGo, ".WithZone(\"\")", ""}}},

	// What does not work is shown, and stood in for.
	{"starving: what is gone is not noticed by reading", again, []edit{{initialGo, "			p.ObserveGone(key)\n", ""}}},
	{"starving: an edit is not noticed by reading", again, []edit{{initialGo, "		p.Observe(obj)\n", ""}}},
	{"starving: who does not release a term is not named", tellings, []edit{{"hub/publish/ackslist.go", "readers[:min(len(readers), mostTold)]", "readers[:0]"}}},
}
