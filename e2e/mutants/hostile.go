package main

const (
	hostileAnswersGo = "hub/fleet/transport/answers.go"
	cleanGo          = "hub/fleet/transport/clean.go"
	meterGo          = "hub/fleet/transport/meter.go"
	retryGo          = "hub/fleet/transport/retry.go"
	transportGo      = "hub/fleet/transport/transport.go"
	kubeconfigGo     = "hub/fleet/transport/kubeconfig.go"
	keysGo           = "hub/fleet/transport/keys.go"
	weighGo          = "hub/fleet/transport/weigh.go"
	slimGo           = "hub/fleet/secrets/slim.go"
	sharesGo         = "hub/fleet/secrets/shares.go"
	recordBoundsGo   = "hub/controller/bounds.go"
	strangersGo      = "hub/controller/events.go"
	acksBoundsGo     = "hub/publish/acksbounds.go"
	readerNewsGo     = "hub/worker/readernews.go"
)

// What must notice the mutants of the bounds on what comes from outside.
var (
	weighed   = tests{"./hub/fleet/transport", "^(TestAnAnswerThat|TestHonestAnswers|TestAnEndlessWatch|TestAMeterDrains|TestTooManyRegistrations|TestWhatTenantsFill)"}
	parsed    = tests{"./hub/fleet/transport", "^(TestParseKubeconfig|TestHowMuchMemory|TestWhichKeys|TestWithAToken)"}
	cleaned   = tests{"./hub/fleet/transport", "^(TestWhatAMemberSays|TestAnErrorOf|TestNoHeader|TestTokensThat)"}
	paced     = tests{"./hub/fleet/transport", "^TestWhatFailsAgain"}
	slimmed   = tests{"./hub/fleet/secrets", "^(TestOfASecret|TestSecretsOfOthers)"}
	shared    = tests{"./hub/fleet/secrets", "^(TestOfASecret|TestWhoseKubeconfigs|TestARefused|TestWhatAWatch|TestADeletionOf|TestAKubeconfig|TestASecretThatIsGone)"}
	starved   = tests{"./hub/fleet", "^(TestSecretsWithoutClusters|TestNewerClusters)"}
	crowded   = tests{"./hub/controller", "^TestARecord(WithThousands|OfMany)"}
	strangers = tests{"./hub/controller", "^TestClustersThatWereNeverConnected"}
	readers   = tests{"./hub/publish", "^(TestAboveABound|TestAPartOf|TestWhatIsGone|TestARegistrationThat|TestAConfirmation|TestOfARegistration)"}
	toldOfRg  = tests{"./hub/publish", "^TestWhoMakesHandoversSlow"}
	newsOfRg  = tests{"./hub/worker", "^TestReadersThatComeAndGo"}
	guardOfRg = tests{"./hub/guard", "^(TestEverythingInARegistration|TestARegistrationNames|TestAReaderThatLoses)"}
)

// hostile are the mutants of the bounds on what members, their tenants and Secrets may cost the hub.
var hostile = []mutant{
	// Every byte that a member sends is counted, and weighed before it is decoded.
	{"hostile: answers are not weighed", weighed, []edit{{hostileAnswersGo, "if weight > maxAnswerWeight {", "if false {"}}},
	{"hostile: answers have no bound", weighed, []edit{{hostileAnswersGo, "	case !whole:", "	case !whole && false:"}}},
	{"hostile: events are not weighed", weighed, []edit{{hostileAnswersGo, "	if weight > maxEventWeight {\n		e.left = nil", "	if false {\n		e.left = nil"}}},
	{"hostile: an event may announce any length", weighed, []edit{{hostileAnswersGo, "if length > maxEvent {", "if false {"}}},
	{"hostile: an event may have no end", weighed, []edit{{hostileAnswersGo, "case len(e.event) > maxEvent:", "case false:"}}},
	{"hostile: watches are not counted", weighed, []edit{{hostileAnswersGo, "over := e.meter.add(weight)", "over := e.meter.add(0)"}}},
	{"hostile: a meter never drains", weighed, []edit{{meterGo, "max(0, m.level-drained)", "m.level"}}},
	{"hostile: a meter is never full", weighed, []edit{{meterGo, "full := m.level > m.burst", "full := false"}}},
	{"hostile: too many registrations disconnect a member", weighed, []edit{{transportGo, "		return l.Readers\n", "		return l.Meter\n"}}},
	{"hostile: what tenants fill disconnects a member", weighed, []edit{{transportGo, "forTenants{l, NewReadersMeter(l.Timers)}", "forTenants{l, l.Meter}"}}},
	{"hostile: what tenants fill has the bound of caches", weighed, []edit{{transportGo, "maxBody: MaxTenantsBody, ", "maxBody: t.of.maxBody, "}}},
	{"hostile: items of a list weigh nothing", weighed, []edit{{weighGo, "w += objectWeight + weighObject(content)", "w += weighFields(nil)"}}},
	{"hostile: owners of an object weigh nothing", weighed, []edit{{weighGo, "		case n <= lastObjectField:\n			w += weighFields(content)", "		case n < metadataField:\n			w += weighFields(content)"}}},
	{"hostile: JSON objects weigh nothing", weighed, []edit{{weighGo, "w += braceWeight * int64(", "w += 0 * int64("}}},

	// A kubeconfig is bounded before it is parsed.
	{"hostile: a kubeconfig has anchors", parsed, []edit{{kubeconfigGo, "case anchor.Match(data):", "case false:"}}},
	{"hostile: a kubeconfig is as deep as it likes", parsed, []edit{{kubeconfigGo, "case n > maxMarks:", "case n > len(data):"}}},
	{"hostile: a token is as long as it likes", parsed, []edit{{kubeconfigGo, "case len(a.token) > MaxToken:", "case false:"}}},
	{"hostile: an administrator's certificate goes with a token", parsed, []edit{{kubeconfigGo, "a.cert, a.key, a.pair, a.token = \"\", \"\", nil, token", "a.cert, a.key, a.token = \"\", \"\", token"}}},
	{"hostile: a CA has a key of any size", parsed, []edit{{keysGo, "ok && k.N.BitLen() > maxRSA", "ok && k.N.BitLen() < 0"}}},
	{"hostile: a modulus has any size", parsed, []edit{{keysGo, "key.N.BitLen() > maxRSA || ", ""}}},
	{"hostile: a prime has any size", parsed, []edit{{keysGo, "max(key.P.BitLen(), key.Q.BitLen())", "key.Q.BitLen()"}}},

	// What a member says is clean, and makes the hub wait for seconds at most.
	{"hostile: errors are handed on as they came", cleaned, []edit{{hostileAnswersGo, "	case failed: // what", "	case failed && len(body) < 0: // what"}}},
	{"hostile: a token is shown", cleaned, []edit{{cleanGo, "len(token) >= leastSecret", "false"}}},
	{"hostile: an earlier token is shown", cleaned, []edit{{cleanGo, "range t.earlier {", "range t.earlier[:0] {"}}},
	{"hostile: control characters are shown", cleaned, []edit{{cleanGo, "case unicode.IsGraphic(r):", "case true:"}}},
	{"hostile: an event that ends a watch is not cleaned", cleaned, []edit{{hostileAnswersGo, "if kind == eventError {", "if kind == eventError && false {"}}},
	{"hostile: nor one in JSON", cleaned, []edit{{hostileAnswersGo, "e.event = cleanJSONEvent(e.event, e.clean)", "_ = cleanJSONEvent(nil, e.clean)"}}},
	{"hostile: a member makes the hub wait an hour", cleaned, []edit{{hostileAnswersGo, "shorterWait(wait))", "wait)"}}},
	{"hostile: by the details of a Status", cleaned, []edit{{cleanGo, "min(max(d.RetryAfterSeconds, 0), longestRetryAfter)", "max(d.RetryAfterSeconds, 0)"}}},
	{"hostile: warnings are logged", cleaned, []edit{{hostileAnswersGo, "	resp.Header.Del(\"Warning\") // client-go would log it\n", ""}}},
	{"hostile: a watch that ends at once is no failure", paced, []edit{{retryGo, "if now.Sub(began) < shortWatch && req.Context().Err() == nil {", "if false {"}}},
	{"hostile: what is refused is asked for at once", paced, []edit{{retryGo, "		case resp.StatusCode >= http.StatusBadRequest:\n			p.failed(req.URL.Path, longestRefusal)\n", ""}}},

	// Secrets.
	{"hostile: large kubeconfigs are kept", shared, []edit{{sharesGo, "k.size > MaxKubeconfig {", "false {"}}},
	{"hostile: any number of kubeconfigs is kept", shared, []edit{{sharesGo, "	if s.sum <= maxFleet && !s.short {", "	if true {"}}},
	{"hostile: kubeconfigs are kept that no Cluster needs", shared, []edit{{sharesGo, "	since, ok := s.needed(full.Name)\n	if !ok {\n		return\n	}\n", "	since, _ := s.needed(full.Name)\n"}}},
	{"hostile: the kubeconfigs of newer Clusters come first", shared, []edit{{sharesGo, "s.all[a].since.Compare(s.all[b].since)", "s.all[b].since.Compare(s.all[a].since)"}}},
	{"hostile: whoever writes last is refused", shared, []edit{{sharesGo, "s.all[a].since.Compare(s.all[b].since), strings.Compare(a, b)", "strings.Compare(a, b)"}}},
	{"hostile: a refused kubeconfig takes memory", shared, []edit{{sharesGo, "k.why, k.unread, k.value = tooMany, false, nil", "k.why, k.unread = tooMany, false"}}},
	{"hostile: a refused kubeconfig stays so", shared, []edit{{sharesGo, "	if s.sum <= maxFleet && !s.short {", "	if s.sum <= maxFleet {"}}},
	{"hostile: a deleted Secret takes room", shared, []edit{{slimGo, "		s.forget(secret)\n", ""}}},
	{"hostile: a Secret that was deleted unseen takes room", shared, []edit{{sharesGo, "		if !there[name] {", "		if false {"}}},
	{"hostile: an old kubeconfig replaces a new one", shared, []edit{{sharesGo, "k == nil || k.unread {", "k == nil || k.uid != \"\" {"}}},
	{"hostile: the deletion of an old Secret drops a new one", shared, []edit{{sharesGo, "k != nil && k.uid == gone.UID {", "k != nil {"}}},
	{"hostile: a Cluster that is gone takes room", starved, []edit{{"hub/fleet/runner.go", "	case apierrors.IsNotFound(err):\n		r.secrets.Release(k.Fleet, k.Name+kubeconfigSuffix)\n", "	case apierrors.IsNotFound(err):\n"}}},
	{"hostile: every Secret is of a Cluster", starved, []edit{{"hub/fleet/runner.go", "	case apierrors.IsNotFound(err):\n		r.secrets.Release(k.Fleet, k.Name+kubeconfigSuffix)\n", "	case apierrors.IsNotFound(err):\n"}, {"hub/fleet/grants.go", "err == nil && readSpec(&c, nil, nil).keeps()\n}\n\n// clusters", "err == nil || c.Name == \"\"\n}\n\n// clusters"}}},
	{"hostile: the Secrets of others are kept", slimmed, []edit{{slimGo, "	default:\n		return nil\n", ""}}},
	{"hostile: a Secret may say that it was refused", slimmed, []edit{{slimGo, "	case isKubeconfig(full):\n", "	case isKubeconfig(full):\n		slim.Annotations = full.Annotations\n"}}},

	// Clusters.
	{"hostile: a record counts any number of Clusters", crowded, []edit{{recordBoundsGo, "; left < 0 {", "; left < -1<<40 {"}}},
	{"hostile: a status shows any number of Clusters", crowded, []edit{{recordBoundsGo, "fits[i] = size <= left;", "fits[i] = size <= 1<<40;"}}},
	{"hostile: what JSON escapes counts as one byte", crowded, []edit{{recordBoundsGo, "			size += len(`\\u0000`) - 1\n", ""}}},
	{"hostile: Clusters hide those that lead", crowded, []edit{{recordBoundsGo, "first == (c.Eligible || c.Name == leader)", "first == (c.Name == leader)"}}},
	{"hostile: Clusters hide the leader", crowded, []edit{{recordBoundsGo, "first == (c.Eligible || c.Name == leader)", "first == c.Eligible"}}},
	{"hostile: clusters that were never connected hurry decisions", strangers, []edit{{strangersGo, "		wait = strangersWait\n", "		wait = 0\n"}}},
	{"hostile: the loss of a cluster waits", strangers, []edit{{strangersGo, "s.connected = s.connected || m.Connected", "s.connected = m.Connected"}}},

	// Registrations in the hub.
	{"hostile: a member may have any number of registrations", readers, []edit{{acksBoundsGo, "together.registrations >= MaxRegistrations", "false"}}},
	{"hostile: a member's registrations may be of any size", readers, []edit{{acksBoundsGo, "together.bytes+e.bytes > maxRegistrationsBytes", "false"}}},
	{"hostile: an account may have any number of registrations", readers, []edit{{acksBoundsGo, "account.registrations >= maxOfAccount", "false"}}},
	{"hostile: an account's registrations may be of any size", readers, []edit{{acksBoundsGo, "account.bytes+e.bytes > maxBytesOfAccount", "false"}}},
	{"hostile: who is not kept is not waited for", readers, []edit{
		{acksGo, " || r.full != \"\" // an empty", " // an empty"}, {acksGo, "q.unanswerable || r.full != \"\"; q", "q.unanswerable; q"}}},
	{"hostile: nonsense holds up every namespace", readers, []edit{{acksBoundsGo, "lease.Registration{Namespaces: wire.ReadClaims(l)}", "lease.Registration{}"}}},
	{"hostile: a confirmation in the future is believed", readers, []edit{{acksBoundsGo, "err == nil && reader.Confirmed.After(now.Wall.Add(skew))", "false"}}},

	{"hostile: too many readers that a watch shows are not told", toldOfRg, []edit{{acksListGo, "was := p.toldFull", "was := p.acks.full"}}},

	// What registrations have the hub write.
	{"hostile: each reader that comes or goes is an event", newsOfRg, []edit{{readerNewsGo, "if w.news.events.TryAccept() {", "if w.news.events.TryAccept() || true {"}}},
	{"hostile: each reader that comes or goes is a decision", newsOfRg, []edit{{readerNewsGo, "pause(ctx, readerNewsEvery)", "pause(ctx, 0)"}}},
	{"hostile: news of readers is told again and again", newsOfRg, []edit{{readerNewsGo, "		w.news.namespaces = nil\n", ""}}},

	// Registrations in the member.
	{"hostile: the policy bounds no labels", guardOfRg, []edit{{registrationsGo, "maxLabels      = 16", "maxLabels      = 1600"}}},
	{"hostile: the policy bounds no annotations", guardOfRg, []edit{{registrationsGo, "maxAnnotations = 8", "maxAnnotations = 800"}}},
	{"hostile: the policy bounds no finalizers", guardOfRg, []edit{{registrationsGo, "maxFinalizers  = 2", "maxFinalizers  = 200"}}},
	{"hostile: the policy lets a reader name what it may not watch", guardOfRg, []edit{{registrationsGo, ".check('watch').allowed())\", claims, n", ".check('get').allowed() || true)\", claims, n"}}},
	{"hostile: the last namespaces are not asked about", guardOfRg, []edit{{registrationsGo, "for first := 0; first < maxAsked; first", "for first := 0; first < maxAsked-perExpression; first"}}},
}
