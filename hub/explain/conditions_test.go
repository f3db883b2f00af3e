package explain

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/worker"
)

// brief is a condition in short.
func brief(c metav1.Condition) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Status, c.Reason, c.Message))
}

func TestAccepted(t *testing.T) {
	ps := decidetest.Policies("shops", "shops!")
	for name, test := range map[string]struct {
		policy        *decide.Policy
		lost, refused string
		want          string
	}{
		"a valid policy":    {ps[0], "", "", "True Accepted the policy is valid and acted on; beware"},
		"a fenced Lease":    {ps[0], "", "a lock", "False Conflict a lock"},
		"an invalid policy": {ps[1], "a (to x)", "a lock", "False InvalidPolicy its timings"},
		"lost namespaces": {
			ps[0], "a (to x),b (to y)", "a lock",
			"False Conflict other policies own these namespaces, so this one has no effect there: a (to x), b (to y)",
		},
	} {
		lost := slices.DeleteFunc(strings.Split(test.lost, ","), func(s string) bool { return s == "" })
		if got := brief(Accepted(test.policy, lost, test.refused, "; beware")); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	timings := ps[0].Election.Timings
	if got := HubLossWarning(timings, 6*time.Second); got != "" {
		t.Errorf("it warns of the default profile: %q", got)
	}
	want := "; if a hub replica is lost, terms may lapse: renewIntervalMilliseconds, 7.5s for its election, " +
		"requestTimeoutMilliseconds and maxClockSkewMilliseconds add up to more than leaseDurationMilliseconds (15s)"
	if got := HubLossWarning(timings, 7500*time.Millisecond); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// An API server refuses longer messages.
func TestMessagesAreCut(t *testing.T) {
	long := strings.Repeat("x", 2000)
	missing, _ := TargetsFound([]LockFinding{{Lock: long}})
	sum := PolicyReady([]metav1.Condition{missing})
	for name, c := range map[string]metav1.Condition{"one": SecretsGranted(long, ""), "a sum": sum} {
		if len(c.Message) != 1024 {
			t.Errorf("%s: %d bytes, a condition takes 1024", name, len(c.Message))
		}
	}
	c := candidateOf(long)
	c.Member.Readers = math.MaxInt
	if got := statusOf(nil, &c, nil); len(got.Message) != 1024 || got.Readers != math.MaxInt32 {
		t.Errorf("a message of %d bytes, %d readers", len(got.Message), got.Readers)
	}
	for text, want := range map[string]string{"abcd": "abcd", "abcde": "abcd", "abcé": "abc"} { // é has two bytes
		if got := cut(text, 4); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	refusal := apierrors.NewForbidden(corev1.Resource("secrets"), seal.SecretName, errors.New(long))
	words, advice, _ := strings.Cut(BrokenSeal(refusal), ": the hub must be able to update this Secret: ")
	if words != refusal.Error()[:512] || advice == "" {
		t.Errorf("%d bytes of the refusal of a seal, and then %q", len(words), advice)
	}
}

// A retry may mend what is not named here.
func TestBrokenSeal(t *testing.T) {
	const advice = ": the hub must be able to update this Secret"
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, seal.SecretName, nil)
	broken, away := fmt.Errorf("too short: %w", seal.ErrBroken), errors.New("no answer")
	for err, want := range map[error]string{broken: broken.Error(), invalid: invalid.Error() + advice, away: ""} {
		if got := BrokenSeal(err); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%v: %q", err, got)
		}
	}
}

func TestPolicyReadyIsTheSumOfTheOtherConditions(t *testing.T) {
	is := func(kind string, status metav1.ConditionStatus, why, message string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: why, Message: message}
	}
	was, yes := is("Ready", "False", "Before", ""), is("Accepted", "True", "Accepted", "fine")
	open, no := is("ClocksAgree", "Unknown", "NotMeasured", "not yet"), is("FencesInForce", "False", "Unfenced", "south")
	worse := is("SecretsGranted", "False", "GrantMissing", "bind")
	for want, others := range map[string][]metav1.Condition{
		"True Ready": {was, yes},
		"Unknown NotMeasured ClocksAgree: not yet":                  {yes, open},
		"False Unfenced FencesInForce: south":                       {open, yes, no},
		"False Unfenced FencesInForce: south; SecretsGranted: bind": {no, worse},
	} {
		if got := brief(PolicyReady(others)); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestConditionsOfAFleet(t *testing.T) {
	lost := []member{measured("east", agrees, unreached), measured("west", agrees)}
	const most = "most clusters became unreachable at once, so it may be the hub that is cut off: east"
	for want, got := range map[string]metav1.Condition{
		"True Granted": SecretsGranted("", ""), "False InvalidSeal too short": SecretsGranted("", "too short"),
		"False GrantMissing bind the role": SecretsGranted("bind the role", "no seal"), // which the grant may mend
		"True Reachable":                   ClustersReachable(false, lost),
		"False MostUnreachable " + most:    ClustersReachable(true, lost),
		"True AllManaged":                  AllManaged("", 5),
		"False TooManyNamespaces the selector matches namespaces that exist in one cluster only and are not managed: " +
			"3 in far; at most 5 such namespaces are, those with a record first, then the oldest: create them in a second " +
			"cluster, name them in spec.namespaces.names, or narrow the selector": AllManaged("3 in far", 5),
	} {
		if brief(got) != want {
			t.Errorf("%q, want %q", brief(got), want)
		}
	}
}

func TestTargetsFound(t *testing.T) {
	lock := func(name string, state worker.LockState) LockFinding { return LockFinding{name, "east", state} }
	held, missing, stale := lock("a", worker.LockHeld), lock("b", worker.LockMissing), lock("c", worker.LockIdle)
	const idle = "False LockIdle compare leaderElectionLocks with the Lease that the controller elects itself with, and " +
		"see that it runs there with its election on: "
	type ls = []LockFinding
	const unheld = "Unknown LockUnseen nobody was seen to hold these locks since a cluster leads: "
	const found = "True TargetsFound each fenced lock has a holder in the cluster that leads"
	for want, locks := range map[string]ls{
		found: {held, held},
		idle + "there is no Lease b in east, which leads":       {{Lock: "d"}, held, missing},
		idle + "nobody renews the Lease c in east, which leads": {stale, held},
		unheld + "d, e": {held, {Lock: "d"}, {Lock: "e"}},
	} {
		if c, applies := TargetsFound(locks); brief(c) != want || !applies || c.Type != v1alpha1.ConditionFenceTargetsFound {
			t.Errorf("%s %q, applies %v; want %q", c.Type, brief(c), applies, want)
		}
	}
}

// fences is a valid policy that fences something in all clusters.
func fences(name string, f *v1alpha1.Fencing, changes ...func(*v1alpha1.LeadershipPolicySpec)) *decide.Policy {
	o := decidetest.Fencing(f)
	o.Name = name
	for _, change := range changes {
		change(&o.Spec)
	}
	return decide.ParsePolicy(o)
}

func elsewhere(s *v1alpha1.LeadershipPolicySpec) {
	s.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"zone": "b"}}
}

func writesStock(s *v1alpha1.LeadershipPolicySpec) { s.LeaseName = "stock" }

func TestFenced(t *testing.T) {
	jobs, like := &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}, decidetest.StockLock
	like.Name = "like"
	warns := &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}, Enforcement: v1alpha1.EnforcementWarn}
	lock, both := decidetest.Locks(decidetest.StockLock), decidetest.Locks(decidetest.StockLock, like)
	webhook := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("says a webhook"))
	refused := fmt.Errorf("%w (%w)", guard.ErrForbidden, webhook)
	const unfenced, unchecked = "False Unfenced east (", "Unknown FenceUnchecked east (it has not been checked yet)"
	const refuses = "the cluster does not refuse yet what it must)"
	const forbidden = "the cluster forbids it: apply config/member there, and config/fencing for fences"
	for name, test := range map[string]struct {
		fencing *v1alpha1.Fencing
		older   *decide.Policy
		missing error
		want    string // as a prefix
	}{
		"in force":       {jobs, nil, nil, "True InForce in force in all 1 clusters"},
		"only a warning": {warns, nil, nil, "True Warns every cluster warns, and nothing is refused"},
		"locks": {both, nil, nil, "True InForce in force in all 1 clusters; refused in every cluster until each earlier " +
			"holder must have stopped: stock/x; a change of leader takes 4s more, for the lock stock/stock"},
		"not enforced":           {jobs, nil, guard.ErrNotEnforced, unfenced + refuses},
		"forbidden by a webhook": {jobs, nil, refused, unfenced + forbidden + ": forbidden: says a webhook)"},
		"not allowed": {lock, nil, guard.NotAllowedError{Namespaces: []string{"stock"}}, unfenced + "an administrator of " +
			"the cluster has to allow what is fenced outside the policy's namespaces: kubectl label namespace stock"},
		"not stored": {jobs, nil, apierrors.NewInvalid(schema.GroupKind{}, "gate", nil),
			unfenced + "the cluster does not store a fence that the policy asks for: change the policy: "},
		"not supported": {jobs, nil, guard.ErrUnsupported,
			unfenced + "the cluster serves no ValidatingAdmissionPolicies"},
		"not checked": {jobs, nil, guard.ErrUnchecked, unchecked},
		"an older policy fences the lock": {lock, fences("old", lock), nil,
			"False Unfenced the policy old fences the lock stock/stock"},
		"the hub writes the lock for an older policy": {lock, fences("old", nil, writesStock), nil, "False Unfenced " +
			"the lock stock/stock has the name of the Leases that the hub writes for the policy old"},
	} {
		p := fences("young", test.fencing)
		f := Fences{Policy: p, Wanted: p.FencesBut("this", nil), Members: []member{measured("east", agrees)},
			Missing: []error{test.missing}, Young: true}
		if len(p.Locks) > 0 {
			f.Closed = []string{"stock/x"}
		}
		if test.older != nil {
			decide.ShareLocks([]*decide.Policy{test.older, p}, []fleet.Member{f.Members[0].Member},
				func(*decide.Policy) bool { return false })
		}
		if got := brief(Fenced(f)); !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
		if p.Unknown = true; brief(Fenced(f)) != "False Unfenced the policy is invalid: the fences that it had "+
			"stay as they were" {
			t.Errorf("%s, and invalid: %q", name, brief(Fenced(f)))
		}
	}
	p := fences("shops", jobs)
	none := Fences{Policy: p, Wanted: p.FencesBut("this", nil)}
	if got := brief(Fenced(none)); got != "False Unfenced no cluster takes part yet" {
		t.Errorf("without clusters: %q", got)
	}
	none.Members = []member{measured("east", agrees), measured("west", agrees)}
	none.Missing, none.Young = []error{guard.ErrUnchecked, guard.ErrNotEnforced}, true
	if got := brief(Fenced(none)); got != "False Unfenced west ("+refuses+"; east (it has not been checked yet)" {
		t.Errorf("east was not checked, and it is missing in west: %q", got)
	}
	for name, test := range map[string]struct {
		change func(*member)
		want   string
	}{
		"it answers":             {func(m *member) { m.Connected, m.Verdict.State = true, health.Healthy }, unfenced},
		"it cannot be reached":   {func(m *member) { m.Connected, m.Verdict.State = true, health.Unhealthy }, "Unknown "},
		"there is no connection": {func(m *member) { m.Connected, m.Verdict.State = false, health.Healthy }, "Unknown "},
	} {
		old := Fences{Policy: p, Wanted: none.Wanted, Members: []member{measured("east", agrees, test.change)},
			Missing: []error{guard.ErrUnchecked}}
		if got := brief(Fenced(old)); !strings.HasPrefix(got, test.want) {
			t.Errorf("it was not checked in the first minute, and %s: %q, want %q", name, got, test.want)
		}
	}
}

// The younger policy never led there. It does not take the lock of the older one out of the fence.
func TestLeaseRefused(t *testing.T) {
	lock, in := decidetest.Locks(decidetest.StockLock), func(s *v1alpha1.LeadershipPolicySpec) {
		s.Namespaces.Names = []string{"bank", "stock"}
	}
	warns := lock.DeepCopy()
	warns.Enforcement = v1alpha1.EnforcementWarn
	const refused = "the policy old fences the lock stock/stock, so there is no Lease of that name for this policy: " +
		"create it again with another leaseName"
	young := fences("young", nil, writesStock, in)
	for name, test := range map[string]struct {
		older, younger *decide.Policy
		want           string // of the younger
	}{
		"the older fences it":             {fences("old", lock), young, refused},
		"the older only warns":            {fences("old", warns), young, ""},
		"the older fences it elsewhere":   {fences("old", lock, elsewhere), young, ""},
		"the younger fences it":           {young, fences("old", lock), ""},
		"it has no such namespace":        {fences("old", lock), fences("young", nil, writesStock), ""},
		"its Leases do not have the name": {fences("old", lock), fences("young", nil, in), ""},
	} {
		both, ms := []*decide.Policy{test.older, test.younger}, []member{measured("east", agrees)}
		if got := LeaseRefused(both, test.younger, ms); got != test.want || LeaseRefused(both, test.older, ms) != "" {
			t.Errorf("%s: %q, of the older %q", name, got, LeaseRefused(both, test.older, ms))
		}
	}
}

func TestProblemOfACluster(t *testing.T) {
	for name, test := range map[string]struct {
		problem, priority reason.Reason
		fenced            string // the UID that is declared off
		want              string
	}{
		"it is being deleted":           {reason.Deleting, "", "", " "},
		"it is gone":                    {reason.Gone, "", "", " "},
		"unreachable, without priority": {reason.Unreachable, reason.NoPriority, "", "Unreachable the words"},
		"it refuses":                    {reason.Forbidden, "", "", "Forbidden the words" + advise(reason.Forbidden, "")},
		"it is declared off":            {reason.NeverReached, "", "uid", " "},
		"another one is declared off": {reason.Unreachable, "", "another", "InvalidFence the annotation " +
			`leasecast.dev/fenced is "another", and the UID of the cluster is "uid": set it to that, or remove it`},
		"gone, with an invalid priority": {reason.Gone, reason.InvalidPriority, "",
			`InvalidPriority the label leasecast.dev/priority is "x": set it to an integer from 0 to 2147483647`},
	} {
		m := fleet.Member{PriorityReason: test.priority, Fenced: test.fenced, UID: "uid",
			Labels: map[string]string{v1alpha1.PriorityLabel: "x"}}
		if m.Problem.Reason = test.problem; test.problem != "" {
			m.Problem.Message = "the words"
		}
		if got := Problem(m); string(got.Reason)+" "+got.Message != test.want {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
}
