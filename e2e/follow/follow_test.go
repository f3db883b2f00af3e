// Package follow tests a stock Deployment that follows the leader: the sample of config, a hub process under the RBAC
// of config, and in each member the real Deployment controller and a fake node.
package follow

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/e2e/process"
)

var (
	rounds = flag.Int("rounds", 2, "how many planned changes, and how many failovers")
	file   = flag.String("report", "", "file for the figures; empty: none")
)

const (
	// namespace and name are those of the sample's Deployment.
	namespace, name = "web", "web"
	// replicas is how many Pods of it run where the leader is.
	replicas = 2
	// patience bounds the wait for a step of a change.
	patience = time.Minute
	// back bounds how long a lost cluster runs its Pods after the hub can reach it again.
	back = 30 * time.Second
	// settling is how long after the end of a term a busy machine may begin the next one. A change that waits for Pods
	// takes longer.
	settling = 2 * time.Second
)

var (
	clusters = []string{"east", "west"}
	timings  = lease.Timings{Duration: 8 * time.Second, Renew: time.Second, Timeout: 2 * time.Second,
		Skew: 250 * time.Millisecond}
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Quiet()
	os.Exit(m.Run())
}

// testbed is a drill with the sample in place. The maps are by member.
type testbed struct {
	*harness.Drill
	t           *testing.T
	view        *harness.View
	pods        map[string]*harness.Watch[*corev1.Pod]
	controllers map[string]*process.Process
}

func newTestbed(t *testing.T) *testbed {
	d := harness.New(t, harness.Options{Timings: timings, Members: harness.Members(clusters, namespace)})
	s := &testbed{Drill: d, t: t, view: d.LookFor(t), pods: map[string]*harness.Watch[*corev1.Pod]{},
		controllers: map[string]*process.Process{}}
	t.Cleanup(func() {
		for _, p := range s.controllers {
			musttest.Do(t, p.Stop())
		}
	})
	for _, m := range clusters {
		s.must(d.Allow(t.Context(), m, "follow"))
		startNode(t, d.Fleet.Member(m))
		s.pods[m] = musttest.Get(harness.Observe(t.Context(), d.Members[m], &corev1.PodList{}, &corev1.Pod{},
			client.InNamespace(namespace)))(t)
		t.Cleanup(s.pods[m].Stop)
		s.startControllers(m)
	}
	raw := musttest.Get(os.ReadFile("../../config/samples/follow.yaml"))(t)
	for text := range strings.SplitSeq(string(raw), "\n---\n") {
		o := &unstructured.Unstructured{}
		s.must(yaml.Unmarshal([]byte(text), &o.Object))
		if o.GetKind() == "LeadershipPolicy" {
			continue // the drill has one, with shorter terms
		}
		s.must(d.Hub.Create(t.Context(), o))
	}
	s.awaitRuns(s.leader(""), replicas, patience)
	return s
}

// startControllers runs what turns Deployments into Pods in a member.
func (s *testbed) startControllers(member string) {
	p, err := s.StartControllers(member, "deployment-controller,replicaset-controller", "--leader-elect=false")
	s.must(err)
	s.controllers[member] = p
}

func (s *testbed) must(err error) {
	s.t.Helper()
	musttest.Do(s.t, err)
}

// leader waits until another cluster than that leads.
func (s *testbed) leader(than string) string {
	s.t.Helper()
	return musttest.Get(s.AwaitLeader(s.t.Context(), namespace, than))(s.t)
}

// ran is when a Pod was bound to a node and had not ended. To is harness.Unfinished while it runs.
func (s *testbed) ran(member string) []harness.Span {
	var spans []harness.Span
	index := map[types.UID]int{}
	for _, seen := range s.pods[member].Seen() {
		i, known := index[seen.Object.UID]
		switch ends := seen.Gone || hasEnded(seen.Object); {
		case !known && !ends && seen.Object.Spec.NodeName != "":
			index[seen.Object.UID] = len(spans)
			spans = append(spans, harness.Span{From: seen.At.Boot, To: harness.Unfinished})
		case known && ends:
			spans[i].To = min(spans[i].To, seen.At.Boot)
		}
	}
	return spans
}

// awaitRuns waits until so many Pods run in a member, and its Deployment reports them as ready.
func (s *testbed) awaitRuns(member string, pods int, limit time.Duration) {
	s.t.Helper()
	s.Eventually(s.t, limit, fmt.Sprintf("%d Pods run in %s", pods, member), func(ctx context.Context) error {
		o := &appsv1.Deployment{}
		must.Do(s.Members[member].Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o))
		running := 0
		for _, span := range s.ran(member) {
			if span.To == harness.Unfinished {
				running++
			}
		}
		return must.ErrorIf(running != pods || int(o.Status.ReadyReplicas) != pods, "%d run, %+v", running, o.Status)
	})
}

// both returns the time from the first Pod of a cluster after an instant to the last one of the old leader. It is
// negative if nobody ran any in between.
func (s *testbed) both(old, next string, since time.Duration) time.Duration {
	s.t.Helper()
	var last, first time.Duration = 0, harness.Unfinished
	for _, span := range s.ran(old) {
		last = max(last, span.To)
	}
	for _, span := range s.ran(next) {
		if span.From >= since {
			first = min(first, span.From)
		}
	}
	if last == harness.Unfinished || first == harness.Unfinished {
		s.t.Fatalf("%s ran until %v, %s since %v", old, last, next, first)
	}
	return last - first
}

// order begins a planned change from the leader.
func (s *testbed) order() (old, next string) {
	s.t.Helper()
	old = s.leader("")
	next = clusters[1-slices.Index(clusters, old)]
	s.must(s.AwaitEligible(s.t.Context(), patience, next, namespace))
	o := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: harness.FleetNamespace, Name: namespace}}
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.MoveToAnnotation, next)
	s.must(s.Hub.Patch(s.t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))))
	return old, next
}

// moved waits for the end of a planned change, and returns how long both clusters ran Pods.
func (s *testbed) moved(old, next string, began time.Duration) time.Duration {
	s.t.Helper()
	s.leader(old)
	s.awaitRuns(next, replicas, patience)
	s.awaitRuns(old, 0, patience)
	both := s.both(old, next, began)
	if both > 0 {
		s.t.Errorf("both clusters ran Pods for %v", both)
	}
	return both
}

// failOver loses the leader until the next one runs its Pods. It returns how long after the end of the old term the
// next one began, how long both clusters ran Pods, and how long the lost one did when it was back.
func (s *testbed) failOver() (late, both, after time.Duration) {
	old, began := s.leader(""), harness.Now().Boot
	var next string
	var healed time.Duration
	s.must(s.FailOver(s.t.Context(), namespace, func(_ context.Context, leader string) error {
		next = leader
		s.awaitRuns(next, replicas, patience)
		s.awaitRuns(old, replicas, patience) // a lost cluster runs on
		healed = harness.Now().Boot
		return nil
	}))
	s.awaitRuns(old, 0, back)
	granted := harness.BootOf(musttest.Get(s.Record(s.t.Context(), namespace))(s.t).Spec.AcquireTime.Time, harness.Now())
	stamp, ok := harness.LastRenewTime(s.view.Leases[old].Seen(), namespace, granted)
	if !ok {
		s.must(errors.New("no Lease let the lost cluster lead"))
	}
	both = s.both(old, next, began)
	var last time.Duration
	for _, span := range s.ran(old) {
		last = max(last, span.To)
	}
	return granted - stamp - timings.Duration - timings.Skew, both, last - healed
}

// spread is the smallest, the middle and the largest of some figures.
type spread struct {
	Min    float64 `json:"min"`
	Median float64 `json:"median"`
	Max    float64 `json:"max"`
}

func spreadOf(all []time.Duration) spread {
	all = slices.Sorted(slices.Values(all))
	return spread{all[0].Seconds(), all[len(all)/2].Seconds(), all[len(all)-1].Seconds()}
}

func (s spread) String() string { return fmt.Sprintf("%.2f, %.2f, %.2f s", s.Min, s.Median, s.Max) }

// figures is out/follow.json.
type figures struct {
	// Rounds is how many planned changes there were, and how many failovers.
	Rounds int `json:"rounds"`
	// Overlap is how long Pods of both clusters ran at once in all planned changes, and Gap how long none ran in one.
	Overlap float64 `json:"plannedOverlapSeconds"`
	Gap     spread  `json:"plannedGapSeconds"`
	// Late is how long after the old term had ended the next one began, Both how long Pods of both clusters ran, and
	// Back how long the lost cluster ran them after the hub could reach it again.
	Late spread `json:"failoverLateSeconds"`
	Both spread `json:"failoverBothSeconds"`
	Back spread `json:"failoverBackSeconds"`
}

func TestPodsFollowTheLeader(t *testing.T) {
	s := newTestbed(t)
	f := figures{Rounds: *rounds}
	for _, test := range []struct {
		name string
		do   func(*testbed, *figures)
	}{
		{"a planned change waits for controllers that are away", func(s *testbed, _ *figures) { s.moveWithoutControllers() }},
		{"Pods of both clusters never run at once in a planned change", (*testbed).moveAll},
		{"a failover does not wait for Pods, and the lost cluster stops its own when it is back", (*testbed).failOverAll},
	} {
		t.Run(test.name, func(t *testing.T) {
			s.t = t
			test.do(s, &f)
		})
	}
	s.t = t
	t.Logf("%+v", f)
	if *file != "" && !t.Failed() {
		s.must(harness.WriteReport(*file, f))
	}
}

func (s *testbed) moveAll(f *figures) {
	var gaps []time.Duration
	for i := range *rounds {
		began := harness.Now().Boot
		old, next := s.order()
		both := s.moved(old, next, began)
		s.t.Logf("planned change %d: nobody ran Pods for %v", i+1, -both)
		f.Overlap += max(0, both).Seconds()
		gaps = append(gaps, max(0, -both))
	}
	f.Gap = spreadOf(gaps)
}

func (s *testbed) failOverAll(f *figures) {
	var lates, boths, backs []time.Duration
	for i := range *rounds {
		late, both, back := s.failOver()
		s.t.Logf("failover %d: granted %v after the end of the term; both clusters ran Pods for %v, and the lost one for %v "+
			"after it was back", i+1, late, both, back)
		if late < 0 || late > settling {
			s.t.Errorf("failover %d: granted %v after the end of the term", i+1, late)
		}
		lates, boths, backs = append(lates, late), append(boths, both), append(backs, back)
	}
	f.Late, f.Both, f.Back = spreadOf(lates), spreadOf(boths), spreadOf(backs)
}

// moveWithoutControllers makes a planned change while the old leader has no Pod and no controllers, but a ReplicaSet
// with replicas: a controller that starts creates its Pods before another one scales it.
func (s *testbed) moveWithoutControllers() {
	began, ctx := harness.Now().Boot, s.t.Context()
	leader := s.leader("")
	s.must(s.controllers[leader].Stop())
	s.must(s.Members[leader].DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(namespace)))
	s.Eventually(s.t, patience, "no Pod is left", func(ctx context.Context) error {
		var list corev1.PodList
		must.Do(s.Members[leader].List(ctx, &list, client.InNamespace(namespace)))
		return must.ErrorIf(len(list.Items) > 0, "%d are", len(list.Items))
	})
	old, next := s.order()
	s.must(must.Stay(ctx, timings.Duration+timings.Skew+settling, old+" leads on", func(ctx context.Context) error {
		return must.ErrorIf(must.Get(s.Record(ctx, namespace)).Spec.Leader != old, "it does not")
	}))
	s.startControllers(old)
	s.moved(old, next, began)
}
