package main

const (
	markGo          = "hub/seal/mark.go"
	sealGo          = "hub/seal/seal.go"
	brokenSealGo    = "hub/controller/brokenseal.go"
	servedGo        = "hub/fleet/served.go"
	installationGo  = "hub/controller/installation.go"
	policyStatusGo  = "hub/controller/policystatus.go"
	contradictionGo = "hub/skew/contradiction.go"
	refuseGo        = "hub/tenure/refuse.go"
	hubClockGo      = "hub/controller/hubclock.go"
	offsetsGo       = "hub/fleet/clocks.go"
)

// What must notice the mutants of two installations, and of a hub with a wrong clock.
var (
	marks      = tests{"./hub/seal", "^(TestNeighbour|TestServe)$"}
	emptied    = tests{"./hub/seal", "^TestAnEmptySecret"}
	lostSeal   = tests{"./hub/controller", "^TestPoliciesShow"}
	heldSeal   = tests{"./hub/controller", "^TestASealThatCannotBe"}
	serving    = tests{"./hub/fleet", "^(TestWhoServesAFleet|TestANewMarkIsNews|TestOffsets.*)$"}
	standing   = tests{"./hub/controller", "^TestAnInstallation"}
	ownClock   = tests{"./hub/skew", "^TestContradicted$"}
	yielding   = tests{"./hub/tenure", "^(TestRefuse|TestAnElectorThatIsRefused.*)$"}
	clockWatch = tests{"./hub/controller", "^(TestTheLargestOfAllPolicies.*|TestAReplicaWhoseClock.*)$"}
)

// hubs are the mutants of what a hub does beside another one on its management cluster, and with a clock that all
// clusters contradict.
var hubs = []mutant{
	// Two installations.
	{"hubs: all on a management cluster are one", marks, []edit{{markGo, "ok && of == cluster && mark != own", "false && ok && of == cluster"}}},
	{"hubs: whoever a fleet was moved from serves it for ever", marks, []edit{{markGo, "ok && of == cluster && mark != own", "ok && mark != own && cluster != of+of"}}},
	{"hubs: a hub stands back from itself", marks, []edit{{markGo, "of == cluster && mark != own", "of == cluster"}}},
	{"hubs: a fleet is taken from its hub", marks, []edit{{sealGo, "	if namespace, ok := OtherInstallation(mark, MarkOf(secret)); ok {", "	if namespace, ok := OtherInstallation(mark, MarkOf(secret)); ok && false {"}}},
	{"hubs: a fleet is served without a mark", marks, []edit{{sealGo, "	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.HubAnnotation, mark)\n	return s.writer.Update(ctx, secret)", "	return nil"}}},
	{"hubs: two installations explain one record", tests{"./hub/controller", "^TestWhoExplainsARecord$"}, []edit{{persistGo, "others := seal.OtherInstallation(c.HubID, v.object.Spec.Hub); others {", "neighbours := seal.OtherInstallation(c.HubID, v.object.Spec.Hub); neighbours && false {"}}},
	{"hubs: a new seal has no mark", marks, []edit{{sealGo, "		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, v1alpha1.HubAnnotation, mark)\n		err =", "		err ="}}},
	{"hubs: a seal that moved away is made again", marks, []edit{{sealGo, "apierrors.IsNotFound(err) && ok && moving:", "apierrors.IsNotFound(err) && ok && moving && mark == \"\":"}}},
	{"hubs: a seal that was deleted gets another key", marks, []edit{{sealGo, "		if !ok {\n			known.Key = newKey()\n		}", "		known.Key = newKey()"}}},
	{"hubs: an empty seal gets another key than the one in use", emptied, []edit{{sealGo, "		if known.Key == nil {\n			known.Key = newKey()\n		}", "		known.Key = newKey()"}}},
	{"hubs: a seal that is lost is replaced", emptied, []edit{{sealGo, "if known.Key == nil && isLost(secret) {", "if false {"}}},
	{"hubs: a seal that is lost is replaced by who reads it", emptied, []edit{{sealGo, "isEmpty(&secret) && !isLost(&secret)", "isEmpty(&secret)"}}},
	{"hubs: an empty seal is filled by a mere look", emptied, []edit{{sealGo, "		if !create {\n			return Seal{}, nil\n		}\n", ""}}},
	{"hubs: an empty seal is not written again when it is raised", emptied, []edit{{sealGo, "	if isEmpty(&secret) {\n		fill(&secret, missing)", "	if false {\n		fill(&secret, missing)"}}},
	{"hubs: policies do not show that the seal is lost", lostSeal, []edit{{brokenSealGo, "		return err.Error()", "		return \"\""}}},
	{"hubs: policies do not show that the seal is immutable", heldSeal, []edit{{brokenSealGo, "apierrors.IsInvalid(err), apierrors.IsForbidden(err):", "apierrors.IsForbidden(err):"}}},
	{"hubs: policies do not show that writes of the seal are refused", heldSeal, []edit{{brokenSealGo, "apierrors.IsInvalid(err), apierrors.IsForbidden(err):", "apierrors.IsInvalid(err):"}}},
	{"hubs: one use of the seal hides another that fails", heldSeal, []edit{{"hub/controller/persist.go", "useOfSeal{v.key.Namespace, true}", "useOfSeal{v.key.Namespace, false}"}}},
	{"hubs: each try to raise the seal is an error of its own", heldSeal, []edit{{"hub/controller/reconcile.go", "	case errors.Is(err, errSeal):", "	case errors.Is(err, errSeal) && ctx == nil:"}}},
	{"hubs: a mark that went by mistake is up for grabs", serving, []edit{{servedGo, "now.Boot-s.gone.Boot < otherHubGrace", "now.Boot-s.gone.Boot < 0"}}},
	{"hubs: a mark that went stays for ever", serving, []edit{{servedGo, " && now.Boot-s.gone.Boot < otherHubGrace", ""}}},
	{"hubs: members of another's fleet are written to", serving, []edit{{servedGo, "return !other && p.options.MayWrite()", "return p.options.MayWrite() || other && false"}}},
	{"hubs: a new mark wakes nobody", serving, []edit{{servedGo, "			p.changed.add(key)\n", ""}}},
	{"hubs: another's namespaces are decided on", standing, []edit{{"hub/controller/reconcile.go", "	if c.standsBack(req.Namespace) {", "	if false {"}}},
	{"hubs: another's policies get a status", standing, []edit{{policyStatusGo, "	if c.standsBack(object.Namespace) {", "	if false {"}}},
	{"hubs: renewTimes are chosen in another's fleet", standing, []edit{{installationGo, "c.Tenure.MayWrite(now) && !c.standsBack(fleetName)", "c.Tenure.MayWrite(now)"}}},
	{"hubs: that a hub stands back is said all the time", standing, []edit{{installationGo, "	due := !told || now.Boot-last.Boot >= sayAgain", "	due := !told || now.Boot-last.Boot < sayAgain || now.Boot-last.Boot >= sayAgain"}}},
	{"hubs: that a hub stands back is said once", standing, []edit{{installationGo, "	due := !told || now.Boot-last.Boot >= sayAgain", "	due := !told || now.Boot < last.Boot"}}},

	// A hub whose clock is wrong.
	{"clock: one cluster proves that the hub is wrong", ownClock, []edit{{contradictionGo, "len(offsets) < 2", "len(offsets) < 1"}}},
	{"clock: one of several proves that the hub is wrong", ownClock, []edit{{contradictionGo, "ahead, behind = min(ahead, o.hubAhead()), min(behind, o.hubBehind())", "ahead, behind = max(ahead, o.hubAhead()), max(behind, o.hubBehind())"}}},
	{"clock: behind by ε is useless", ownClock, []edit{{contradictionGo, "	case behind >= d:", "	case behind > eps:"}}},
	{"clock: behind by D still lets somebody lead", ownClock, []edit{{contradictionGo, "	case behind >= d:", "	case behind > d:"}}},
	{"clock: ahead by ε is useless", ownClock, []edit{{contradictionGo, "	case ahead > eps:", "	case ahead >= eps:"}}},
	{"clock: ahead counts with D", ownClock, []edit{{contradictionGo, "	case ahead > eps:", "	case ahead > d && eps > 0:"}}},
	{"clock: what is possible proves that the hub is ahead", ownClock, []edit{{contradictionGo, "return -i.Hi", "return -i.Lo"}}},
	{"clock: what is possible proves that the hub is behind", ownClock, []edit{{contradictionGo, "return i.Lo", "return i.Hi"}}},
	{"clock: a hub without a policy goes", ownClock, []edit{{contradictionGo, " || d <= 0 {", " {"}}},
	{"clock: a hub of no use wins the election", yielding, []edit{{tenureGo, "		return errOver\n	}\n	if err := l.tenure.vetoed(); err != nil {\n		return err\n	}\n	err := l.Interface.Create", "		return errOver\n	}\n	err := l.Interface.Create"}}},
	{"clock: a hub of no use renews the election", yielding, []edit{{tenureGo, "		return errOver\n	}\n	if err := l.tenure.vetoed(); err != nil {\n		return err\n	}\n	err := l.Interface.Update", "		return errOver\n	}\n	err := l.Interface.Update"}}},
	{"clock: a hub of no use keeps the election to itself", yielding, []edit{{tenureGo, "	if r.HolderIdentity == \"\" {\n		// The instant", "	if err := l.tenure.vetoed(); err != nil {\n		return err\n	}\n	if r.HolderIdentity == \"\" {\n		// The instant"}}},
	{"clock: the least D of all policies counts", clockWatch, []edit{{hubClockGo, "max(l.duration, t.Duration)", "t.Duration"}}},
	{"clock: the least ε of all policies counts", clockWatch, []edit{{hubClockGo, "max(l.skew, t.Skew)", "min(max(l.skew, time.Millisecond), t.Skew)"}}},
	{"clock: a policy that is invalid counts", clockWatch, []edit{{policyStatusGo, "t.Validate() == nil {", "t.Duration > 0 {"}}},
	{"clock: a hub goes for a clock that is put right at once", clockWatch, []edit{{hubClockGo, "clockSteps = 2", "clockSteps = 1"}}},
	{"clock: a standby with a wrong clock ends", clockWatch, []edit{{hubClockGo, " || started.Wall.IsZero() {", " {\n			_ = started"}}},
	{"clock: a hub stays until its renew deadline", clockWatch, []edit{{hubClockGo, "		if wrong < clockSteps ||", "		if wrong > 0 ||"}}},
	{"clock: one cluster by two names is two", serving, []edit{{offsetsGo, "ok && owner != key {", "ok && owner != key && false {"}}},
}
