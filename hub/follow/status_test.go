package follow

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet"
)

// has is what a cluster has, with so many objects and problems of a reason.
func has(name string, objects int32, problems int, why reason.Reason) v1alpha1.ClusterResources {
	c := v1alpha1.ClusterResources{Name: name, Role: v1alpha1.RoleFollowers, Objects: ptr.To(objects)}
	for i := range problems {
		c.Problems = append(c.Problems, problem(fmt.Sprintf("ConfigMap shop/%d", i), why, "do it"))
	}
	return c
}

func TestReady(t *testing.T) {
	two := Place{Managed: true, Clusters: map[string]bool{"east": true, "west": true}}
	one := []v1alpha1.ClusterResources{has("east", 3, 0, "")}
	for name, test := range map[string]struct {
		place   Place
		results []v1alpha1.ClusterResources
		want    string
	}{
		"all is in place": {
			two, []v1alpha1.ClusterResources{has("east", 3, 0, ""), has("west", 3, 0, "")}, "True InPlace 2 clusters have",
		},
		"one does not have its role yet": {
			Place{Managed: true, Leader: "east", Clusters: two.Clusters},
			[]v1alpha1.ClusterResources{has("east", 3, 0, ""), has("west", 3, 0, "")}, "Unknown Applying cluster east:",
		},
		"one was not reached yet": {two, one, "Unknown Applying cluster west:"},
		"one has a problem": {
			two, []v1alpha1.ClusterResources{has("east", 3, 0, ""), has("west", 2, 1, reason.Rejected)},
			"False Rejected cluster west: ConfigMap shop/0: do it",
		},
		"one has a problem, and one was not reached yet": {
			two, []v1alpha1.ClusterResources{has("west", 2, 1, reason.Rejected)}, "False Rejected cluster west:",
		},
		"one cannot be reached": {
			two, []v1alpha1.ClusterResources{has("east", 3, 0, ""), {Name: "west", Problems: []v1alpha1.ResourceProblem{
				problem("", reason.Unreachable, "it is away"),
			}}}, "False Unreachable cluster west: it is away",
		},
		"one that is not selected any more has a problem": {
			two, []v1alpha1.ClusterResources{has("east", 3, 0, ""), has("west", 3, 0, ""), {
				Name: "south", Problems: []v1alpha1.ResourceProblem{problem("", reason.Unreachable, "it is away")},
			}}, "False Unreachable cluster south: it is away",
		},
		"no policy": {Place{}, one, "False NotManaged no policy of this hub manages"},
	} {
		set := &v1alpha1.LeaderResourceSet{}
		set.Generation, set.Spec.Namespace = 7, "shop"
		results := map[string]reached{}
		for _, c := range test.results {
			results[c.Name] = reached{c, 7}
		}
		status := statusOf(set, test.place, results, time.Unix(1, 0))
		is := status.Conditions[0]
		got := fmt.Sprintf("%s %s %s", is.Status, is.Reason, is.Message)
		if !strings.HasPrefix(got, test.want) || is.ObservedGeneration != 7 || status.ObservedGeneration != 7 {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
		set.Status = status
		if again := statusOf(set, test.place, results, time.Unix(9, 0)); !again.Conditions[0].LastTransitionTime.Equal(
			&metav1.Time{Time: time.Unix(1, 0)}) {
			t.Errorf("%s: it is written again without a change", name)
		}
	}
}

// A status is bounded, and has those with problems first.
func TestStatusOfManyClusters(t *testing.T) {
	results, place := map[string]reached{}, Place{Managed: true, Clusters: map[string]bool{}}
	for i := range 100 {
		name := fmt.Sprintf("c%02d", i)
		results[name], place.Clusters[name] = reached{ClusterResources: has(name, 1, i/99, reason.Rejected)}, true
	}
	status := statusOf(&v1alpha1.LeaderResourceSet{}, place, results, time.Unix(1, 0))
	if len(status.Clusters) != maxClusters || status.Clusters[0].Name != "c99" || status.Clusters[1].Name != "c00" {
		t.Errorf("%d clusters, the first is %s", len(status.Clusters), status.Clusters[0].Name)
	}
}

// A takeover changes nothing of a status: neither what is in place nor since when.
func TestStatusOfAnEarlierReplicaStands(t *testing.T) {
	c, _, _ := hub(t)
	east, long := has("east", 3, 0, ""), metav1.Unix(-3600, 0)
	east.Role, east.Hash, east.AppliedTime = v1alpha1.RoleLeader, "h", &long
	set := &v1alpha1.LeaderResourceSet{}
	set.Namespace, set.Name, set.Spec.Namespace = "fleet", "set", "shop"
	err := c.client.Create(t.Context(), set)
	set.Status.Clusters = []v1alpha1.ClusterResources{east, has("west", 3, 0, "")} // west is gone since
	musttest.Do(t, errors.Join(err, c.client.Status().Update(t.Context(), set)))
	c.Decided(shop, true)
	name := client.ObjectKeyFromObject(set)
	status := func() v1alpha1.LeaderResourceSetStatus {
		t.Helper()
		_, err := c.reconcileStatus(t.Context(), set)
		musttest.Do(t, errors.Join(err, c.client.Get(t.Context(), name, set)))
		return *set.Status.DeepCopy()
	}
	before := status()
	if got := before.Clusters; len(got) != 1 || !equality.Semantic.DeepEqual(got[0], east) ||
		!meta.IsStatusConditionTrue(before.Conditions, v1alpha1.ConditionReady) {
		t.Errorf("before a pass: %+v", before)
	}
	passed := func(hash string) v1alpha1.LeaderResourceSetStatus {
		t.Helper()
		c.report(set, c.state(set).inCluster("east"), v1alpha1.RoleLeader, &result{hash: hash, placed: 3}, nil)
		return status()
	}
	if after := passed("h"); !equality.Semantic.DeepEqual(after, before) {
		t.Errorf("after a pass with the same hash: %+v, before %+v", after, before)
	}
	if got := passed("i").Clusters[0]; got.Hash != "i" || !got.AppliedTime.Time.Equal(clocktest.Start.Wall) {
		t.Errorf("after a pass with another hash: %+v", got)
	}
}

// Ready is about the newest generation of a set, in each cluster of the policy: here in east, which leads.
func TestReadyAfter(t *testing.T) {
	type world struct {
		*Controller
		set *v1alpha1.LeaderResourceSet
		all members
	}
	pass := func(w *world, role v1alpha1.ClusterRole) {
		w.report(w.set, w.state(w.set).inCluster("east"), role, &result{placed: 3}, nil)
	}
	edit := func(w *world) { w.set.Generation++ }
	member := func(w *world, m fleet.Member) {
		m.Fleet, m.UID, m.Connected = "fleet", "u", true
		w.all[m.Key] = m
		if _, err := w.reconcileIn(t.Context(), w.set, m.Key); err != nil {
			t.Error(err)
		}
	}
	east, west := fleet.Key{Name: "east"}, fleet.Key{Name: "west"}
	for name, test := range map[string]struct {
		do   func(*world)
		then func(*world)
		want string
	}{
		"an edit":            {edit, nil, "Unknown Applying cluster east"},
		"an edit and a pass": {edit, func(w *world) { pass(w, v1alpha1.RoleLeader) }, "True InPlace 1 clusters"},
		"a takeover":         {nil, func(w *world) { clear(w.sets) }, "True InPlace 1 clusters"},
		"an edit, and a takeover before the pass": {edit, func(w *world) { clear(w.sets) }, "Unknown Applying cluster east"},
		"the leader's cluster gives way": {nil, func(w *world) {
			w.giving[shop] = &giving{leader: "east", epoch: 7}
			pass(w, v1alpha1.RoleFollowers)
		}, "True InPlace 1 clusters"},
		"its Cluster is paused": {
			nil, func(w *world) { member(w, fleet.Member{Key: east, Paused: true}) }, "False Paused cluster east: the Cluster",
		},
		"its Cluster is fenced": {
			nil, func(w *world) { member(w, fleet.Member{Key: east, Fenced: "u"}) }, "False Fenced cluster east: the Cluster",
		},
		"its deletion": {nil, func(w *world) {
			w.set.DeletionTimestamp = ptr.To(metav1.NewTime(clocktest.Start.Wall))
			w.set.Finalizers = []string{v1alpha1.SetFinalizer}
		}, "False Deleting not all of its objects are deleted in east: see"},
		"a Cluster without the set is paused": {
			nil, func(w *world) { member(w, fleet.Member{Key: west, Paused: true}) }, "True InPlace 1 clusters",
		},
	} {
		c, _, all := hub(t, v1alpha1.RoleAll)
		w := &world{c, &v1alpha1.LeaderResourceSet{}, all}
		key := types.NamespacedName{Namespace: "fleet", Name: "all"}
		got := ""
		status := func() {
			_, err := c.reconcileStatus(t.Context(), w.set)
			generation := w.set.Generation
			musttest.Do(t, errors.Join(err, c.client.Get(t.Context(), key, w.set)))
			is := meta.FindStatusCondition(w.set.Status.Conditions, v1alpha1.ConditionReady)
			w.set.Generation, got = generation, fmt.Sprintf("%s %s %s", is.Status, is.Reason, is.Message)
		}
		musttest.Do(t, c.client.Get(t.Context(), key, w.set))
		w.set.Generation = 1
		c.Decided(shop, true)
		c.sources.watching[sourcesOf{"fleet", v1alpha1.SourceConfigMap}] = func() {}
		pass(w, v1alpha1.RoleLeader)
		status()
		for _, do := range []func(*world){test.do, test.then} {
			if do != nil {
				do(w)
				status()
			}
		}
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
