package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// awaitIn waits until the status of a set has so many objects in place in a cluster, and the first problem there
// begins with these words: none, if it is empty.
func (w *world) awaitIn(set, cluster string, objects int32, problem string) {
	w.T.Helper()
	w.Eventually(fmt.Sprintf("set %s has %d objects in %s, with the problem %q", set, objects, cluster, problem),
		2*time.Minute, func() error {
			o := &v1alpha1.LeaderResourceSet{}
			must.Do(w.Hub.Get(w.T.Context(), types.NamespacedName{Namespace: w.Fleet, Name: set}, o))
			i := slices.IndexFunc(o.Status.Clusters, func(c v1alpha1.ClusterResources) bool { return c.Name == cluster })
			must.FailIf(i < 0, "%+v", o.Status)
			is, first := o.Status.Clusters[i], ""
			for _, p := range is.Problems[:min(1, len(is.Problems))] {
				first = fmt.Sprintf("%s %s: %s", p.Reason, p.Object, p.Message)
			}
			return must.ErrorIf(ptr.Deref(is.Objects, -1) != objects || !strings.HasPrefix(first, problem) ||
				(first == "") != (problem == ""), "%+v, first problem %q", is, first)
		})
}

// What a set cannot place in a cluster keeps neither its other objects nor other sets from their place.
func TestWhatASetCannotPlaceDisturbsNothingElse(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	w.allow("follow", all...)
	w.source("beside", settings("beside", "a: x"))
	w.resourceSet("beside", a, "beside=All")

	t.Log("a source has 5,000 objects: 500 of them are in place")
	var many []string
	for i := range 5000 {
		many = append(many, settings(fmt.Sprintf("many-%d", i), "a: x"))
	}
	w.source("many", many...)
	w.resourceSet("many", a, "many=Leader")
	w.awaitIn("many", "east", 500, "InvalidSource ConfigMap many, key all.yaml: the sources have more than 500 objects")
	w.source("beside", settings("beside", "a: w"))
	w.setting("east", a, "beside", "map[a:w]")
	w.setting("west", a, "beside", "map[a:w]")
	var list corev1.ConfigMapList
	w.Must(w.Members["east"].List(t.Context(), &list, client.InNamespace(a)))
	placed := slices.DeleteFunc(list.Items, func(o corev1.ConfigMap) bool { return !strings.HasPrefix(o.Name, "many-") })
	if len(placed) != 500 {
		t.Errorf("%d objects are in place", len(placed))
	}
	w.awaitReady("beside", reason.InPlace)

	t.Log("a quota of one cluster rejects one of ten objects")
	w.noServices("south", a)
	ten := []string{"apiVersion: v1\nkind: Service\nmetadata: {name: ten}\nspec: {ports: [{port: 80}]}\n"}
	for i := range 9 {
		ten = append(ten, settings(fmt.Sprintf("ten-%d", i), "a: x"))
	}
	w.source("ten", ten...)
	w.resourceSet("ten", a, "ten=All")
	w.awaitIn("ten", "west", 10, "")
	w.awaitIn("ten", "south", 9, "Rejected Service "+a+"/ten")
	w.awaitReady("ten", reason.Rejected, "cluster south: Service "+a+"/ten", "exceeded quota")
	w.setting("south", a, "ten-8", "map[a:x]")
}

// noServices has the quota of a namespace in a member allow no Service. The controller that writes its status does not
// run.
func (w *world) noServices(member, namespace string) {
	none := corev1.ResourceList{corev1.ResourceServices: resource.MustParse("0")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}}
	quota.Spec.Hard = none
	w.Must(w.Members[member].Create(w.T.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: none, Used: none}
	w.Must(w.Members[member].Status().Update(w.T.Context(), quota))
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "tried"},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	w.Eventually("the quota is in force", soon, func() error {
		err := w.Members[member].Create(w.T.Context(), service.DeepCopy(), client.DryRunAll)
		return must.ErrorIf(!apierrors.IsForbidden(err), "%v", err)
	})
}

// A set that is deleted while a cluster is away stays until its objects there are deleted, too.
func TestADeletedSetWaitsForAClusterThatIsAway(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, brief)
	w.allow("follow", all...)
	w.source("all", settings("here", "a: x"))
	w.resourceSet("set", a, "all=All")
	w.awaitReady("set", reason.InPlace, "3 clusters")
	w.Servers.Member("south").Proxy().BlackHole()
	w.awaitUnfit("south", a, reason.Unreachable)
	w.deleteSet("set")
	w.setting("east", a, "here", "")
	w.setting("west", a, "here", "")
	w.setting("south", a, "here", "map[a:x]")
	w.awaitReady("set", reason.Deleting, "deleted in south:")

	set := &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "set"}}
	w.Must(w.Hub.Get(t.Context(), client.ObjectKeyFromObject(set), set))
	if !slices.Contains(set.Finalizers, v1alpha1.SetFinalizer) {
		t.Errorf("finalizers %v", set.Finalizers)
	}
	w.Servers.Member("south").Proxy().Heal()
	w.Eventually("the set is gone", time.Minute, func() error {
		err := w.Hub.Get(t.Context(), client.ObjectKeyFromObject(set), set)
		return must.ErrorIf(!apierrors.IsNotFound(err), "%v", err)
	})
	o := &corev1.ConfigMap{}
	err := w.Members["south"].Get(t.Context(), types.NamespacedName{Namespace: a, Name: "here"}, o)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the set went before its object in south: %v", unawaited(err))
	}
}
