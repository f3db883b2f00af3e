package integration

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"testing"
	"time"

	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/seal"
)

// alarm is an alert that a fault raises.
type alarm struct {
	alert, labels string // its name, and the labels of what it is about
	series        string // by which a scrape shows the fault
	shows         func(value float64) bool
}

// alertDrill causes faults at once, and mends them.
type alertDrill struct {
	name string
	// cause and mend return when that is done. The hub may notice it later.
	cause, mend func()
	alarms      []alarm
	// steady is in how many scrapes in a row the hub shows all of the faults: for so many seconds.
	steady int
	// lasts is how long the faults last on promtool's clock after that.
	lasts time.Duration
}

// alertWorld is a world whose metrics are recorded. Of its namespaces people fail manual over, and n comes later.
type alertWorld struct {
	*world
	*recording
	a, t, manual string
	clock        *wrongClock // of west
}

func newAlertWorld(t *testing.T) *alertWorld {
	timings := harness.PolicyTimings(10*time.Second, time.Second, 5*time.Second, epsilon)
	w := newWorld(t, timings, map[string]string{"east": "100"})
	w.allow("fencing", "east", "west")
	clock, kubeconfig := w.clockOf("west")
	w.addCluster("west", "50", kubeconfig)
	w.addCluster("south", "10", w.kubeconfigFor("south", w.account("south", "hub", w.memberRules())))
	is := &alertWorld{world: w, recording: w.record(), clock: clock,
		a: w.namespace("a", all...), t: w.namespace("t", all...), manual: w.namespace("manual", all...)}
	p, manual := w.NewPolicy("p", is.a, is.t, w.Fleet+"-n"), w.NewPolicy("manual", is.manual)
	p.Spec.InitialDelaySeconds = ptr.To[int32](1)
	manual.Spec.InitialDelaySeconds, manual.Spec.Failover = ptr.To[int32](1), v1alpha1.Manual
	w.Must(w.Hub.Create(t.Context(), p))
	w.Must(w.Hub.Create(t.Context(), manual))
	return is
}

func (w *alertWorld) drills() []alertDrill {
	is := func(want float64) func(float64) bool { return func(v float64) bool { return v == want } }
	isThere := func(v float64) bool { return !math.IsNaN(v) }
	isLate := func(v float64) bool { return v > 0.8 }
	inDays := func(v float64) bool { return time.Until(time.Unix(int64(v), 0)) < 72*time.Hour }
	member := func(metric, member string) string {
		return fmt.Sprintf(`%s{fleet=%q,member=%q}`, metric, w.Fleet, member)
	}
	namespace := func(name string) string { return fmt.Sprintf(`namespace=%q`, name) }
	policy := func(name, kind string) string {
		return fmt.Sprintf(`leasecast_policy_condition{condition=%q,fleet=%q,policy=%q}`, kind, w.Fleet, name)
	}
	record := func(name, kind string) string {
		return fmt.Sprintf(`leasecast_namespace_condition{condition=%q,fleet=%q,namespace=%q}`, kind, w.Fleet, name)
	}
	away := func(name string) string {
		return fmt.Sprintf(`leasecast_member_state{fleet=%q,member=%q,state="Unreachable"}`, w.Fleet, name)
	}
	nobody := func(name string, state v1alpha1.RecordState) string {
		return fmt.Sprintf(`leasecast_namespace_leader_info{fleet=%q,leader="",namespace=%q,state=%q}`, w.Fleet, name, state)
	}
	return []alertDrill{{
		name: "what operators have forgotten", lasts: 25 * time.Hour, steady: 2,
		cause: func() {
			until := time.Now().Add(30 * time.Hour).UTC().Format(time.RFC3339)
			w.freeze(w.a, until)
			w.drain("south", until)
			expiring, err := w.Servers.Member("east").UserConfigUntil(time.Now().Add(48*time.Hour), "old", "system:masters")
			w.Must(err)
			w.rotate("east", w.kubeconfigFor("east", expiring))
		},
		mend: func() {
			w.freeze(w.a, "")
			w.drain("south", "")
			w.rotate("east", w.kubeconfig("east"))
		},
		alarms: []alarm{
			{"LeasecastFreezeForgotten", namespace(w.a), record(w.a, v1alpha1.ConditionFrozen), is(1)},
			{"LeasecastDrainForgotten", `member="south"`,
				member("leasecast_member_drained_until_timestamp_seconds", "south"), isThere},
			{"LeasecastKubeconfigExpires", `member="east"`,
				member("leasecast_kubeconfig_expiry_timestamp_seconds", "east"), inDays},
		},
	}, {
		name: "what is wrong in clusters, and with a policy", lasts: 10 * time.Minute, steady: 16,
		cause: func() {
			w.account("south", "hub", w.rulesWithout("admissionregistration.k8s.io"))
			w.removeGuard("south")
			w.editPolicy("p", func(s *v1alpha1.LeadershipPolicySpec) { s.Fencing = fencing.DeepCopy() })
			w.namespace("n", "south")
			w.Policy("late", w.a)
			w.clock.set(2 * time.Second)
			w.secondHub("west", w.t)
		},
		mend: func() {
			w.account("south", "hub", append(w.memberRules(), rules(w.world, "../../config/fencing/hub_role.yaml")...))
			w.deletePolicy("late")
			w.clock.set(0)
			w.Must(w.Members["west"].Delete(w.T.Context(), must.Get(w.LeaseIn("west", w.t))))
		},
		alarms: []alarm{
			{"LeasecastGuardNotInForce", `member="south"`, member("leasecast_guard_in_force", "south"), is(0)},
			{"LeasecastFenceNotInForce", `policy="p"`, policy("p", v1alpha1.ConditionFencesInForce), is(0)},
			{"LeasecastNobodyLeads", namespace(w.Fleet + "-n"), nobody(w.Fleet+"-n", v1alpha1.StateVacant), is(1)},
			{"LeasecastPolicyNotInEffect", `policy="late"`, policy("late", v1alpha1.ConditionAccepted), is(0)},
			{"LeasecastClockOff", `policy="p"`, policy("p", v1alpha1.ConditionClocksAgree), is(0)},
			{"LeasecastClockOff", `policy="manual"`, policy("manual", v1alpha1.ConditionClocksAgree), is(0)},
			{"LeasecastClockOff", `policy="late"`, policy("late", v1alpha1.ConditionClocksAgree), is(0)},
			{"LeasecastTwoHolders", "", fmt.Sprintf(`leasecast_contested_namespaces{fleet=%q}`, w.Fleet), is(1)},
		},
	}, {
		name: "a leader that changes again and again, and two clusters of three that are lost", lasts: 3 * time.Minute,
		steady: 11,
		cause: func() {
			for _, to := range []string{"west", "east", "west", "south", "east"} {
				w.order(w.a, to)
				w.Leads(to, w.a, w.ordered(), all...)
				w.awaitScrape()
			}
			w.Servers.Member("east").Proxy().BlackHole()
			w.Servers.Member("south").Proxy().BlackHole()
			w.Leads("west", w.a, w.lost(), "west")
		},
		mend: w.reconnect,
		alarms: []alarm{
			{"LeasecastFlapping", namespace(w.a), "", nil},
			{"LeasecastFailedOver", "", "", nil},
			{"LeasecastFailoverPending", namespace(w.manual), record(w.manual, v1alpha1.ConditionFailoverPending), is(1)},
			{"LeasecastLeaderAway", `member="east"`, "", nil},
			{"LeasecastLeaderAway", `member="south"`, "", nil},
			{"LeasecastRenewalsLate", `member="east"`, member("leasecast_renewal_age_ratio", "east"), isLate},
			{"LeasecastRenewalsLate", `member="south"`, member("leasecast_renewal_age_ratio", "south"), isLate},
			{"LeasecastMemberNotConnected", `member="east"`, away("east"), is(1)},
			{"LeasecastMemberNotConnected", `member="south"`, away("south"), is(1)},
			{"LeasecastMostUnreachable", `policy="p"`, policy("p", v1alpha1.ConditionClustersReachable), is(0)},
			{"LeasecastMostUnreachable", `policy="manual"`, policy("manual", v1alpha1.ConditionClustersReachable), is(0)},
		},
	}, {
		name: "no hub", lasts: 10 * time.Minute, steady: 3,
		cause: func() { w.StopHub() },
		mend:  w.startHub,
		alarms: []alarm{
			{"LeasecastHubWithoutLeader", "", "leasecast_hub_elected", math.IsNaN},
		},
	}}
}

// secondHub has another hub of the same seal grant a namespace in a member for a minute.
func (w *alertWorld) secondHub(member, namespace string) {
	w.Eventually("the other hub writes", soon, func() error {
		l := must.Get(w.LeaseIn(member, namespace))
		c, _ := wire.Read(l)
		c.Hub, c.Holder, c.RenewTime, c.Duration = "another", c.Cluster, time.Now(), time.Minute
		must.Do(seal.Write(w.sealKey(), c, l))
		return w.Members[member].Update(w.T.Context(), l)
	})
}

// reconnect ends all faults of the network.
func (w *alertWorld) reconnect() {
	for _, m := range all {
		w.Servers.Member(m).Proxy().Heal()
	}
}

// awaitScrape waits for a scrape that begins from now on.
func (w *alertWorld) awaitScrape() {
	before := len(w.scrapes())
	w.Eventually("the metrics are scraped", time.Minute, func() error {
		return must.ErrorIf(len(w.scrapes()) < before+2, "not yet")
	})
}

// await waits until so many scrapes in a row show the faults, or none of them. It returns the number of the last one.
func (w *alertWorld) await(alarms []alarm, want bool, scrapes int) (last int) {
	w.awaitScrape()
	w.Eventually(fmt.Sprintf("the metrics show the faults: %v", want), 2*time.Minute, func() error {
		all := w.scrapes()
		for n := range min(scrapes, len(all)) {
			s := all[len(all)-1-n]
			for _, a := range alarms {
				if a.shows != nil && a.shows(s.value(a.series)) != want {
					return fmt.Errorf("%s: %s is %v", a.alert, a.series, s.value(a.series))
				}
			}
			if !want {
				must.Do(w.isWell(s))
			}
		}
		last = len(all) - 1
		return nil
	})
	return last
}

// isWell returns an error unless a scrape shows a hub that is elected and connected to all members, and no fence that
// is missing.
func (w *alertWorld) isWell(s scrape) error {
	if s.value("leasecast_hub_elected") != 1 {
		return fmt.Errorf("no hub is elected")
	}
	for _, m := range all {
		if s.value(fmt.Sprintf(`leasecast_member_state{fleet=%q,member=%q,state="Connected"}`, w.Fleet, m)) != 1 {
			return fmt.Errorf("%s is not connected: %v", m, s.series)
		}
	}
	fences := fmt.Sprintf(`leasecast_policy_condition{condition=%q,fleet=%q,policy="p"}`,
		v1alpha1.ConditionFencesInForce, w.Fleet)
	if s.value(fences) == 0 {
		return fmt.Errorf("a fence is not in force again")
	}
	return nil
}

// Each alert fires while its cause lasts, and clears after it. The causes are real, and promtool reads what the metrics
// port had. What it had last is held on promtool's clock, so that a day takes seconds.
func TestEachAlertFiresAndClearsInADrillOfItsCause(t *testing.T) {
	t.Parallel()
	w := newAlertWorld(t)
	w.startHub()
	for _, ns := range []string{w.a, w.t, w.manual} {
		w.Leads("east", ns, firstElection, all...)
	}
	drilled, drills := map[string]bool{}, w.drills()
	for _, d := range drills {
		for _, a := range d.alarms {
			drilled[a.alert] = true
		}
	}
	content := musttest.Get(os.ReadFile("../../config/prometheus/rules.yaml"))(t)
	for _, match := range regexp.MustCompile(`(?m)^  - alert: (\w+)$`).FindAllSubmatch(content, -1) {
		if !drilled[string(match[1])] {
			t.Errorf("no drill raises %s", match[1])
		}
	}
	for _, d := range drills {
		began := time.Now()
		before := w.await(d.alarms, false, 2)
		d.cause()
		during := w.await(d.alarms, true, d.steady)
		d.mend()
		after := w.await(d.alarms, false, 2)
		t.Logf("%s: %v, %d scrapes", d.name, time.Since(began).Round(time.Second), after-before)

		var line timeline
		var fires []string
		for _, a := range d.alarms {
			labels := fmt.Sprintf(`{alertname=%q, fleet=%q, %s}`, a.alert, w.Fleet, a.labels)
			if a.series == "leasecast_hub_elected" {
				labels = fmt.Sprintf(`{alertname=%q}`, a.alert) // there is no fleet without a hub
			}
			fires = append(fires, labels)
		}
		// What changed in the drill before is older than ten minutes, and then what changed in this one older than an hour.
		calm := firing(line.play(before, before, 15*time.Minute))
		raised := firing(line.play(before+1, during, d.lasts), fires...)
		cleared := firing(line.play(during+1, after, 70*time.Minute))
		if err := w.promtool(d.name, w.inputSeries(line), calm, raised, cleared); err != nil {
			t.Errorf("%s: %v", d.name, err)
		}
	}
}
