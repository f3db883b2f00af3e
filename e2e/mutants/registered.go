package main

const (
	registrationGo  = "member/registration.go"
	releaseGo       = "member/release.go"
	memberGo        = "member/member.go"
	watchGo         = "member/watch.go"
	capGo           = "member/cap.go"
	sayGo           = "api/lease/registration.go"
	registrationsGo = "hub/guard/registrations.go"
)

// What has to notice a mutant of the member library, and of the guard of registrations.
var (
	reader = tests{"./member", "^Test"}
	guard  = tests{"./hub/guard", "^TestARegistrationIsItsReadersAlone$"}
)

// registered are the mutants of a reader's side of acknowledged handover. The simulation
// has a reader of its own, so the tests of the library have to notice them.
var registered = []mutant{
	{"registered: trust before registering", reader, []edit{
		{releaseGo, "	t.limit.Store(&limit{})\n	t.releases = &releases{", "	t.limit.Store(&limit{none: true})\n	t.releases = &releases{open: true, "},
		{memberGo, "			m.registrar.run(ctx, m.follow)\n", "			all.Go(func() { m.follow(ctx) })\n			m.registrar.run(ctx, m.follow)\n"}}},
	{"registered: Leases are listed before registering", reader, []edit{{memberGo,
		"			m.registrar.run(ctx, m.follow)\n", "			all.Go(func() { m.follow(ctx) })\n			m.registrar.run(ctx, func(ctx context.Context) { <-ctx.Done() })\n"}}},
	{"registered: no consistent read after registering", reader, []edit{{watchGo,
		"metav1.ListOptions{LabelSelector: managed})", "metav1.ListOptions{LabelSelector: managed, ResourceVersion: \"0\"})"}}},
	{"registered: registration named after the Pod", reader, []edit{{registrationGo,
		"	identity := strings.ToLower(rand.Text())\n", "	identity := strings.ToLower(rand.Text())\n	identity, _ = os.Hostname()\n"}}},
	{"registered: registration with an owner", reader, []edit{{registrationGo,
		"Name: \"leasecast-reader-\" + identity}", "Name: \"leasecast-reader-\" + identity, OwnerReferences: []metav1.OwnerReference{{Kind: \"Pod\"}}}"}}},
	{"registered: registration without a finalizer", reader, []edit{{"api/lease/wire/registration.go",
		"	if !slices.Contains(written.Finalizers,", "	if false && !slices.Contains(written.Finalizers,"}}},

	// Confirmed + Duration.
	{"registered: no end at Confirmed + Duration", reader, []edit{
		{releaseGo, "return l.none || l.Permit.Holds(now)", "return l.none || l.Permit != lease.Permit{}"},
		{releaseGo, "return l.Permit.Remaining(now)", "return math.MaxInt64"}}},
	{"registered: its end by the wall clock alone", reader, []edit{{sayGo, "boot: sent.Boot + r.Duration", "boot: sent.Boot + 1<<60"}}},
	{"registered: its end by the monotonic clock alone", reader, []edit{{sayGo, "wall: r.Until()", "wall: r.Until().Add(1 << 60)"}}},
	{"registered: Confirmed counted from the answer", reader, []edit{{registrationGo,
		"	r.member.terms.confirmed(", "	sent = r.member.clock.Now()\n	says.Confirmed = sent.Wall\n	r.member.terms.confirmed("}}},
	{"registered: a late confirmation revives", reader, []edit{
		{releaseGo, "	if t.releases.open && !t.limit", "	if false && !t.limit"}}},
	{"registered: goes on when its registration is deleted", reader, []edit{{registrationGo,
		"	if stored.DeletionTimestamp != nil {\n", "	if false {\n"}}},
	{"registered: goes on when its registration is edited", reader, []edit{
		{registrationGo, "len(r.unsettled) == 0:", "false:"},
		{registrationGo, "|| !slices.ContainsFunc(", "|| false && !slices.ContainsFunc("}}},

	// Release.
	{"registered: release before stop", reader, []edit{{releaseGo, "epoch > 0 && n.finished(now)", "epoch > 0 && (n.finished(now) || true)"}}},
	{"registered: release before work has returned", reader, []edit{{releaseGo, "return len(t.open) == 0 && ", "return "}}},
	{"registered: release before listeners have returned", reader, []edit{{releaseGo, "t.told == 0 && ", ""}}},
	{"registered: release before writes are answered", reader, []edit{{releaseGo, "t.writes == 0 && ", ""}}},
	{"registered: ambiguous write counted as finished", reader, []edit{{releaseGo, "if !known && ", "if false && "}}},
	{"registered: a server error counts as an answer", reader, []edit{{capGo, "settled(err == nil && resp.StatusCode < http.StatusInternalServerError)", "settled(err == nil)"}}},
	{"registered: a write is cut off as its term ends", reader, []edit{{capGo, "	if t.t.terms.waited() {", "	if false {"}}},
	{"registered: trusts an epoch that it has released", reader, []edit{{readerGo, "	case c.Epoch < r.highest:\n		return FallenEpoch\n", ""}}},
	{"registered: releases what nobody took back", reader, []edit{{readerGo, "return r.highest - 1, r.nobodyLeads", "return r.highest, r.highest > 0"}}},
	{"registered: leaves while work goes on", reader, []edit{{registrationGo, "		case finished:\n", "		case finished || true:\n"}}},

	// The admission policy.
	{"guard: anybody registers in another's name", guard, []edit{{registrationsGo,
		"== request.userInfo.username : \" +", "!= '' : \" +"}}},
	{"guard: anybody writes a registration", guard, []edit{{registrationsGo,
		"== request.userInfo.username || variables.", "!= '' || variables."}}},
	{"guard: a Lease becomes a registration", guard, []edit{
		{registrationsGo, "(variables.\" + was + \" && variables.\" + is + \")\"", "(variables.\" + was + \" || variables.\" + is + \")\""}}},
	{"guard: a registration changes hands", guard, []edit{{registrationsGo,
		"					annotation(\"object\", v1alpha1.ReaderAccountAnnotation) + \" == \" + annotation(\"oldObject\", v1alpha1.ReaderAccountAnnotation),\n", ""}}},
}
