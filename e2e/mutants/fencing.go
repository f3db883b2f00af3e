package main

const (
	celGo         = "hub/guard/cel.go"
	fenceGo       = "hub/guard/fence.go"
	keepFenceGo   = "hub/guard/keepfence.go"
	removeFenceGo = "hub/guard/removefence.go"

	schedulesGo   = "hub/worker/schedules.go"
	cronJobsGo    = "hub/worker/cronjobs.go"
	fencedTermsGo = "hub/worker/terms.go"
	policiesGo    = "hub/controller/policies.go"
	locksGo       = "hub/guard/locks/locks.go"
	workerFenceGo = "hub/worker/fence.go"
	workerLocksGo = "hub/worker/locks.go"
	lockStatusGo  = "hub/controller/lockstatus.go"
)

// What must notice the mutants of fences.
var (
	caught       = tests{"./hub/guard", "^TestWhatAWriteFenceCatches$"}
	labelled     = tests{"./hub/guard", "^(TestWhatAFenceOfObjects|TestALabelIsNot|TestANamespaceThatGoes|TestALeaseThatIsDeleted|TestNamespacesOfTheCluster)"}
	jobs         = tests{"./hub/guard", "^(TestWhichJobsAScheduleFence|TestAJobIsCreatedByNo)"}
	ticks        = tests{"./e2e/integration", "^TestATickRunsWhere"}
	kept         = tests{"./hub/guard", "^(TestAFenceIsInForceBefore|TestWhatIsEditedInAFence|TestOnlyFencesThat)"}
	anchored     = tests{"./hub/guard", "^TestAFenceThatComesBack"}
	mended       = tests{"./hub/worker", "^TestAFenceThat"}
	replaced     = tests{"./hub/worker", "^TestAFenceGoesWhen"}
	rarely       = tests{"./hub/worker", "^TestAFenceThatIsRefused"}
	earlierFence = tests{"./hub/worker", "^TestAnEarlierFence"}
	earlierStays = tests{"./hub/guard", "^TestWhereAnEarlierFence"}
	unread       = tests{"./hub/worker", "^TestFencesStayAsTheyAre"}
	retried      = tests{"./hub/worker", "^TestHowOftenAFence"}
	stepwise     = tests{"./hub/guard", "^TestKeepDoesNothingAfter"}
	locked       = tests{"./hub/guard", "Lock"}
	covering     = tests{"./hub/guard", "^TestWhichNamespacesAFenceSelects"}
	coveredEdits = tests{"./hub/guard", "^(TestAnEditOfWhat|TestANamespaceThatIsLost)"}
	takenOver    = tests{"./hub/worker", "^TestANamespaceGoesFromOne"}
	noted        = tests{"./hub/worker", "^(TestManyFences|TestAFenceIsNoted|TestWhichFenceIsStored)"}
	odd          = tests{"./hub/guard", "^TestALeaseThatSaysNothing"}
	behind       = tests{"./hub/guard", "^TestAnAPIServerWhoseLeases"}
	woken        = tests{"./hub/worker", "^(TestWhoseCronJobs|TestACronJobIsWoken(ByItsStatus|Twice)$)"}
	wakened      = tests{"./e2e/integration", "^TestACronJobIsWokenWhen"}
	fencesOf     = tests{"./hub/controller", "^(TestWhoMayLead$|TestWhereSchedules|TestWhichFences|TestWhatAPolicySays)"}
)

// What must notice that locks are not waited for.
var (
	stopping   = tests{"./hub/controller", "^(TestHowLongLocks|TestALockHas)"}
	unfencable = tests{"./hub/controller", "^TestAPolicyWhoseLocks"}
	resolving  = tests{"./hub/guard/locks", "."}
	bounding   = tests{"./hub/election", "^(TestGrantAfter|TestRevocation)"}
	lasting    = tests{"./hub/publish", "^TestPromises"}
	lockLooks  = tests{"./hub/worker", "^(TestWhenALock|TestALockThat|TestOfALock)"}
	seenHeld   = tests{"./e2e/integration", "^TestAFencedLockThat"}
	lookedFor  = tests{"./hub/worker", "^(TestWhichFencedAccounts|TestAnAnswerThatIsNone|TestAMemberIsAskedForAnAccount|TestWhoLooks)"}
	accounted  = tests{"./hub/controller", "^TestWhatAPolicySaysOfItsAccounts"}
	warning    = tests{"./hub/controller", "^(TestWhatAPolicySaysOfItsLocks|TestOneLock)"}
	judged     = tests{"./e2e/unmodified", "^(TestWhatTwo|TestAHubThatDoesNot)"}
	stopWorlds = tests{"./hub/controller", "^TestSpecialWorlds$/^locks"}
)

// fences are the mutants of what API servers refuse outside the term of the leader. Each expression has one.
var fences = []mutant{
	{"fence: any cluster may write", caught, []edit{{celGo, "thisClusterLeads = \"params.spec.holderIdentity == params", "thisClusterLeads = \"params.spec.holderIdentity != '' || '' == params"}}},
	{"fence: terms have no end", caught, []edit{{celGo, "+ 's')\"", "+ 'h')\""}}},
	{"fence: what is created carries no time", caught, []edit{{celGo, "? \" + createdInTime + \" :", "? true :"}}},
	{"fence: what is changed carries no time", caught, []edit{{celGo, "+ noted + \" && \" + changedInTime + \") : \"", "+ noted + \") : \""}}},
	{"fence: an object without notes may be changed", caught, []edit{{celGo, "noted + \" && \" + changedInTime + \") : \"", "\"!(\" + noted + \") || \" + changedInTime + \") : \""}}},
	{"fence: a status carries no time", caught, []edit{{celGo, "wholeObjects = \"'', 'status', ", "wholeObjects = \"'scale', "}}},
	{"fence: it is about everybody", caught, []edit{{celGo, "return anyOf(who) + \" && \" + anyOf(what)", "return anyOf(what)"}}},
	{"fence: objects get out by taking their label off", labelled, []edit{{celGo, "oldObject != null && \"+selects(", "oldObject == 0 && \"+selects("}}},
	{"fence: objects get in without their label", labelled, []edit{{celGo, "(object != null && \"+selects(", "(object == 0 && \"+selects("}}},
	{"fence: the cluster itself cannot write objects", labelled, []edit{{celGo, "who = append(who, notTheCluster+", "who = append(who, \"true\"+"}}},
	{"fence: accounts may write any objects", labelled, []edit{{celGo, "startsWith('system:') || request.userInfo", "startsWith('system:') || false && request.userInfo"}}},
	{"fence: all values of a label are one", labelled, []edit{{celGo, " && %s.metadata.labels[%s] in [%s]\", hasLabel(object, key), object,", " && ('' in %s.metadata.labels || [%s] != [%s])\", hasLabel(object, key), object,"}}},
	{"fence: a label can be taken off after the term", labelled, []edit{{fenceGo, "			keep = append(keep, admissionv1.Validation{Expression: keepsLabels(w), Message: labelTaken})\n", ""}}},
	{"fence: a finalizer holds a namespace for good", labelled, []edit{{celGo, "cleansUp = \"request.operation != 'CREATE' && ", "cleansUp = \"request.operation == 'NONE' && "}}},
	{"fence: whatever goes on in a namespace that goes away", labelled, []edit{{celGo, "cleansUp = \"request.operation != 'CREATE' && namespaceObject.status.phase == ", "cleansUp = \"request.operation != 'CREATE' || namespaceObject.status.phase == "}}},
	{"fence: without its Lease a namespace gets no Lease", labelled, []edit{{fenceGo, "	spec.MatchConstraints.ResourceRules[0].ResourceNames = names\n", "	_ = names\n"}}},
	{"fence: without its Lease the gate is not seen", labelled, []edit{{fenceGo, "	f.gate.provokedToo = ", "	_ = "}}},
	{"fence: namespaces of the cluster wait for a leader", labelled, []edit{{celGo, "managed = \"!request.namespace.startsWith('kube-')\"", "managed = \"true\""}}},
	{"fence: a Pod is bound by a resource of its own", caught, []edit{{celGo, "return append(slices.Clone(r.Names), \"bindings\")", "return r.Names"}}},
	{"fence: a binding carries a time", caught, []edit{{celGo, "request.resource.resource == 'bindings'\"", "request.resource.resource == 'pods' && false\""}}},
	{"fence: an ephemeral container is no whole object", caught, []edit{{celGo, "'status', 'ephemeralcontainers', ", "'status', "}}},
	{"fence: labels that nothing can have are fenced", tests{"./hub/controller", "^TestAPolicyWithAnUnreadable"}, []edit{{"hub/controller/policies.go", "	return append(all, f.Schedules)\n", "	return nil\n"}}},
	{"fence: it is about subresources of nothing", caught, []edit{{fenceGo, "names = append(names, n, n+\"/*\")", "names = append(names, n)"}}},
	{"fence: deletes are let through", caught, []edit{{fenceGo, "names, admissionv1.Create, admissionv1.Update, admissionv1.Delete)", "names, admissionv1.Create, admissionv1.Update)"}}},
	{"fence: there is no wall", kept, []edit{{fenceGo, "Expression: cleansUp, Message: noLeader", "Expression: \"true\", Message: noLeader"}}},

	{"fence: a Lease of the future lets writes through", caught, []edit{{fenceGo, "writtenInTime, writtenSince,", "writtenInTime, \"true\","}}},
	{"fence: a Lease of the future lets updates through", caught, []edit{{celGo, "unnoted + \" || \" + notedSince + \")\"", "unnoted + \" || true)\""}}},
	{"fence: a Lease of the future refuses what carries no time", caught, []edit{{celGo, ": \" + unnoted + \" || \" + notedSince + \")\"", ": \" + notedSince + \")\""}}},
	{"fence: a Lease of the future lets Jobs through", jobs, []edit{{fenceGo, "createdInTime, createdSince,", "createdInTime, \"true\","}}},
	{"fence: a Lease of the future is any of this moment", jobs, []edit{{celGo, " - duration(params.metadata.annotations['\" + v1alpha1.MaxClockSkewAnnotation + \"'] + 'ms')\"", "\""}}},

	{"fence: a Job is created in any cluster", ticks, []edit{{celGo, "thisClusterLeads = \"params.spec.holderIdentity == params", "thisClusterLeads = \"params.spec.holderIdentity != '' || '' == params"}}},
	{"fence: a tick of the term before is run again", ticks, []edit{{celGo, "tickOfThisTerm = \"variables.\" + scheduled + \" >= timestamp(params.spec.acquireTime)\"", "tickOfThisTerm = \"variables.\" + scheduled + \" >= timestamp('2000-01-01T00:00:00Z')\""}}},
	{"fence: all Jobs are fenced", jobs, []edit{{celGo, "return strings.Join(all, \" && \")", "return all[0]"}}},
	{"fence: NotIn is In", jobs, []edit{{celGo, "all = append(all, \"!(\"+labelled(object, e.Key, e.Values)+\")\")", "all = append(all, labelled(object, e.Key, e.Values))"}}},

	{"fence: the gate is asked where no Lease ever was", kept, []edit{{keepFenceGo, "if leased || slices.Contains(is.gated, ns) {", "if leased || true {"}}},
	{"fence: a Lease that is deleted opens it", kept, []edit{{keepFenceGo, "if leased || slices.Contains(is.gated, ns) {", "if leased {"}}},
	{"fence: an API server stops watching Leases", anchored, []edit{{"hub/guard/anchor.go", "	return anchor().Ensure(ctx, member)\n", "	return false, nil\n"}}},
	{"fence: nobody has API servers watch Leases", mended, []edit{{workerFenceGo, "anchored, failed := guard.Anchor(ctx, w.Client)", "anchored, failed := false, error(nil)"}}},
	{"fence: the fences of another hub are removed", kept, []edit{{removeFenceGo, "o.GetAnnotations()[v1alpha1.HubAnnotation] != hub || ", ""}}},
	{"fence: what is wanted is removed", kept, []edit{{removeFenceGo, " || slices.Contains(but.Names, o.GetName())", ""}}},
	{"fence: a namespace that another policy owns is fenced", covering, []edit{{fenceGo, "return !slices.Contains(f.lost, namespace) }", "return true }"}}},
	{"fence: a wall does not change with what is covered", coveredEdits, []edit{{fenceGo, "fingerprint(append(version, s))", "fingerprint(version)"}}},
	{"fence: the gate changes with what is covered", coveredEdits, []edit{{fenceGo, "f.warns, f.lockIn()}", "f.warns, f.lockIn(), f.names, f.selector}"}}},
	{"fence: a namespace that is lost has no gate at once", coveredEdits, []edit{{keepFenceGo, "if leased && slices.Contains(is.gated, ns) {", "if leased && false {"}}},
	{"fence: a namespace that is lost has no wall at once", coveredEdits, []edit{{keepFenceGo, "!isOpen || b == nil || ", "true || !isOpen || b == nil || "}}},
	{"fence: a wall leaves out nothing that is lost", coveredEdits, []edit{{fenceGo, "	if len(lost) > 0 {\n", "	if len(lost) > 9 {\n"}}},
	{"fence: the next fence is not waited for", takenOver, []edit{{workerFenceGo, "	for ns := range a.open {\n", "	for ns := range map[string]bool{} {\n"}}},
	{"fence: kube-system is fenced", covering, []edit{{fenceGo, " && !v1alpha1.NeverManaged(namespace)\n", "\n"}}},

	{"fence: one is put in place in a member that is left", tests{"./hub/worker", "^TestWhenAMemberThatTakesNoPartIsLetGoOf$"}, []edit{{"hub/worker/leave.go", "ours || w.isFencing() {", "ours {"}}},
	{"fence: the old version goes before the new one is in force", replaced, []edit{{workerFenceGo, "	if underWay {\n		return refused, false\n", "	if len(wanted.fences) > 9 {\n		return refused, false\n"}}},
	{"fence: the old version goes though the member does not take the new one", replaced, []edit{
		{workerFenceGo, "			stays.Policies = append(stays.Policies, f.PolicyName())\n", ""},
	}},
	{"fence: an earlier one of an invalid policy asks no Lease", earlierFence, []edit{{workerFenceGo, "	if len(wanted.fences)+len(wanted.invalid) == 0 {\n", "	if len(wanted.fences) == 0 {\n"}}},
	{"fence: an earlier one asks Leases of namespaces that go away", tests{"./hub/worker", "^TestWhichNamespacesAFenceIsPutIn$"}, []edit{
		{workerFenceGo, "		if !ns.DeletionTimestamp.IsZero() || ns.Status.Phase == corev1.NamespaceTerminating {\n			continue\n		}\n		for _, key := range written[ns.Name] {\n			a.leases[key] = true\n		}\n", "		for range written[ns.Name] {\n			a.leases[client.ObjectKey{Namespace: \"shop\", Name: \"leasecast\"}] = true\n		}\n		if !ns.DeletionTimestamp.IsZero() || ns.Status.Phase == corev1.NamespaceTerminating {\n			continue\n		}\n"},
	}},
	{"fence: an earlier one asks Leases that nobody writes", earlierStays, []edit{{removeFenceGo, "return !k.Leases[types.NamespacedName{Namespace: ns, Name: gate.Name}] })", "return false })"}}},
	{"fence: an earlier one lets a namespace through that is created again", earlierStays, []edit{{removeFenceGo, "return !v1alpha1.NeverManaged(ns) && !led[ns] })", "return false })"}}},
	{"fence: a namespace loses the gate before it has the wall", tests{"./hub/guard", "^TestANamespaceGetsTheWall"}, []edit{{removeFenceGo, "[]bool{true, false}", "[]bool{false, true}"}}},
	{"fence: an earlier one of a lock goes with the Lease", earlierStays, []edit{{removeFenceGo, "gate != nil && gate.Namespace != \"\":", "gate != nil && gate.Namespace != \"\" && len(led) > 0:"}}},
	{"fence: an earlier wall goes with the Lease", earlierStays, []edit{{removeFenceGo, "	left = gate == nil\n", "	left = gate == nil && len(led) > 0\n"}}},
	{"fence: a gate for all namespaces stays", tests{"./hub/guard", "^TestAGateThatSomebody"}, []edit{{removeFenceGo, "return gate == nil, false // an edit", "return true, false // an edit"}}},
	{"fence: that of an invalid policy goes", tests{"./hub/worker", "^TestTheFenceOfAPolicyStaysWhileThatIsInvalid$"}, []edit{{workerFenceGo, "Policies: slices.Clone(wanted.invalid)", "Policies: nil"}}},
	{"fence: an invalid policy asks for none", tests{"./hub/controller", "^TestTheFencesOfAnInvalidPolicyStay$"}, []edit{{"hub/controller/fencestatus.go", "			invalid = append(invalid, p.object.Name)\n", ""}}},
	{"fence: many namespaces are asked one after the other", tests{"./hub/worker", "^TestTheFenceOfMany"}, []edit{{keepFenceGo, "const askedAtOnce = 16", "const askedAtOnce = 1"}}},
	{"fence: a refusal is tried again every second", rarely, []edit{{workerFenceGo, "2*last.retry", "0*last.retry"}}},
	{"fence: one that is refused has all others asked again", rarely, []edit{{workerFenceGo, "	if settled {\n		is.again", "	if settled && !refused {\n		is.again"}}},
	{"fence: one that is taken at last was edited", tests{"./hub/worker", "^TestAFenceGoesWhenTheOneThatFollowsItIsInForce$"}, []edit{{workerFenceGo, " && known && before.why == nil\n", " && known\n"}}},
	{"fence: in a member that was left it is still in force", tests{"./hub/worker", "^TestWhenAMemberThatTakesNoPartIsLetGoOf$"}, []edit{{"hub/worker/leave.go", "	w.forgetFences(nil)\n", ""}}},
	{"fence: the hub's own Lease of another policy is a lock", tests{"./hub/controller", "^TestALockHasOneFenceInAMember$"}, []edit{{"hub/controller/fencestatus.go", "writer(policies[:i], lock.Name)", "writer(policies[:0*i], lock.Name)"}}},
	{"fence: a younger policy takes a lock out of an older one by its leaseName", tests{"./hub/controller", "^TestALockHasOneFenceInAMember$"}, []edit{{"hub/controller/fencestatus.go", "writer(policies[:i], lock.Name)", "writer(policies[:max(i, len(policies))], lock.Name)"}}},
	{"fence: the Lease of the hub's probe is a lock", tests{"./hub/guard/locks", "^TestLocksThatAnEarlierCRDAdmitted"}, []edit{{locksGo, "if strings.HasPrefix(l.Name, ours) {", "if strings.HasPrefix(l.Name, ours+\"?\") {"}}},
	{"claim: an owner whose selector cannot be read loses its namespaces", tests{"./hub/controller", "^TestAnOwnerWithAnUnreadableSelector"}, []edit{{"hub/controller/claim.go", "!p.unreadable && !v.claimedBy(p, recorded):", "!v.claimedBy(p, recorded):"}}},
	{"claim: an invalid owner keeps what it does not claim", tests{"./hub/controller", "^TestAnInvalidOwnerGivesUp"}, []edit{{"hub/controller/claim.go", "!p.unreadable && !v.claimedBy(p, recorded):", "!p.unknown && !v.claimedBy(p, recorded):"}}},
	{"fence: what an invalid policy still fences is passed over", tests{"./hub/controller", "^TestALockHasOneFenceInAMember$"}, []edit{{"hub/controller/fencestatus.go", "		if !p.unknown && !slices.", "		if p.unknown || !slices."}}},
	{"fence: whose Leases an older lock refuses is not said", tests{"./hub/controller", "^TestAPolicyWhoseLeaseAnOlder"}, []edit{{"hub/controller/fencestatus.go", "		for _, l := range locks.Of(older.object.Spec.Fencing) {", "		for _, l := range locks.Of(nil) {"}}},
	{"fence: one that the member does not take keeps those of deleted policies", replaced, []edit{{workerFenceGo, "			refused = true\n", "			underWay, refused = true, true\n"}}},
	{"fence: all go while the policies cannot be read", unread, []edit{{workerFenceGo, "	fences, invalid, err := w.Hub.Fences(ctx, w.Member.Key)\n	if err != nil {\n", "	fences, invalid, err := w.Hub.Fences(ctx, w.Member.Key)\n	if err != nil && ctx.Err() != nil {\n"}}},
	{"fence: the gates go while the namespaces cannot be listed", unread, []edit{{workerFenceGo, "&list, client.UnsafeDisableDeepCopy); err != nil {", "&list, client.UnsafeDisableDeepCopy); err != nil && ctx.Err() != nil {"}}},
	{"fence: where it is in force is asked once", retried, []edit{{workerFenceGo, "	due := now >= last.verifyAt\n", "	due := last.verifyAt == 0\n"}}},
	{"fence: the wall goes though the gate cannot be looked at", stepwise, []edit{{keepFenceGo, "	is, err := f.stored(ctx, member)\n	if err != nil {\n", "	is, err := f.stored(ctx, member)\n	if err != nil && ctx.Err() != nil {\n"}}},
	{"fence: in a namespace that goes away nothing is cleaned up by its gate", labelled, []edit{{fenceGo, "		spec.Validations[i].Expression = cleansUp + ", "		_ = cleansUp + "}}},
	{"fence: an edit is found after a while", mended, []edit{{workerFenceGo, " && maps.Equal(is.versions, last.versions) {", " {"}}},
	{"fence: nobody learns of an edit", mended, []edit{{keepFenceGo, "s.Mended = changed || rewalled && s.Settled", "s.Mended = (changed || rewalled && s.Settled) && false"}}},
	{"fence: what the hub changes is an edit", mended, []edit{{workerFenceGo, "due, asked && last.settled)", "due, true)"}}},

	{"fence: any cluster may hold a lock", locked, []edit{{fenceGo, "judged(released+\" || \"+thisClusterLeads, lockedInTime", "judged(\"true\", lockedInTime"}}},
	{"fence: a lock is renewed after the term", locked, []edit{{celGo, "noted + \" && \" + changedInTime\n", "noted\n"}}},
	{"fence: a lock without notes is renewed", locked, []edit{{celGo, "lockedInTime = released + \" || \" + noted + \" && \" + changedInTime", "lockedInTime = released + \" || !(\" + noted + \") || \" + changedInTime"}}},
	{"fence: a lock is renewed by a clock that was ahead", locked, []edit{{celGo, "exists(m, has(m.time) && timestamp(m.time) + duration('1s') > variables.\" + begin + \")\"", "exists(m, true)\""}}},
	{"fence: a lock is not released", locked, []edit{{celGo, "object.spec.holderIdentity == '')\"", "object.spec.holderIdentity == 'nobody')\""}}},
	{"fence: all locks of a namespace are one", locked, []edit{{celGo, "&& has(request.name) && request.name == %s\", strconv.Quote(l.Namespace), strconv.Quote(l.Name))", "&& %s != ''\", strconv.Quote(l.Namespace), strconv.Quote(l.Name))"}, {fenceGo, "	spec.MatchConstraints.ResourceRules[0].ResourceNames = names\n", "	_ = names\n"}}},
	{"fence: without a Lease all Leases are refused", locked, []edit{{fenceGo, "	spec.MatchConstraints.ResourceRules[0].ResourceNames = names\n", "	_ = names\n"}}},

	{"fence: nobody looks whether a lock is held", seenHeld, []edit{{"hub/worker/worker.go", "	keepers.Go(func() { w.watchLocks(ctx) })\n", ""}}},
	{"fence: who held a lock before holds it", lockLooks, []edit{{workerLocksGo, "	case !l.looked:\n", ""}}},
	{"fence: a lock that was released is held", lockLooks, []edit{{workerLocksGo, " || *l.Spec.HolderIdentity == \"\"", ""}}},
	{"fence: a lock that was held once is held for good", lockLooks, []edit{{workerLocksGo, "	case now < l.since+patience:\n", "	case now < l.since+patience || l.state == LockHeld:\n"}}},
	{"fence: a lock that is taken late is not held", lockLooks, []edit{{workerLocksGo, "	case is.renewal != l.renewal && is", "	case now < l.since+patience && is.renewal != l.renewal && is"}}},
	{"fence: people are warned of a lock at once", lockLooks, []edit{{workerLocksGo, "	case now < l.since+patience:\n", "	case now < l.since:\n"}}},
	{"fence: silence is a lock that nobody holds", lockLooks, []edit{{workerLocksGo, "		case err != nil:\n", "		case err != nil && ctx == nil:\n"}}},
	{"fence: a cluster is asked for its locks all the time", lockLooks, []edit{{workerLocksGo, "		if now < last.next {\n", "		if now < 0 {\n"}}},
	{"fence: people are warned of a follower's locks", lockLooks, []edit{{workerLocksGo, "return !has(terms, t) })", "return len(terms) > 0 && !has(terms, t) })"}}},
	{"fence: a slow elector has no time to take its lock", resolving, []edit{{locksGo, "max(minPatience, 3*e.Lease)", "max(minPatience, 0*e.Lease)"}}},
	{"fence: a policy warns of no lock", warning, []edit{{lockStatusGo, "	case len(idle) > 0:\n", "	case len(idle) > 9:\n"}}},
	{"fence: a lock of which nothing is known is held", warning, []edit{{lockStatusGo, "	case len(open) > 0:\n", "	case len(open) > 9:\n"}}},
	{"fence: a fence is noted when all are known", noted, []edit{{workerFenceGo, "	group.SetLimit(fencesAtOnce)\n", "	group.SetLimit(1)\n"}}},
	{"fence: nothing is asked of a stored one", noted, []edit{{workerFenceGo, "	case !known && w.stored[f.Name()]:\n", "	case !known && w.stored[f.Name()] && false:\n"}}},
	{"fence: a part of one is all of it", noted, []edit{{workerFenceGo, "!has(versions, of[0]) || ", ""}}},
	{"fence: one that was mended was in force all the time", tests{"./hub/worker", "^TestSinceWhen"}, []edit{{workerFenceGo, "has(before.since, ns) && !s.Mended && !written {", "has(before.since, ns) && !written {"}, {workerFenceGo, "last[key] != now[key]", "last[key] == \"\""}}},
	{"fence: one that was edited and put back was in force all the time", tests{"./hub/worker", "^TestSinceWhen"}, []edit{{workerFenceGo, "has(before.since, ns) && !s.Mended && !written {", "has(before.since, ns) && !s.Mended {"}}},
	{"fence: a hub that lost its right goes on", tests{"./hub/worker", "^TestAWorkerWritesNothing"}, []edit{{"hub/worker/worker.go", "return w.Hub.MayWrite(w.Member.Fleet, w.Clock.Now()) })", "return true })"}}},
	{"fence: a lock is open at once", locked, []edit{{fenceGo, "Expression: released + \" || \" + opened(lock),", "Expression: \"true\","}}},
	{"fence: a scale keeps the leader out", tests{"./hub/guard", "^TestWhateverWasDone"}, []edit{{celGo, "all(m, !has(m.time) || timestamp(m.time) + duration('1s') <=", "all(m, timestamp(m.time) + duration('1s') <="}}},
	{"fence: an object that tells no time may be changed", caught, []edit{{celGo, "changedInTime = \"object.metadata.managedFields.exists(m, has(m.time)) && \" +", "changedInTime = \"true && \" +"}}},
	{"fence: dry runs are refused", caught, []edit{{celGo, "stores = \"!(has(request.dryRun) && request.dryRun)\"", "stores = \"true\""}}},
	{"fence: what changes nothing is refused", caught, []edit{{celGo, "changes = \"!(request.operation == 'UPDATE' && object == oldObject)\"", "changes = \"true\""}}},
	{"fence: followers are warned of the term, too", tests{"./hub/guard", "^TestAFenceThatWarnsSays"}, []edit{{fenceGo, "all[i].Expression = \"!(\" + leads + \") || (\" + all[i].Expression + \")\"", "_ = leads"}}},
	{"fence: silence ends one that is in force", tests{"./hub/worker", "^(TestAFenceThatAMemberDoesNotTake|TestSilenceAbout)"}, []edit{{"hub/worker/fence.go", "errors.Is(err, guard.ErrUnsupported) || apierrors.IsInvalid(err)\n", "errors.Is(err, guard.ErrUnsupported) || apierrors.IsInvalid(err) || err != nil\n"}}},
	{"fence: all Clusters are known at once", tests{"./hub/controller", "^TestNoFenceIsSaidToBeInForce"}, []edit{{"hub/controller/policystatus.go", "	if !c.source.synced() { // a fence", "	if false { // a fence"}}},
	{"fence: it is in force where no cluster is", tests{"./hub/controller", "^TestNoFenceIsSaidToBeInForce"}, []edit{{"hub/controller/fencestatus.go", "	if len(members) == 0 {\n", "	if len(members) < 0 {\n"}}},
	{"fence: no worker looks for accounts", tests{"./e2e/integration", "^TestAFencedLockThatIsHeld"}, []edit{{"hub/worker/worker.go", "	keepers.Go(func() { w.watchAccounts(ctx) })\n", ""}}},
	{"fence: a refusal says that an account is missing", lookedFor, []edit{{"hub/worker/accounts.go", "		case err != nil:\n", "		case err != nil && ctx.Err() != nil:\n"}}},
	{"fence: of accounts nobody is warned", accounted, []edit{{"hub/controller/accountstatus.go", "	case len(missing) > 0:\n", "	case len(missing) > 9:\n"}}},
	{"fence: an account has to be in all clusters", accounted, []edit{{"hub/controller/accountstatus.go", "		case f.exists:\n", "		case f.exists && len(f.missingIn) == 0:\n"}}},

	{"fence: two fence one lock", stopping, []edit{{"hub/controller/fencestatus.go", "			if is && (taken[lock.NamespacedName] || writer(", "			if is && (false || writer("}}},

	{"fence: all clients have a timeout", resolving, []edit{{locksGo, "max(serverLimit, e.Renew)", "e.Renew / 2"}}},
	{"fence: no renewal takes longer than an API server admits", resolving, []edit{{locksGo, "max(serverLimit, e.Renew)", "serverLimit"}}},
	{"fence: no time is left to release a lock", resolving, []edit{{locksGo, "e.Request + e.Retry + e.Renew + e.Release", "e.Request + e.Retry + e.Renew"}}},
	{"fence: who does not state it releases no lock", resolving, []edit{{locksGo, "		e.Release = releasing * e.Request\n", "		e.Release = 0 * releasing * e.Request\n"}}},
	{"fence: a release is one request", resolving, []edit{{locksGo, "	releasing = 2\n", "	releasing = 1\n"}}},
	{"fence: a lock without durations has no stop time", resolving, []edit{{locksGo, "if l.Namespace == \"\" || l.Name == \"\" || l.Lease == 0 || l.Renew == 0 || l.Retry == 0 {", "if l.Namespace == \"\" && l.Lease == 1 {"}}},
	{"fence: the hub is locked out by its own Lease", resolving, []edit{{locksGo, "if l.Name == o.LeaseName() {", "if l.Name == o.LeaseName()+\"?\" {"}}},
	{"fence: nobody asks what the hub cannot fence", unfencable, []edit{{policiesGo, "	if err := locks.Check(o); err != nil {\n", "	if err := locks.Check(o); err != nil && false {\n"}}},

	{"fence: nobody waits for locks", stopping, []edit{{policiesGo, "max(p.election.StopTime, l.StopTime())", "max(p.election.StopTime, 0*l.StopTime())"}}},
	{"fence: an answer takes no time", stopping, []edit{{locksGo, "return e.Request + e.Retry", "return 0*e.Request + e.Retry"}}},
	{"fence: a warning makes changes slow", stopping, []edit{{policiesGo, "	if f == nil || f.Mode == v1alpha1.FencingWarn {\n		return nil", "	if f == nil {\n		return nil"}}},
	{"fence: the fastest lock counts", stopping, []edit{{policiesGo, "l.StopTime() > slowest.StopTime()", "l.StopTime() < slowest.StopTime()"}}},
	{"15: locks are not waited for on the wall clock", bounding, []edit{{expiryGo, "s.Sent.Until.Add(p.skew + s.Sent.Stop)", "s.Sent.Until.Add(p.skew)"}}},
	{"15: locks are not waited for on the clock that never steps", bounding, []edit{{expiryGo, "s.Sent.BootUntil+p.skew+s.Sent.Stop)", "s.Sent.BootUntil+p.skew)"}}},
	{"15: a new tenure knows of no locks", bounding, []edit{{expiryGo, "stop := max(s.Record.Stop, s.LargestStop)", "stop := s.Record.Stop"}}},
	{"15: a planned change leaves a leader whose fence is missing", tests{"./hub/election", "^TestPlannedChangeWaits"}, []edit{{replaceGo, " && holder.Unfenced == FenceInForce {", " {"}}},
	{"16: a lock is open at once", tests{"./hub/election", "^TestLockOpens"}, []edit{{"hub/election/locks.go", "rest > 0 {", "rest > time.Hour {"}}},
	{"16: a lock opens where nobody was asked", tests{"./hub/election", "^TestLockOpens"}, []edit{{"hub/election/locks.go", "		if !refused {", "		if !refused && wait < 0 {"}}},
	{"16: a member that may admit a lock does not count", tests{"./hub/controller", "^TestLockIsRefused"}, []edit{{gatherGo, "				admitted[r.lock] = true\n", ""}}},
	{"17: an older policy takes a namespace from its owner", tests{"./hub/controller", "^TestWhoOwnsANamespace$"}, []edit{{"hub/controller/claim.go", "		case owned:\n			v.losers = append(v.losers, v.policy)\n			v.policy = p\n", ""}}},
	{"17: an invalid policy changes what was valid", tests{"./hub/controller", "^TestInvalidPolicyChangesNothing$"}, []edit{{"hub/controller/valid.go", "			p = last.copy()\n", ""}}},
	{"15: readers release locks", bounding, []edit{{"hub/election/revoke.go", "s.Released &&\n		inheritedExpiry(s, p.bounds()).passed(now) && s.Sent.Stop == 0", "s.Released &&\n		inheritedExpiry(s, p.bounds()).passed(now)"}}},
	{"15: a term is revoked under which locks were fenced", bounding, []edit{{"hub/election/revoke.go", "now.Wall.Before(s.Sent.Until) &&\n		inheritedExpiry(s, p.bounds()).passed(now) && s.Sent.Stop == 0", "now.Wall.Before(s.Sent.Until) &&\n		inheritedExpiry(s, p.bounds()).passed(now)"}}},
	{"15: a promise forgets its locks", lasting, []edit{{promisesGo, " || stop < p.Stop", ""}}},
	{"15: the seal and the record have no stop time", stopWorlds, []edit{{"hub/controller/persist.go", "b.Max(v.policy.bounds()))", "seal.Bounds{Duration: b.Duration, Skew: b.Skew})"}, {nextGo, ", max(r.Stop, p.StopTime)", ", r.Stop"}, {grantGo, "		Stop:        p.StopTime,\n", ""}}},
	{"15: a promise is sent without its locks", stopWorlds, []edit{{"hub/controller/reconcile.go", " Stop: v.policy.election.StopTime,", ""}, {policiesGo, "max(p.election.StopTime, l.StopTime())", "max(p.election.StopTime, 0*l.StopTime())"}}},

	{"fence: a cluster without it is chosen", fencesOf, []edit{{candidatesGo, "	case m.unfenced != nil:\n", "	case m.unfenced != nil && !m.isRead:\n"}}},
	{"fence: readers shorten the wait of schedules", fencesOf, []edit{{policiesGo, " && !admitsByLease(o.Spec.Fencing),", ","}}},
	{"fence: a warning has to be in force", fencesOf, []edit{{gatherGo, "|| f.Warns() || isLock", "|| isLock"}}},

	{"fence: an API server lets through what it cannot judge", odd, []edit{{fenceGo, "FailurePolicy: ptr.To(admissionv1.Fail),", "FailurePolicy: ptr.To(admissionv1.Ignore),"}}},
	{"fence: an API server that is behind goes on with a term", behind, []edit{{celGo, "+ 's')\"", "+ 'h')\""}}},

	{"fence: the drill of locks knows no stop time", judged, []edit{{"e2e/unmodified/judge.go", "w.Begin <= p.until+stop", "w.Begin <= p.until"}}},
	{"fence: the drill of locks lets the old holder go on", judged, []edit{{"e2e/unmodified/judge.go", "harness.Judge(slices.Concat(writes, holds))", "harness.Judge(writes)"}}},
	{"fence: the drill of locks lets the old holder write", judged, []edit{{"e2e/unmodified/judge.go", "w.Begin <= p.until+stop", "w.Begin <= p.until+9*stop"}}},

	{"fence: CronJobs are not woken", wakened, []edit{{"hub/worker/worker.go", "	keepers.Go(func() { w.wakeSchedules(ctx) })\n", ""}}},
	{"fence: CronJobs of followers are woken", woken, []edit{{fencedTermsGo, " || !l.LeadsHere()", ""}}},
	{"fence: CronJobs of ended terms are woken", woken, []edit{{fencedTermsGo, " || !l.Live(now)", ""}}},
	{"fence: CronJobs are put to sleep until a term begins", woken, []edit{{fencedTermsGo, " || l.AcquireTime.After(now)", ""}}},
	{"fence: what has run is run again", woken, []edit{{cronJobsGo, " || !o.scheduledUpTo().Before(upTo) {", " {"}}},
	{"fence: all CronJobs are woken", woken, []edit{{cronJobsGo, " || !selector.Matches(o.Spec.JobTemplate.Metadata.Labels)", " || selector.Empty() && false"}}},
	{"fence: CronJobs are woken once", woken, []edit{{schedulesGo, "if is.times == 2 ||", "if is.times == 1 ||"}}},
	{"fence: CronJobs are woken twice at once", woken, []edit{{schedulesGo, "next: now + wakeAgain}", "next: now}"}}},
	{"fence: CronJobs are woken by no news", woken, []edit{{schedulesGo, "		upTo = upTo.Add(-time.Second) // so that the second time is news\n", "		upTo = upTo.Add(0)\n"}}},
	{"fence: the tick at the beginning of a term is left out", woken, []edit{{schedulesGo, "time.UnixMicro(t.began - 1)", "time.UnixMicro(t.began)"}}},
}
