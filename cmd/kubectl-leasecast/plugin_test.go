package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub"
)

var now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func micro(ago time.Duration) *metav1.MicroTime { return &metav1.MicroTime{Time: now.Add(-ago)} }

// cluster is a Cluster with a priority, or none.
func cluster(name, priority string) clusterv1.Cluster {
	o := clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{
		Namespace: "default", Name: name, Labels: map[string]string{"team": "infra"},
		Annotations: map[string]string{v1alpha1.ClusterUIDAnnotation: "uid-" + name,
			"kubectl.kubernetes.io/last-applied": "a-secret"},
	}}
	if priority != "" {
		o.Labels[v1alpha1.PriorityLabel] = priority
	}
	return o
}

// leading is the record of a namespace that a cluster leads, after some changes. East and west may lead.
func leading(namespace, leader string, changes ...func(*v1alpha1.NamespaceLeader)) v1alpha1.NamespaceLeader {
	r := v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: namespace}}
	r.Spec = v1alpha1.NamespaceLeaderSpec{
		Leader: leader, Epoch: 7, State: v1alpha1.StateLeading, Reason: reason.Elected, Since: micro(time.Hour),
		AcquireTime: micro(time.Hour), LeaseDurationSeconds: 15, MaxClockSkewMilliseconds: 1000, LeaseName: "leasecast",
		Next: "west", Policy: "shops",
	}
	r.Status.Message = leader + " leads in epoch 7"
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	r.Status.Candidates = []v1alpha1.Candidate{
		{Name: "east", Priority: 100, Eligible: true, Reason: reason.Eligible},
		{Name: "west", Priority: 50, Eligible: true, Reason: reason.Eligible},
	}
	for _, c := range r.Status.Candidates {
		r.Spec.ObservedPriorities = append(r.Spec.ObservedPriorities,
			v1alpha1.ObservedPriority{Name: c.Name, Priority: c.Priority})
	}
	for _, change := range changes {
		change(&r)
	}
	return r
}

// well is a fleet in which all is well.
func well(records ...v1alpha1.NamespaceLeader) *snapshot {
	policy := v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shops"}}
	policy.Spec.Timings = v1alpha1.Timings{
		LeaseDurationMilliseconds: 15000, RenewIntervalMilliseconds: 5000, RequestTimeoutMilliseconds: 3000,
		MaxClockSkewMilliseconds: 1000,
	}
	policy.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionAccepted, Status: metav1.ConditionTrue}}
	return &snapshot{
		fleet: "default", at: now, records: records, policies: []v1alpha1.LeadershipPolicy{policy},
		clusters: []clusterv1.Cluster{cluster("east", "100"), cluster("west", "50"), cluster("lab", "")},
		hub: hubState{
			holder: "hub-a", since: now.Add(-3 * time.Hour), renewed: now.Add(-2 * time.Second), duration: 15 * time.Second,
			ready: 2, wanted: 2,
		},
	}
}

// shown returns the screen of a status on a terminal of that width. Zero: it is no terminal.
func shown(s *snapshot, width int) (screen string, bad bool) {
	var out bytes.Buffer
	f := statusOf(s)
	if err := f.print(&table{to: &out, width: width}, false); err != nil {
		return err.Error(), true
	}
	return out.String(), errors.Is(f.verdict(), errAttention)
}

func TestStatusWhereAllIsWell(t *testing.T) {
	const want = `HUB    hub-a writes since 3h ago, renewed 2s ago; 2 of 2 replicas are ready
FLEET  default: 2 namespaces, 3 Clusters

CLUSTER  PRIORITY  STATE       LEADS  NOTE
east     100       Eligible    1
west     50        Eligible    1
lab      -         NoPriority  0

No namespace and no policy needs attention.
`
	if got, bad := shown(well(leading("bank", "west"), leading("shop", "east")), 0); got != want || bad {
		t.Errorf("got %s", got)
	}
}

// Each row is one thing that is wrong, and a part of what the status must say.
func TestStatusNamesWhatNeedsAttention(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, message string) func(*v1alpha1.NamespaceLeader) {
		return func(r *v1alpha1.NamespaceLeader) {
			r.Status.Conditions = append(r.Status.Conditions,
				metav1.Condition{Type: kind, Status: status, Reason: "Because", Message: message})
		}
	}
	lost := func(r *v1alpha1.NamespaceLeader) {
		c := &r.Status.Candidates[0]
		c.Eligible, c.Reason, c.Message = false, reason.Unreachable, "no answer"
	}
	vacant := func(r *v1alpha1.NamespaceLeader) {
		r.Spec.State, r.Spec.Leader, r.Spec.Reason = v1alpha1.StateVacant, "", reason.NoCandidate
		r.Status.Message = "no cluster is eligible"
	}
	fenced := func(uid string) *snapshot {
		s := well(leading("shop", "east"))
		s.clusters[0].Annotations[v1alpha1.FencedAnnotation] = uid
		return s
	}
	unpinned := fenced("")
	delete(unpinned.clusters[0].Annotations, v1alpha1.ClusterUIDAnnotation)
	const noEffect = "it has no effect: kubectl leasecast fence-cluster east"
	for name, test := range map[string]struct {
		s    *snapshot
		want string
	}{
		"an operator must fail over": {well(leading("shop", "east",
			condition(v1alpha1.ConditionFailoverPending, metav1.ConditionTrue, "kubectl annotate nsleader shop"))),
			"shop       east    FailoverPending  kubectl annotate nsleader shop"},
		"a freeze": {well(leading("shop", "east", condition(v1alpha1.ConditionFrozen, metav1.ConditionTrue, "until noon"))),
			"shop       east    Because  until noon"},
		"a freeze, and the leader is lost": {well(leading("shop", "east", lost,
			condition(v1alpha1.ConditionFrozen, metav1.ConditionTrue, "until noon"))), "Unreachable: no answer; until noon"},
		"a message with an escape": {well(leading("shop", "east",
			condition(v1alpha1.ConditionLeasesInPlace, metav1.ConditionFalse, "west\x1b[2J"))), "west\uFFFD[2J"},
		"a Lease is in the way": {well(leading("shop", "east",
			condition(v1alpha1.ConditionLeasesInPlace, metav1.ConditionFalse, "west: not ours"))), "west: not ours"},
		"the leader is lost": {well(leading("shop", "east", lost)), "shop       east    Unreachable  no answer"},
		"nobody leads": {well(leading("shop", "east", vacant)),
			"shop       -       NoCandidate  no cluster is eligible"},
		"a cluster is lost": {well(leading("shop", "west", lost)),
			"east     100       Unreachable  0      no answer"},
		"a cluster is fenced":                {fenced("uid-east"), "east     100       Fenced      1"},
		"a fence without a UID":              {fenced(""), "InvalidFence  1      " + noEffect},
		"a fence with another UID":           {fenced("uid-west"), "InvalidFence  1      " + noEffect},
		"a fence of a cluster never reached": {unpinned, "InvalidFence  1      " + noEffect},
		"the hub is gone for a moment": {func() *snapshot {
			s := well(leading("shop", "east"))
			s.hub.renewed = now.Add(-16 * time.Second)
			return s
		}(), "the hub is gone: hub-a last renewed its election 16s ago by this machine's clock; terms run out"},
		"the hub is gone, and terms are over": {func() *snapshot {
			s := well(leading("shop", "east"))
			s.hub.renewed = now.Add(-31 * time.Second)
			return s
		}(), "TermOver  the hub is gone, and the term ran out at 2026-03-01T11:59:59Z at the latest"},
		"no hub": {func() *snapshot {
			s := well(leading("shop", "east"))
			s.hub = hubState{unknown: "there is no Lease"}
			return s
		}(), "HUB    there is no Lease"},
		"a policy": {func() *snapshot {
			s := well()
			s.policies[0].Status.Conditions[0] = metav1.Condition{
				Type: v1alpha1.ConditionFencesInForce, Status: metav1.ConditionFalse, Reason: "Unfenced", Message: "in west",
			}
			return s
		}(), "shops   -       FencesInForce: Unfenced  in west"},
	} {
		got, bad := shown(test.s, 0)
		if !strings.Contains(got, test.want) || !bad {
			t.Errorf("%s: attention %t, want %q in\n%s", name, bad, test.want, got)
		}
		if !test.s.hub.alive(now) && strings.Contains(got, "needs attention.") {
			t.Errorf("%s: it says that all is well:\n%s", name, got)
		}
	}
}

// A drain is meant. What else keeps a drained Cluster from leading is not.
func TestStatusOfADrainedCluster(t *testing.T) {
	const until = "until 2026-03-01T13:00:00Z (upgrade)"
	for name, test := range map[string]struct {
		why  reason.Reason
		want string
		bad  bool
	}{
		"no record shows the drain yet": {reason.Eligible, "east     100       Drained     0      " + until, false},
		"the records show the drain":    {reason.Drained, "east     100       Drained     0      " + until, false},
		"it cannot be reached": {reason.Unreachable,
			"east     100       Unreachable  0      no answer; drained " + until, true},
	} {
		s := well(leading("shop", "west", func(r *v1alpha1.NamespaceLeader) {
			c := &r.Status.Candidates[0]
			c.Eligible, c.Reason, c.Message = test.why == reason.Eligible, test.why, "no answer"
		}))
		s.clusters[0].Annotations[v1alpha1.DrainUntilAnnotation] = "2026-03-01T13:00:00Z"
		s.clusters[0].Annotations[v1alpha1.DrainReasonAnnotation] = "upgrade"
		if got, bad := shown(s, 0); !strings.Contains(got, test.want+"\n") || bad != test.bad {
			t.Errorf("%s: attention %t, want %q in\n%s", name, bad, test.want, got)
		}
	}
}

// An API server also accepts a Leading record without acquireTime.
func TestExplainSaysSinceWhenAClusterLeads(t *testing.T) {
	for name, test := range map[string]struct {
		acquired, since *metav1.MicroTime
		want            string
	}{
		"a resumed term":               {micro(4 * time.Hour), micro(3 * time.Hour), "east leads since 4h ago"},
		"a record without acquireTime": {nil, micro(3 * time.Hour), "east leads since 3h ago"},
	} {
		r := leading("shop", "east", func(r *v1alpha1.NamespaceLeader) {
			r.Spec.AcquireTime, r.Spec.Since = test.acquired, test.since
		})
		if got, err := run(well(r), []client.Object{elected(time.Second)}, "explain", "shop"); err != nil ||
			!strings.Contains(got, test.want) {
			t.Errorf("%s: %v, want %q in %s", name, err, test.want, got)
		}
	}
}

// Readers may release a term early, and an accepted fence ends one at once.
func TestExplainSaysWhenTheNextTermBegins(t *testing.T) {
	const at, promised = " 2026-03-01T12:00:10.250000Z", ":\n  the last promise of 15s, and a clock skew of 1000ms\n"
	const earliest = "The next term begins at" + at + " at the earliest"
	fence := func(voided *bool) v1alpha1.FenceRecord {
		return v1alpha1.FenceRecord{ClusterUID: "uid-east", AcceptedAt: micro(0), Voided: voided}
	}
	for name, test := range map[string]struct {
		change func(spec *v1alpha1.NamespaceLeaderSpec)
		want   string
	}{
		"everything promised must pass": {func(*v1alpha1.NamespaceLeaderSpec) {}, earliest},
		"readers were asked to release the term": {func(s *v1alpha1.NamespaceLeaderSpec) { s.RevokedEpoch = 6 },
			"The next term begins when all readers have released this one, or else at" + at},
		"a fence is accepted": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Fence = fence(nil) },
			"east must stay off until" + at},
		"a fence is accepted, and the term was revoked": {func(s *v1alpha1.NamespaceLeaderSpec) {
			s.Fence, s.RevokedEpoch = fence(nil), 6
		}, "east must stay off until" + at},
		"a fence is void": {func(s *v1alpha1.NamespaceLeaderSpec) { s.Fence = fence(ptr.To(true)) }, earliest},
	} {
		r := leading("shop", "east", func(r *v1alpha1.NamespaceLeader) {
			r.Spec.State, r.Spec.NotBefore = v1alpha1.StateEnding, micro(-10250*time.Millisecond)
			test.change(&r.Spec)
		})
		got, err := run(well(r), []client.Object{elected(time.Second)}, "explain", "shop")
		if !errors.Is(err, errAttention) || !strings.Contains(got, "\n"+test.want+promised) {
			t.Errorf("%s: %v, want %q in %s", name, err, test.want+promised, got)
		}
	}
}

// A record has no room for all Clusters of a large fleet. One without a priority label takes no part in any.
func TestStatusSaysWhereAClusterIsInNoRecord(t *testing.T) {
	const note = "no record shows it: kubectl -n default describe cluster north"
	missing := func(r *v1alpha1.NamespaceLeader) {
		r.Status.Candidates = append(r.Status.Candidates,
			v1alpha1.Candidate{Name: "north", Reason: reason.NamespaceMissing})
	}
	for name, test := range map[string]struct {
		priority string
		r        v1alpha1.NamespaceLeader
		want     string
	}{
		"it has a priority": {"10", leading("shop", "east"),
			"north    10        Unseen      0      " + note + "\n"},
		"it has no priority": {"", leading("shop", "east"),
			"north    -         NoPriority  0\n"},
		"a record shows that the namespace is missing": {"10", leading("shop", "east", missing),
			"north    10        Unseen      0\n"},
	} {
		s := well(test.r)
		s.clusters = append(s.clusters, cluster("north", test.priority))
		if got, bad := shown(s, 0); !strings.Contains(got, test.want) || bad {
			t.Errorf("%s: attention %t, want %q in\n%s", name, bad, test.want, got)
		}
	}
}

// 1,000 namespaces and 50 Clusters are one screen, and on a narrow terminal no line is longer than it.
func TestStatusIsOneScreen(t *testing.T) {
	s := well()
	for i := range 50 {
		s.clusters = append(s.clusters, cluster(fmt.Sprint("cluster-with-a-long-name-", i), "10"))
	}
	for i := range 1000 {
		s.records = append(s.records, leading(fmt.Sprint("ns-", i), "east"))
	}
	began := time.Now()
	got, bad := shown(s, 60)
	if lines := strings.Count(got, "\n"); lines > 40 || bad || time.Since(began) > time.Second {
		t.Errorf("%d lines within %v:\n%s", lines, time.Since(began), got)
	}
	if table, rest, _ := strings.Cut(got, " more: -o wide shows all"); rest == "" || !strings.Contains(table, "CLUSTER") {
		t.Errorf("the rest of the Clusters is not below their table:\n%s", got)
	}
	for line := range strings.Lines(got[strings.Index(got, "CLUSTER"):]) { // sentences before it are never cut
		if utf8.RuneCountInString(strings.TrimSuffix(line, "\n")) > 60 {
			t.Errorf("too long: %q", line)
		}
	}
}

// status -w is left open during an incident, in which a read may fail.
func TestAWatchedCommandEndsAtAFailureOfItsFirstReadOnly(t *testing.T) {
	broken := errors.New("no answer")
	for name, test := range map[string]struct {
		results []error // of one run after the other; the last one ends it
		printed string
	}{
		"the first read fails":    {[]error{broken}, ""},
		"a later read fails":      {[]error{nil, broken, nil, syscall.EPIPE}, "error: no answer\n"},
		"attention is needed":     {[]error{errAttention, syscall.EPIPE}, ""},
		"nobody reads the output": {[]error{nil, syscall.EPIPE}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var printed strings.Builder
				p, runs := newPlugin(genericiooptions.IOStreams{Out: io.Discard, ErrOut: &printed}), 0
				last := len(test.results) - 1
				err := p.watched(true, func() error {
					runs++
					return test.results[min(runs-1, last)]
				})
				if !errors.Is(err, test.results[last]) || runs != last+1 || printed.String() != test.printed {
					t.Errorf("%v after %d runs, printed %q", err, runs, printed.String())
				}
			})
		})
	}
}

func TestWhatIf(t *testing.T) {
	becomes := func(next, why, waits string) outcome {
		return outcome{Namespace: "shop", Leader: "east", Next: next, Reason: why, Waits: waits}
	}
	good, better := well(leading("shop", "east")), change{priorities: map[string]int32{"west": 200}}
	manual := well(leading("shop", "east"))
	manual.policies[0].Spec.Failover = v1alpha1.Manual
	alone := leading("shop", "east")
	alone.Status.Candidates[1].Eligible, alone.Status.Candidates[1].Reason = false, reason.Paused
	frozen := well(leading("shop", "east"))
	frozen.policies[0].Annotations = map[string]string{v1alpha1.FrozenUntilAnnotation: "2026-03-01T13:00:00Z"}
	mistyped := well(leading("shop", "east")) // the hub takes no freeze beyond a year
	mistyped.policies[0].Annotations = map[string]string{v1alpha1.FrozenUntilAnnotation: "2926-03-01T13:00:00Z"}
	mistyped.records[0].Annotations = mistyped.policies[0].Annotations
	sick := leading("shop", "east")
	sick.Status.Candidates[1].Reason = reason.RequiredUnhealthy
	paused := leading("shop", "east")
	paused.Status.Candidates[0].Eligible, paused.Status.Candidates[0].Reason = false, reason.Paused
	for name, test := range map[string]struct {
		s       *snapshot
		assumed change
		want    outcome
	}{
		"it is lost, and alone":         {well(alone), change{without: "east"}, becomes("", "", "")},
		"it is frozen, and drained":     {frozen, change{drain: "east"}, becomes("east", "", "")},
		"it is frozen for centuries":    {mistyped, change{without: "east"}, becomes("west", "Unreachable", "")},
		"it is drained, the other sick": {well(sick), change{drain: "east"}, becomes("east", "", "")},
		"another one, and it is paused": {well(paused), change{drain: "west"}, becomes("east", "", "")},
		"it is fenced, by hand":         {manual, change{fenced: "east"}, becomes("west", "Fenced", "")},
		"the leader is lost":            {good, change{without: "east"}, becomes("west", "Unreachable", "")},
		"another one is lost":           {good, change{without: "west"}, becomes("east", "", "")},
		"it is lost, by hand":           {manual, change{without: "east"}, becomes("", "", "FailoverPending")},
		"the leader is drained":         {good, change{drain: "east"}, becomes("west", "Drained", "")},
		"it is drained, and alone":      {well(alone), change{drain: "east"}, becomes("east", "", "")},
		"another one gets better":       {good, better, becomes("west", "PriorityChanged", "")},
		"a move":                        {good, change{to: "west"}, becomes("west", "Ordered", "")},
	} {
		if got := test.s.whatIf(test.assumed); !slices.Equal(got, []outcome{test.want}) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	stays := outcome{Namespace: "shop", Leader: "west", Next: "west"}
	if got := well(leading("shop", "west")).whatIf(change{}); !slices.Equal(got, []outcome{stays}) {
		t.Errorf("a better one only came back: %+v", got)
	}
}

// A bundle for support has what the hub reads of the fleet, and no secret.
func TestABundleHoldsNoSecret(t *testing.T) {
	s := well(leading("shop", "east"))
	var archive bytes.Buffer
	b := newBundle(&archive, s)
	event := func(name, by, message string) *corev1.Event {
		return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, ReportingController: by,
			Message: message}
	}
	b.objects(context.Background(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		event("ours", hub.ElectionName, "east leads"), event("theirs", "kubelet", "a-secret")).Build())
	if err := b.close(); err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(&archive)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	files := tar.NewReader(zip)
	for header, err := files.Next(); err == nil; header, err = files.Next() {
		text, _ := io.ReadAll(files)
		names = append(names, header.Name)
		if bytes.Contains(text, []byte("a-secret")) {
			t.Errorf("%s holds a secret", header.Name)
		}
		for file, part := range map[string]string{"clusters": "uid-east", "events": "east leads"} {
			if header.Name == "leasecast/"+file+".yaml" && !bytes.Contains(text, []byte(part)) {
				t.Errorf("%q is missing in %s: %s", part, file, text)
			}
		}
	}
	want := []string{"leasecast/status.yaml", "leasecast/records.yaml", "leasecast/policies.yaml",
		"leasecast/clusters.yaml", "leasecast/events.yaml"}
	if !slices.Equal(names, want) {
		t.Errorf("it has %q", names)
	}
}

func TestInstantOfAnAct(t *testing.T) {
	for until, want := range map[string]string{
		"2h": "2026-03-01T14:00:00Z", "2026-03-02T12:00:00+01:00": "2026-03-02T11:00:00Z",
		"": "", "yesterday": "", "-2h": "", "2026-03-01T11:00:00Z": "", "2028-03-01T11:00:00Z": "",
		"8760h": "2027-03-01T12:00:00Z", "9000h": "", "0s": "",
	} {
		if got, err := (actFlags{until: until}).instant(now); got != want || (err == nil) != (want != "") {
			t.Errorf("--until=%q: %q, %v", until, got, err)
		}
	}
}
