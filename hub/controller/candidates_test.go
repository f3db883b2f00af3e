package controller

import (
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
)

// shopView is a view of namespace shop, which a policy with an ε of 1 s claims.
func shopView(r election.Record, ms ...memberView) *view {
	v := &view{
		key: shop, members: ms,
		policy: &policy{
			object: &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops", Generation: 7}},
			names:  map[string]bool{"shop": true}, election: election.Policy{Timings: lease.Timings{Skew: time.Second}},
		},
	}
	v.state.Record = r
	return v
}

func TestWhoMayLead(t *testing.T) {
	east := func(changes ...func(*memberView)) memberView {
		m := measured("east", agrees)
		for _, change := range changes {
			change(&m)
		}
		return m
	}
	troubled := func(r reason.Reason) func(*memberView) {
		return func(m *memberView) { m.Problem = fleet.Problem{Reason: r, Message: "the trouble"} }
	}
	leaseTroubled := func(r reason.Reason) func(*memberView) {
		return func(m *memberView) { m.facts = publish.SyncStatus{Problem: r, Message: "the Lease"} }
	}
	deleting := func(m *memberView) { m.Deleting = true }
	apart := func(m *memberView) { m.Connected = false }
	sick := func(m *memberView) {
		m.verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Recovering, Message: "it recovers"}
	}
	unheard := func(m *memberView) {
		m.verdict = health.Verdict{State: health.Unknown, Reason: reason.Forbidden, Message: "it refuses"}
	}
	bare := func(m *memberView) { m.namespace = nil }
	paused := func(m *memberView) { m.Paused = true }
	unguarded := func(m *memberView) { m.unguarded = guard.ErrNotEnforced }
	unfenced := func(m *memberView) { m.unfenced = guard.ErrNotEnforced }
	failing := func(m *memberView) { m.facts.Failing, m.facts.Failure = reason.Unwritable, "a quota" }
	leads := func(phase election.RecordState, why reason.Reason) election.Record {
		return election.Record{State: phase, Reason: why, Leader: "east", Epoch: 20}
	}
	anotherLeads := election.Record{State: election.Leading, Leader: "west", Epoch: 20}
	const notYet, gone = "the hub has not reached the cluster yet", "the namespace is going away there"
	const missing = "the namespace does not exist there, or does not match the policy"
	const stays = "the Cluster is paused: it keeps what it has, and is never newly chosen"
	for name, test := range map[string]struct {
		record election.Record
		member memberView
		want   election.Fitness
		why    reason.Reason
		words  string
	}{
		"one that nothing is wrong with":                        {leads(election.Leading, ""), east(), election.Fit, reason.Eligible, ""},
		"one with a name that is too long":                      {anotherLeads, east(troubled(reason.NameTooLong)), election.Unfit, reason.NameTooLong, "the trouble"},
		"one whose kubeconfig leads elsewhere":                  {anotherLeads, east(troubled(reason.WrongCluster)), election.Unfit, reason.WrongCluster, "the trouble"},
		"one that another Cluster speaks of":                    {anotherLeads, east(troubled(reason.DuplicateCluster)), election.Unfit, reason.DuplicateCluster, "the trouble"},
		"one that is gone":                                      {anotherLeads, east(troubled(reason.Gone)), election.Unfit, reason.Gone, "the trouble"},
		"one that is being deleted":                             {anotherLeads, east(deleting), election.Unfit, reason.Deleting, "the Cluster is being deleted"},
		"one that is being deleted and is away":                 {anotherLeads, east(deleting, apart), election.Unfit, reason.Deleting, "the Cluster is being deleted"},
		"a new kubeconfig that is bad harms nobody":             {anotherLeads, east(troubled(reason.InvalidKubeconfig)), election.Fit, reason.Eligible, ""},
		"one that is not connected":                             {anotherLeads, east(apart), election.Unknown, reason.NeverReached, notYet},
		"one that is not connected, for a reason":               {anotherLeads, east(apart, troubled(reason.NoKubeconfig)), election.Unknown, reason.NoKubeconfig, "the trouble"},
		"one without a publisher":                               {anotherLeads, east(func(m *memberView) { m.publisher = nil }), election.Unknown, reason.NeverReached, notYet},
		"one that was not read":                                 {anotherLeads, east(func(m *memberView) { m.isRead = false }), election.Unknown, reason.NeverReached, notYet},
		"one that was not probed":                               {anotherLeads, east(unheard), election.Unknown, reason.Forbidden, "it refuses; grant the hub's user there the rules of config/member"},
		"one that is ill":                                       {anotherLeads, east(sick, bare), election.Unfit, reason.Recovering, "it recovers"},
		"one without the namespace":                             {anotherLeads, east(bare), election.Unfit, reason.NamespaceMissing, missing},
		"one where the namespace is being deleted":              {anotherLeads, east(func(m *memberView) { m.namespace.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} }), election.Unfit, reason.NamespaceTerminating, gone},
		"one where the namespace is terminating":                {anotherLeads, east(func(m *memberView) { m.namespace.Status.Phase = corev1.NamespaceTerminating }), election.Unfit, reason.NamespaceTerminating, gone},
		"one with somebody else's Lease":                        {anotherLeads, east(leaseTroubled(reason.ForeignLease)), election.Unfit, reason.ForeignLease, "the Lease"},
		"one with another hub's Lease":                          {anotherLeads, east(leaseTroubled(reason.OtherHub)), election.Unfit, reason.OtherHub, "the Lease"},
		"one with a Lease of another cluster":                   {anotherLeads, east(leaseTroubled(reason.WrongCluster)), election.Unfit, reason.WrongCluster, "the Lease"},
		"one that forbids Leases":                               {anotherLeads, east(leaseTroubled(reason.Forbidden)), election.Unfit, reason.Forbidden, "the Lease; grant the hub's user there the rules of config/member"},
		"one where no Lease can be written":                     {anotherLeads, east(leaseTroubled(reason.Unwritable), unguarded), election.Unfit, reason.Unwritable, "the Lease"},
		"a Lease that is not there yet is no problem":           {anotherLeads, east(leaseTroubled(reason.LeaseLost)), election.Fit, reason.Eligible, ""},
		"one of which not all namespaces are seen":              {anotherLeads, east(troubled(reason.TooManyObjects)), election.Fit, reason.TooManyObjects, "the trouble"},
		"one whose watches do not last, because it is read":     {anotherLeads, east(troubled(reason.Unwatched)), election.Fit, reason.Unwatched, "the trouble"},
		"one without the guard":                                 {anotherLeads, east(unguarded, paused), election.RetainOnly, reason.Unguarded, unguardedMessage(guard.ErrNotEnforced)},
		"one without a fence":                                   {anotherLeads, east(unfenced, paused), election.RetainOnly, reason.Unfenced, unfencedMessage(guard.ErrNotEnforced)},
		"one without the guard and a fence":                     {anotherLeads, east(unguarded, unfenced), election.RetainOnly, reason.Unguarded, unguardedMessage(guard.ErrNotEnforced)},
		"one that is paused":                                    {anotherLeads, east(paused, failing), election.RetainOnly, reason.Paused, stays},
		"one that cannot be written while another leads":        {anotherLeads, east(failing), election.Unfit, reason.Unwritable, "the last Lease could not be written: a quota"},
		"one that could not be written, where nobody ever led":  {election.Record{State: election.Vacant}, east(failing), election.Fit, reason.Eligible, ""},
		"a leader that cannot be written, while its term lasts": {leads(election.Leading, reason.Unwritable), east(failing), election.Fit, reason.Eligible, ""},
		"a leader that is replaced for its lost Lease":          {leads(election.Draining, reason.LeaseLost), east(failing), election.Unfit, reason.Unwritable, "the last Lease could not be written: a quota"},
		"a leader that is replaced because it forbids Leases":   {leads(election.Draining, reason.Forbidden), east(failing), election.Unfit, reason.Unwritable, "the last Lease could not be written: a quota"},
		"a leader that is replaced because it takes no Lease":   {leads(election.Draining, reason.Unwritable), east(failing), election.Unfit, reason.Unwritable, "the last Lease could not be written: a quota"},
		"a leader that is replaced for something else":          {leads(election.Draining, reason.PriorityChanged), east(failing), election.Fit, reason.Eligible, ""},
	} {
		t.Run(name, func(t *testing.T) {
			cs, _ := shopView(test.record, test.member).candidates()
			if got := cs[0]; got.Fitness != test.want || got.Reason != test.why || got.message != test.words {
				t.Errorf("fitness %v, reason %s (%s); want %v, %s (%s)", got.Fitness, got.Reason, got.message, test.want, test.why, test.words)
			}
		})
	}
}

func TestANamespaceThatThePolicyDoesNotMatchIsMissing(t *testing.T) {
	v := shopView(election.Record{Epoch: 20, Leader: "west"}, measured("east", agrees))
	v.policy = parsePolicy(&v1alpha1.LeadershipPolicy{})
	if _, why, _ := v.fitness(&v.members[0]); why != reason.NamespaceMissing {
		t.Errorf("reason %s", why)
	}
	v.policy = nil
	if _, why, _ := v.fitness(&v.members[0]); why != reason.NamespaceMissing {
		t.Errorf("without a policy: reason %s", why)
	}
}

// A leader that takes no part any more is told of until it is replaced; of others nothing is said.
func TestALeaderThatTakesNoPartIsACandidateThatMustNotLead(t *testing.T) {
	outside := func(change func(*memberView)) memberView {
		m := changed(measured("east", agrees), change)
		m.takesPart = false
		return m
	}
	for name, test := range map[string]struct {
		member memberView
		why    reason.Reason
		words  string
	}{
		"its Cluster is gone":         {outside(func(m *memberView) { m.Gone, m.PriorityReason = true, reason.NoPriority }), reason.Gone, "the Cluster does not exist any more"},
		"its Cluster has no priority": {outside(func(m *memberView) { m.PriorityReason = reason.NoPriority }), reason.NoPriority, "the Cluster has no label " + v1alpha1.PriorityLabel + ", so it takes no part"},
		"it is not selected":          {outside(func(*memberView) {}), reason.NotSelected, "the clusterSelector of the policy does not match the Cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			test.member.Priority, test.member.Hint = 5, "Provisioned"
			v := shopView(election.Record{State: election.Leading, Leader: "east", Epoch: 20}, test.member, measured("west", agrees))
			cs, _ := v.candidates()
			if len(cs) != 2 {
				t.Fatalf("%d candidates, want 2", len(cs))
			}
			got, want := cs[0], candidate{hint: "Provisioned", message: test.words}
			want.Name, want.Priority, want.Fitness, want.Reason = "east", 5, election.Unfit, test.why
			if got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
			v.policy = nil
			v.members[1].takesPart = false
			if cs, _ := v.candidates(); len(cs) != 0 {
				t.Errorf("without a policy there are %+v", cs)
			}
			v = shopView(election.Record{State: election.Leading, Leader: "west", Epoch: 20}, test.member, measured("west", agrees))
			if cs, _ := v.candidates(); len(cs) != 1 || cs[0].Name != "west" {
				t.Errorf("of others: %+v", cs)
			}
		})
	}
}

// A slip of the pen costs no leadership, and gets nobody one.
func TestAPriorityThatCannotBeRead(t *testing.T) {
	const explained = `the label leasecast.dev/priority is "high": set it to an integer from 0 to 2147483647` +
		"; until then it keeps what it leads, and is never newly chosen"
	sick := func(m *memberView) {
		m.verdict = health.Verdict{State: health.Unhealthy, Reason: reason.Recovering, Message: "it recovers"}
	}
	for name, test := range map[string]struct {
		change func(*memberView)
		want   election.Fitness
		why    reason.Reason
		words  string
	}{
		"of one that may lead":         {func(*memberView) {}, election.RetainOnly, reason.InvalidPriority, explained},
		"of one that keeps what it is": {func(m *memberView) { m.Paused = true }, election.RetainOnly, reason.InvalidPriority, explained},
		"of one that is not known":     {func(m *memberView) { m.isRead = false }, election.Unknown, reason.InvalidPriority, explained},
		"of one that must not lead":    {sick, election.Unfit, reason.Recovering, "it recovers"},
	} {
		t.Run(name, func(t *testing.T) {
			m := changed(measured("east", agrees), test.change)
			m.PriorityReason, m.Labels = reason.InvalidPriority, map[string]string{v1alpha1.PriorityLabel: "high"}
			cs, _ := shopView(election.Record{Epoch: 20, Observed: map[string]int32{"east": 9}}, m).candidates()
			if got := cs[0]; got.Fitness != test.want || got.Reason != test.why || got.message != test.words || got.Priority != 9 {
				t.Errorf("%+v, want %v, %s (%s) and the priority that counted last, 9", got, test.want, test.why, test.words)
			}
		})
	}
}

func TestCandidatesAreJudgedAgainWhenTheFirstHealthMayChange(t *testing.T) {
	next := func(name string, d time.Duration) memberView {
		return changed(measured(name, agrees), func(m *memberView) { m.verdict.Next = d })
	}
	for name, test := range map[string]struct {
		members []memberView
		want    time.Duration
	}{
		"none by time alone":        {[]memberView{next("east", 0), next("west", 0)}, 0},
		"the first":                 {[]memberView{next("east", 2*time.Second), next("west", 5*time.Second)}, 2 * time.Second},
		"the last":                  {[]memberView{next("east", 5*time.Second), next("west", 2*time.Second)}, 2 * time.Second},
		"one in the next instant":   {[]memberView{next("east", 1), next("west", 0)}, 1},
		"one that takes no part":    {[]memberView{changed(next("east", 1), func(m *memberView) { m.takesPart = false }), next("west", time.Second)}, time.Second},
		"all that can, and another": {[]memberView{next("east", 0), next("west", 3*time.Second)}, 3 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cs, after := shopView(election.Record{}, test.members...).candidates()
			if after != test.want {
				t.Errorf("again after %v, want %v", after, test.want)
			}
			for _, c := range cs {
				if !c.Answering {
					t.Errorf("%s does not answer", c.Name)
				}
			}
		})
	}
}

func TestWhatAnUnguardedClusterIsToldToDo(t *testing.T) {
	for words, err := range map[string]error{
		"the cluster does not let the hub install the policy that protects the Leases: apply config/member there":                guard.ErrForbidden,
		"the cluster knows no ValidatingAdmissionPolicies, so nothing can protect the Leases: it needs Kubernetes 1.30 or later": guard.ErrUnsupported,
		"the policy that protects the Leases does not refuse yet what it must":                                                   guard.ErrNotEnforced,
		"the policy that protects the Leases has not been checked yet":                                                           errors.New("anything else"),
	} {
		if got := unguardedMessage(fmt.Errorf("check: %w", err)); got != words {
			t.Errorf("%v: %q, want %q", err, got, words)
		}
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
			"east was told to stop (PriorityChanged); next is west, as soon as all registered readers have stopped, or else at 11:00:00.250Z"},
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
		"a better cluster that may come": {r(election.Vacant, reason.WaitingForClusters, "west"), reason.WaitingForClusters, "north",
			"north ranks higher and is not ready yet; if it does not become so in time, next is west; see candidates for the reasons"},
		"a better cluster that may come, told later": {r(election.Vacant, reason.WaitingForClusters, "west"), "", "",
			"another cluster ranks higher and is not ready yet; if it does not become so in time, next is west; see candidates for the reasons"},
		"nobody who may lead": {r(election.Vacant, reason.NoCandidate, ""), "", "", "no cluster is eligible; see candidates for the reasons"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := describe(election.Decision{Record: test.record, Waiting: test.waiting, Awaited: test.awaited}); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
