package explain

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/publish"
)

func TestWhoMayLead(t *testing.T) {
	east := func(changes ...func(*decide.Member)) decide.Member {
		m := measured("east", agrees)
		for _, change := range changes {
			change(&m)
		}
		return m
	}
	troubled := func(r reason.Reason) func(*decide.Member) {
		return func(m *decide.Member) { m.Problem = fleet.Problem{Reason: r, Message: "the trouble"} }
	}
	leaseTroubled := func(r reason.Reason) func(*decide.Member) {
		return func(m *decide.Member) { m.Sync = publish.SyncStatus{Problem: r, Message: "the Lease"} }
	}
	deleting := func(m *decide.Member) { m.Deleting = true }
	apart := func(m *decide.Member) { m.Connected = false }
	sick := func(m *decide.Member) {
		m.Verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Recovering, Message: "it recovers"}
	}
	unheard := func(m *decide.Member) {
		m.Verdict = health.Verdict{State: health.Unknown, Reason: reason.Forbidden, Message: "it refuses"}
	}
	bare := func(m *decide.Member) { m.Namespace = nil }
	paused := func(m *decide.Member) { m.Paused = true }
	unguarded := func(m *decide.Member) { m.Unguarded = guard.ErrNotEnforced }
	unfenced := func(m *decide.Member) { m.Unfenced = guard.ErrNotEnforced }
	failing := func(m *decide.Member) { m.Sync.Failing, m.Sync.Failure = reason.Unwritable, "a quota" }
	leads := func(phase election.RecordState, why reason.Reason) election.Record {
		return election.Record{State: phase, Reason: why, Leader: "east", Epoch: 20}
	}
	anotherLeads := election.Record{State: election.Leading, Leader: "west", Epoch: 20}
	const notYet, gone = "the hub has not reached the cluster yet", "the namespace is being deleted there"
	const (
		missing = "the namespace does not exist there, or does not match the policy"
		open    = "the policy that protects the Leases is not in force: the cluster does not refuse yet what it must"
	)
	const stays = "the Cluster is paused: it keeps what it has, and is never newly chosen"
	for name, test := range map[string]struct {
		record election.Record
		member decide.Member
		want   election.Fitness
		why    reason.Reason
		words  string
	}{
		"one that nothing is wrong with": {
			leads(election.Leading, ""), east(), election.Fit, reason.Eligible, "",
		},
		"one with a name that is too long": {
			anotherLeads, east(troubled(reason.NameTooLong)), election.Unfit, reason.NameTooLong, "the trouble",
		},
		"one whose kubeconfig leads elsewhere": {
			anotherLeads, east(troubled(reason.WrongCluster)), election.Unfit, reason.WrongCluster, "the trouble",
		},
		"one that another Cluster speaks of": {
			anotherLeads, east(troubled(reason.DuplicateCluster)), election.Unfit, reason.DuplicateCluster, "the trouble",
		},
		"one that is gone": {
			anotherLeads, east(troubled(reason.Gone)), election.Unfit, reason.Gone, "the trouble",
		},
		"one that is being deleted": {
			anotherLeads, east(deleting), election.Unfit, reason.Deleting, "the Cluster is being deleted",
		},
		"one that is being deleted and is away": {
			anotherLeads, east(deleting, apart), election.Unfit, reason.Deleting, "the Cluster is being deleted",
		},
		"a new kubeconfig that is bad harms nobody": {
			anotherLeads, east(troubled(reason.InvalidKubeconfig)), election.Fit, reason.Eligible, "",
		},
		"one that is not connected": {
			anotherLeads, east(apart), election.Unknown, reason.NeverReached, notYet,
		},
		"one that is not connected, for a reason": {
			anotherLeads, east(apart, troubled(reason.NoKubeconfig)), election.Unknown, reason.NoKubeconfig, "the trouble",
		},
		"one without a publisher": {
			anotherLeads, east(func(m *decide.Member) { m.Publisher = nil }), election.Unknown, reason.NeverReached, notYet,
		},
		"one that was not read": {
			anotherLeads, east(func(m *decide.Member) { m.IsRead = false }), election.Unknown, reason.NeverReached, notYet,
		},
		"one that was not probed": {
			anotherLeads, east(unheard), election.Unknown, reason.Forbidden,
			"it refuses; grant the hub's user there the rules of config/member",
		},
		"one that is ill": {
			anotherLeads, east(sick, bare), election.Unfit, reason.Recovering, "it recovers",
		},
		"one without the namespace": {
			anotherLeads, east(bare), election.Unfit, reason.NamespaceMissing, missing,
		},
		"one where the namespace is being deleted": {
			anotherLeads, east(func(m *decide.Member) { m.Namespace.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }),
			election.Unfit, reason.NamespaceTerminating, gone,
		},
		"one where the namespace is terminating": {
			anotherLeads, east(func(m *decide.Member) { m.Namespace.Status.Phase = corev1.NamespaceTerminating }),
			election.Unfit, reason.NamespaceTerminating, gone,
		},
		"one with somebody else's Lease": {
			anotherLeads, east(leaseTroubled(reason.ForeignLease)), election.Unfit, reason.ForeignLease, "the Lease",
		},
		"one with another hub's Lease": {
			anotherLeads, east(leaseTroubled(reason.OtherHub)), election.Unfit, reason.OtherHub, "the Lease",
		},
		"one with a Lease of another cluster": {
			anotherLeads, east(leaseTroubled(reason.WrongCluster)), election.Unfit, reason.WrongCluster, "the Lease",
		},
		"one that forbids Leases": {
			anotherLeads, east(leaseTroubled(reason.Forbidden)), election.Unfit, reason.Forbidden,
			"the Lease; grant the hub's user there the rules of config/member",
		},
		"one where no Lease can be written": {
			anotherLeads, east(leaseTroubled(reason.Unwritable), unguarded), election.Unfit, reason.Unwritable, "the Lease",
		},
		"a Lease that is not there yet is no problem": {
			anotherLeads, east(leaseTroubled(reason.LeaseLost)), election.Fit, reason.Eligible, "",
		},
		"one of which not all namespaces are seen": {
			anotherLeads, east(troubled(reason.TooManyObjects)), election.Fit, reason.TooManyObjects, "the trouble",
		},
		"one whose watches do not last, because it is read": {
			anotherLeads, east(troubled(reason.Unwatched)), election.Fit, reason.Unwatched, "the trouble",
		},
		"one without the guard": {
			anotherLeads, east(unguarded, paused), election.RetainOnly, reason.Unguarded, open,
		},
		"one without a fence": {
			anotherLeads, east(unfenced, paused), election.RetainOnly, reason.Unfenced,
			"a fence that the policy asks for is not in force: the cluster does not refuse yet what it must",
		},
		"one without the guard and a fence": {
			anotherLeads, east(unguarded, unfenced), election.RetainOnly, reason.Unguarded, open,
		},
		"one that is paused": {
			anotherLeads, east(paused, failing), election.RetainOnly, reason.Paused, stays,
		},
		"one that cannot be written while another leads": {
			anotherLeads, east(failing), election.Unfit, reason.Unwritable, "the last Lease could not be written: a quota",
		},
		"one that could not be written, where nobody ever led": {
			election.Record{State: election.Vacant}, east(failing), election.Fit, reason.Eligible, "",
		},
		"a leader that cannot be written, while its term lasts": {
			leads(election.Leading, reason.Unwritable), east(failing), election.Fit, reason.Eligible, "",
		},
		"a leader that is replaced for its lost Lease": {
			leads(election.Draining, reason.LeaseLost), east(failing), election.Unfit, reason.Unwritable,
			"the last Lease could not be written: a quota",
		},
		"a leader that is replaced because it forbids Leases": {
			leads(election.Draining, reason.Forbidden), east(failing), election.Unfit, reason.Unwritable,
			"the last Lease could not be written: a quota",
		},
		"a leader that is replaced because it takes no Lease": {
			leads(election.Draining, reason.Unwritable), east(failing), election.Unfit, reason.Unwritable,
			"the last Lease could not be written: a quota",
		},
		"a leader that is replaced for something else": {
			leads(election.Draining, reason.PriorityChanged), east(failing), election.Fit, reason.Eligible, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			v := shopView(test.record, test.member)
			cs, _ := candidatesOf(v)
			if got := cs[0]; got.Fitness != test.want || got.Reason != test.why || message(v, &got) != test.words {
				t.Errorf("fitness %v, reason %s (%s); want %v, %s (%s)", got.Fitness, got.Reason, message(v, &got), test.want,
					test.why, test.words)
			}
		})
	}
}

// A leader that takes no part any more is told of until it is replaced; of others nothing is said.
func TestALeaderThatTakesNoPartIsACandidateThatMustNotLead(t *testing.T) {
	outside := func(change func(*decide.Member)) decide.Member {
		m := changed(measured("east", agrees), change)
		m.TakesPart = false
		return m
	}
	for name, test := range map[string]struct {
		member decide.Member
		why    reason.Reason
		words  string
	}{
		"its Cluster is gone": {
			outside(func(m *decide.Member) { m.Gone, m.PriorityReason = true, reason.NoPriority }), reason.Gone,
			"the Cluster does not exist any more",
		},
		"its Cluster has no priority": {
			outside(func(m *decide.Member) { m.PriorityReason = reason.NoPriority }), reason.NoPriority,
			"the Cluster has no label " + v1alpha1.PriorityLabel + ", so it takes no part",
		},
		"it is not selected": {
			outside(func(*decide.Member) {}), reason.NotSelected, "the clusterSelector of the policy does not match the Cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			test.member.Priority = 5
			v := shopView(election.Record{State: election.Leading, Leader: "east", Epoch: 20}, test.member,
				measured("west", agrees))
			cs, _ := candidatesOf(v)
			if len(cs) != 2 {
				t.Fatalf("%d candidates, want 2", len(cs))
			}
			want := election.Candidate{Name: "east", Priority: 5, Fitness: election.Unfit, Reason: test.why}
			if got := cs[0]; got.Candidate != want || message(v, &got) != test.words {
				t.Errorf("%+v, want %+v", got, want)
			}
			v.Policy = nil
			v.Members[1].TakesPart = false
			if cs, _ := candidatesOf(v); len(cs) != 0 {
				t.Errorf("without a policy there are %+v", cs)
			}
			v = shopView(election.Record{State: election.Leading, Leader: "west", Epoch: 20}, test.member,
				measured("west", agrees))
			if cs, _ := candidatesOf(v); len(cs) != 1 || cs[0].Name != "west" {
				t.Errorf("of others: %+v", cs)
			}
		})
	}
}

// A slip of the pen costs no leadership, and gets nobody one.
func TestAPriorityThatCannotBeRead(t *testing.T) {
	const explained = `the label leasecast.dev/priority is "high": set it to an integer from 0 to 2147483647` +
		"; until then it keeps what it leads, and is never newly chosen"
	sick := func(m *decide.Member) {
		m.Verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Recovering, Message: "it recovers"}
	}
	for name, test := range map[string]struct {
		change func(*decide.Member)
		want   election.Fitness
		why    reason.Reason
		words  string
	}{
		"of one that may lead": {func(*decide.Member) {}, election.RetainOnly, reason.InvalidPriority, explained},
		"of one that keeps what it is": {
			func(m *decide.Member) { m.Paused = true }, election.RetainOnly, reason.InvalidPriority, explained,
		},
		"of one that is not known": {
			func(m *decide.Member) { m.IsRead = false }, election.Unknown, reason.InvalidPriority, explained,
		},
		"of one that must not lead": {sick, election.Unfit, reason.Recovering, "it recovers"},
	} {
		t.Run(name, func(t *testing.T) {
			m := changed(measured("east", agrees), test.change)
			m.PriorityReason, m.Labels = reason.InvalidPriority, map[string]string{v1alpha1.PriorityLabel: "high"}
			v := shopView(election.Record{Epoch: 20, Observed: map[string]int32{"east": 9}}, m)
			cs, _ := candidatesOf(v)
			if got := cs[0]; got.Fitness != test.want || got.Reason != test.why || message(v, &got) != test.words ||
				got.Priority != 9 {
				t.Errorf("%+v, want %v, %s (%s) and the priority that counted last, 9", got, test.want, test.why, test.words)
			}
		})
	}
}

func TestMissingMessage_IsTheSameForEachAnswer(t *testing.T) {
	answer := apierrors.NewInternalError(errors.New("port 2"))
	for _, cause := range []error{guard.ErrForbidden, guard.ErrUnsupported, guard.ErrNotEnforced, guard.ErrUnchecked} {
		if got := missingMessage(fmt.Errorf("check: %w (%w)", cause, answer)); got != cause.Error() {
			t.Errorf("%q, want %q", got, cause)
		}
	}
	if got := missingMessage(answer); got != guard.ErrUnchecked.Error() {
		t.Errorf("without a cause: %q", got)
	}
}

func TestTheRecordInWords(t *testing.T) {
	at := time.Date(2026, 1, 1, 12, 0, 0, int(250*time.Millisecond), time.FixedZone("", 3600))
	r := func(phase election.RecordState, why reason.Reason, next string) election.Record {
		return election.Record{State: phase, Reason: why, Leader: "east", Epoch: 20, Next: next, NotBefore: at}
	}
	for name, test := range map[string]struct {
		record  election.Record
		waiting reason.Reason
		awaited string
		want    string
	}{
		"led": {r(election.Leading, reason.Elected, ""), reason.MostUnreachable, "", "east leads in epoch 20"},
		"a hub that may be cut off": {r(election.Draining, reason.Unreachable, "west"), reason.MostUnreachable, "",
			"east is lost, but so are most clusters: nobody is chosen until one comes back"},
		"readers that have to stop": {r(election.Draining, reason.PriorityChanged, "west"), reason.WaitingForReaders, "",
			"east was told to stop (PriorityChanged); next is west, as soon as all registered readers have stopped, or " +
				"else at 11:00:00.250Z"},
		"a bound that has to pass": {r(election.Draining, reason.Unreachable, "west"), reason.WaitingForExpiry, "",
			"east is being replaced (Unreachable); next is west, not before 11:00:00.250Z"},
		"nobody to follow": {r(election.Draining, reason.Unreachable, ""), "", "",
			"east is being replaced (Unreachable); next is nobody yet, not before 11:00:00.250Z"},
		"a policy that is gone": {r(election.Retired, reason.PolicyGone, ""), "", "",
			"no policy claims the namespace; the record stays until everything promised has passed"},
		"another hub at work": {r(election.Vacant, reason.NoCandidate, ""), reason.OtherHub, "",
			"another hub writes the Leases, so this one decides nothing; see the condition LeasesInPlace"},
		"a namespace that has moved": {r(election.Vacant, reason.Moved, ""), reason.Moved, "",
			"the record came from another hub; nobody is chosen before the Leases in all clusters are this hub's"},
		"a promise that nobody knows": {r(election.Vacant, reason.WaitingForExpiry, "west"), reason.WaitingForExpiry, "",
			"an earlier promise may still stand; next is west, not before 11:00:00.250Z"},
		"a promise, and nobody to follow": {r(election.Vacant, reason.WaitingForExpiry, ""), "", "",
			"an earlier promise may still stand; next is nobody yet, not before 11:00:00.250Z"},
		"a better cluster that may come": {r(election.Vacant, reason.WaitingForClusters, "west"), reason.WaitingForClusters,
			"north",
			"north ranks higher and is not ready yet; if it does not become so in time, next is west; see candidates for " +
				"the reasons"},
		"a better cluster that may come, told later": {r(election.Vacant, reason.WaitingForClusters, "west"), "", "",
			"another cluster ranks higher and is not ready yet; if it does not become so in time, next is west; see " +
				"candidates for the reasons"},
		"nobody who may lead": {
			r(election.Vacant, reason.NoCandidate, ""), "", "", "no cluster is eligible; see candidates for the reasons",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Describe(election.Decision{Record: test.record, Waiting: test.waiting,
				Awaited: test.awaited}); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

func TestClocksDecideWhoMayLead(t *testing.T) {
	for name, tc := range map[string]struct {
		members []decide.Member
		want    election.Fitness // of the first
		why     reason.Reason
	}{
		"a clock that agrees": {
			[]decide.Member{measured("east", agrees), measured("west", agrees)}, election.Fit, reason.Eligible,
		},
		"what is not known harms nobody": {
			[]decide.Member{measured("east", vague), measured("west", agrees)}, election.Fit, reason.Eligible,
		},
		"a clock that is off": {
			[]decide.Member{measured("east", twoAhead), measured("west", agrees)}, election.Unfit, reason.ClockSkewed,
		},
		"most clocks are off, but not all": {
			[]decide.Member{measured("east", twoAhead), measured("west", twoAhead), measured("south", agrees)}, election.Unfit,
			reason.ClockSkewed,
		},
		"all clocks are off: the hub's is": {
			[]decide.Member{measured("east", twoAhead), measured("west", twoAhead)}, election.RetainOnly, reason.ClockSkewed,
		},
		"no other cluster is measured closely enough to agree with the hub": {
			[]decide.Member{measured("east", twoAhead), measured("west", vague), measured("south", vague)}, election.RetainOnly,
			reason.ClockSkewed},
		"the only cluster": {[]decide.Member{measured("east", twoAhead)}, election.RetainOnly, reason.ClockSkewed},
		"one that takes no part does not count": {[]decide.Member{
			measured("east", twoAhead), changed(measured("west", agrees), func(m *decide.Member) { m.TakesPart = false }),
		},
			election.RetainOnly, reason.ClockSkewed},
		"silence is the graver word": {[]decide.Member{changed(measured("east", twoAhead), func(m *decide.Member) {
			m.Verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Unreachable}
		}), measured("west", agrees)}, election.Unfit, reason.Unreachable},
		"a clock that is off is graver than a pause": {[]decide.Member{
			changed(measured("east", twoAhead), func(m *decide.Member) { m.Paused = true }), measured("west", agrees),
		},
			election.Unfit, reason.ClockSkewed},
	} {
		t.Run(name, func(t *testing.T) {
			v := &decide.Snapshot{Entry: &ledger.Entry{Taken: ledger.Taken{Key: shop}}, Members: tc.members,
				Policy: &decide.Policy{Names: map[string]bool{"shop": true},
					Election: election.Policy{Timings: lease.Timings{Skew: time.Second}}}}
			cs, _ := candidatesOf(v)
			if got := cs[0]; got.Fitness != tc.want || got.Reason != tc.why {
				t.Errorf("fitness %v, reason %s (%s); want %v, %s", got.Fitness, got.Reason, message(v, &got), tc.want, tc.why)
			} else if got.Reason == reason.ClockSkewed && !strings.Contains(message(v, &got), "the API server's clock is "+
				"1.99s to 2.01s ahead of the hub's, and maxClockSkewMilliseconds is 1000") {
				t.Errorf("message %q", message(v, &got))
			}
		})
	}
}

func TestThePolicySaysWhoseClockIsOff(t *testing.T) {
	for name, tc := range map[string]struct {
		members []decide.Member
		want    metav1.ConditionStatus
		words   string
	}{
		"nobody's":        {[]decide.Member{measured("east", agrees), measured("west", agrees)}, metav1.ConditionTrue, ""},
		"nobody is there": {nil, metav1.ConditionTrue, ""},
		"not measured": {
			[]decide.Member{measured("east", agrees), measured("west", vague)}, metav1.ConditionUnknown,
			"not measured closely enough yet: west",
		},
		"one's": {
			[]decide.Member{measured("east", twoAhead), measured("west", vague)}, metav1.ConditionFalse,
			"maxClockSkewMilliseconds in east;",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := ClocksAgree(tc.members); got.Status != tc.want || !strings.Contains(got.Message, tc.words) {
				t.Errorf("%+v, want %s, %q", got, tc.want, tc.words)
			}
		})
	}
}
