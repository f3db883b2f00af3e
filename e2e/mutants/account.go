package main

const (
	accountGo      = "hub/account/account.go"
	fleetAccountGo = "hub/fleet/account.go"
	fleetLeaveGo   = "hub/fleet/leave.go"
)

// What must notice the mutants of the hub's own account in a member.
var (
	installing  = tests{"./hub/account", "^Test"}
	working     = tests{"./hub/fleet", "^(TestAnAdministrators.*|TestAStandbyRequests.*|TestAMemberThatRefusesTokens.*|TestDeletedCluster.*|TestMemberWithoutLabel.*)$"}
	repairing   = tests{"./hub/fleet", "^TestAnAccountThatIsLostIsInstalledAnew$"}
	leftBehind  = tests{"./hub/fleet", "^TestAnAccountThatAnEarlierProcessHasLeftIsUsedAtOnceAndRepairedAfterwards$"}
	rights      = tests{"./hub/fleet", "^(TestWhichRefusalsAre.*|TestWhatARefusalOfTheAccountCosts)$"}
	parting     = tests{"./hub/fleet", "^(TestForHowLongTheAccount.*|TestAMemberThatIsLeftIs.*|TestAMemberThatRefusesToRemove.*)$"}
	complaining = tests{"./hub/fleet", "^(TestComplaintsAboutTheAccount.*|TestWhatIsLoggedOfComplaints.*|TestWhatFailsAboutTheAccount.*)$"}
	pausing     = tests{"./hub/fleet", "^(TestAnAccountThatCannotBe.*|TestOnlyAPinnedMember.*)$"}
	renewing    = tests{"./hub/fleet", "^TestWhenTheMemberIsAskedAboutTheAccount$"}
)

// accounts are the mutants of least privilege in members.
var accounts = []mutant{
	{"account: a token is told", installing, []edit{{accountGo, "func (Credentials) GoString() string { return \"[token]\" }", "func (c Credentials) GoString() string { return c.Token }"}}},
	{"account: rights that others have added stay", installing, []edit{{accountGo, "	if err == nil {\n		err = apply(ctx, admin.RbacV1().ClusterRoles().Patch, name, role)\n	}\n", "	if err == nil {\n		if _, e := admin.RbacV1().ClusterRoles().Get(ctx, name, metav1.GetOptions{}); e != nil {\n			err = apply(ctx, admin.RbacV1().ClusterRoles().Patch, name, role)\n		}\n	}\n"}}},
	{"account: two hubs share one", installing, []edit{{accountGo, "sha256.Sum256([]byte(mark))", "sha256.Sum256([]byte(mark[:0]))"}}},
	{"account: something is left behind", installing, []edit{{accountGo, "		{string(a), admin.RbacV1().ClusterRoles().Delete},\n", ""}}},
	{"account: anybody is an administrator", installing, []edit{{accountGo, "	return review.Status.Allowed, nil", "	return review != nil, nil"}}},
	{"account: the member says how long a token lasts", installing, []edit{{accountGo, "life = min(life, time.Duration(granted)*time.Second)", "life = time.Duration(granted) * time.Second"}}},
	{"account: the administrator's kubeconfig is used for everything", working, []edit{{fleetAccountGo, "	case has, !writes, c.account.asked", "	case true, has, !writes, c.account.asked"}}},
	{"account: a standby installs", working, []edit{{fleetAccountGo, "err := c.keepAccount(ctx, writes && pinned)", "err := c.keepAccount(ctx, true)"}}},
	{"account: it stays when a Cluster leaves", working, []edit{{fleetLeaveGo, "	err := c.removeAccount(ctx)\n", "	err := error(nil)\n"}}},
	{"account: what a member refuses to remove stays", tests{"./hub/fleet", "^TestThePinStaysUntilNothingIsLeftOfTheAccount$"}, []edit{{fleetLeaveGo, "		if !c.removedAccount(ctx, s) {", "		if !c.removedAccount(ctx, s) && !writes {"}}},
	{"account: a member that is silent holds its Cluster for ever", parting, []edit{{fleetLeaveGo, "	return answered || now.Boot-c.leftAt.Boot < ForgottenAfter", "	return answered || now.Boot >= c.leftAt.Boot"}}},
	{"account: a member that is left is probed by writes", parting, []edit{{"hub/fleet/probe.go", "!now.spec.moved && !now.leaving", "!now.spec.moved"}}},
	{"account: work goes on in a member that it is taken out of", parting, []edit{{fleetLeaveGo, "go with the account.\n		c.end()\n", "go with the account.\n"}}},
	{"account: a member that refuses to remove it is asked each second", parting, []edit{{fleetLeaveGo, "			return c.leavePause(), false\n", "			return leavePoll, false\n"}}},
	{"account: nobody is shown that a member refuses to remove it", parting, []edit{{fleetLeaveGo, "	if answer, ok := answerOf(err); ok {", "	if answer, ok := answerOf(err); ok && answer == nil {"}}},
	{"account: what cannot be removed keeps the rest", installing, []edit{{accountGo, "			errs = append(errs, fmt.Errorf(\"remove the account of the hub: %w\", orRefused(err)))\n", "			return fmt.Errorf(\"remove the account of the hub: %w\", errors.Join(append(errs, orRefused(err))...))\n"}}},
	{"account: a refusal is not noticed", repairing, []edit{{fleetAccountGo, "if m.state.account && !m.state.accountRefused {", "if m.state.account && m.state.accountRefused {"}}},
	{"account: rights that are gone are not noticed", repairing, []edit{{"hub/fleet/probe.go", "		p.refuseAccount() // its rights may be gone\n", ""}}},
	{"account: a token is renewed when it has expired", renewing, []edit{{fleetAccountGo, "now.Boot >= a.credentials.Renew)", "now.Boot >= a.credentials.Expire)"}}},
	{"account: a new hub keeps the rights of an old one", renewing, []edit{{fleetAccountGo, "!has || mayInstall && !a.installed ||", "!has ||"}}},
	{"account: one that was left is repaired before it is used", leftBehind, []edit{{fleetAccountGo, "	if install && a.refused && !a.installed {", "	if install && !a.installed {"}}},
	{"account: one that was left is never repaired", leftBehind, []edit{{fleetAccountGo, "			return c.installAccount(ctx, admin)\n", "			return nil\n"}}},
	{"account: rights to Leases that are gone are not noticed", rights, []edit{{"hub/fleet/state.go", "= m.requestSent, m.missRights, p.timers", "= m.requestSent, nil, p.timers"}}},
	{"account: every refusal is about its rights", rights, []edit{{fleetAccountGo, "	if !missingRights.MatchString(words) &&", "	if words == \"\" && !missingRights.MatchString(words) &&"}}},
	{"account: one that lacks rights loses its token", rights, []edit{{fleetAccountGo, "	a.installed = false\n	c.change(", "	a.installed, a.credentials = false, account.Credentials{}\n	c.change("}}},
	{"account: it is repaired all the time", rights, []edit{{fleetAccountGo, "|| now.Boot < a.complaintsAt() {", "{"}}},
	{"account: each complaint of a member is taken at once", complaining, []edit{{fleetAccountGo, "	a.hears = now.Boot + accountPause\n", ""}}},
	{"account: a standby says that it repairs", complaining, []edit{{fleetAccountGo, "} else if a.installed && writes {", "} else if a.installed {"}}},
	{"account: a repair that fails is logged for ever", complaining, []edit{{fleetAccountGo, "	if failure == c.account.failure {\n		return\n	}\n", ""}}},
	{"account: a new token repairs nothing", tests{"./hub/fleet", "^TestWhatNoAnswerShowsOfTheAccountIsPutRightWithTheNextToken$"}, []edit{{fleetAccountGo, "	if has {\n		a.installed = false", "	if err == nil && !has && has {\n		a.installed = false"}}},
	{"account: a step that does not look after it hastens the next one", pausing, []edit{{fleetAccountGo, "!a.administrator || !c.tends {", "!a.administrator {"}}},
	{"account: a step that may not install it hastens the next one", pausing, []edit{{fleetAccountGo, "!a.installed && c.installs &&", "!a.installed &&"}}},
	{"account: an API server that starts deposes the leader", tests{"./hub/publish", "^TestAnswers$"}, []edit{{answerGo, "l.refusedSince+l.timings.Patience", "l.refusedSince"}}},
	{"account: refusals of long ago depose the leader", tests{"./hub/publish", "^TestAnswers$"}, []edit{{answerGo, "			l.refusedSince, l.writtenAt = 0, s.decided\n", "			l.writtenAt = s.decided\n"}}},
	{"account: a leader that is refused for long stays", tests{"./hub/publish", "^TestAnswers$"}, []edit{{answerGo, "return at >= l.refusedSince+l.timings.Patience", "return at < 0"}}},
	{"account: a token that does not count any more deposes the leader", tests{"./hub/publish", "^Test(Answers|WhatLeavesOpen.*)$"}, []edit{{answerGo, "== refused && !apierrors.IsUnauthorized(err) {", "== refused {"}}},
}
