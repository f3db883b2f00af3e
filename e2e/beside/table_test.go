package beside

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// theTable has a name and a test for each row.
var theTable = []struct {
	name string
	test func(*row)
}{
	{"a definition comes later", (*row).definitionLater},
	{"the leader changes", (*row).leaderChanges},
	{"the source changes", (*row).sourceChanges},
	{"a field leaves the source", (*row).fieldLeaves},
	{"an object leaves the source", (*row).objectLeaves},
	{"an edit of a ConfigMap in the member", (*row).objectEdited},
	{"a deletion in the member", (*row).objectDeleted},
	{"an edit of a label of an object with a spec", (*row).labelEdited},
	{"another manager has applied a field", (*row).appliedByOther},
	{"a source is missing or wrong", (*row).sourceWrong},
	{"a source is a Secret of another type", (*row).secretOfAnotherType},
	{"a source of 1 MiB", (*row).largeSource},
	{"the set is deleted", (*row).setDeleted},
}

func TestClusterResourceSetBesideLeaderResourceSet(t *testing.T) {
	namespaces := []string{"unselected"}
	for i := range theTable {
		namespaces = append(namespaces, fmt.Sprintf("row-%d", i))
	}
	w := newWorld(t, namespaces...)
	on := func(t *testing.T, name string) *row { return &row{&world{w.On(t)}, name} }
	t.Run("when", func(t *testing.T) {
		for i, story := range theTable {
			t.Run(story.name, func(t *testing.T) {
				t.Parallel()
				story.test(on(t, fmt.Sprintf("row-%d", i)))
			})
		}
	})
	// It edits a Cluster and the policy, on which the others depend.
	t.Run("when the cluster is not selected any more", func(t *testing.T) { on(t, "unselected").clusterUnselected() })
}

func (r *row) sourceChanges() {
	r.start("a: x")
	r.source("a", r.manifest("one", "a: v"))
	r.awaitInAll("one", "map[a:v]")
}

func (r *row) fieldLeaves() {
	r.start("a: x, b: w")
	r.change(one(), `{"data":{"c":"c"},"metadata":{"annotations":{"edited":"yes"}}}`)
	r.source("a", r.manifest("one", "a: x"))
	r.awaitInLed("one", "map[a:x c:c]")
	r.awaitIn(plain, "one", "map[a:x]")
	for cluster, want := range map[string]string{"east": "yes", "west": "yes", plain: ""} {
		if got := r.get(cluster, "one").Annotations["edited"]; got != want {
			r.T.Errorf("%s: annotation %q, want %q", cluster, got, want)
		}
	}
}

func (r *row) objectLeaves() {
	r.source("a", r.manifest("one", "a: x"), r.manifest("two", "b: w"))
	r.createSets("a")
	r.awaitInAll("two", "map[b:w]")
	r.source("a", r.manifest("one", "a: v"))
	r.awaitInAll("one", "map[a:v]")
	r.awaitInLed("two", "")
	r.awaitCRSApplied(plain)
	r.checkPlain("two", "map[b:w]")
}

func (r *row) objectEdited() {
	r.start("a: x")
	r.change(one(), `{"data":{"a":"drift"}}`)
	r.awaitInLed("one", "map[a:x]")
	r.reconcileCRS()
	r.checkPlain("one", "map[a:drift]")
	r.source("a", r.manifest("one", "a: x, b: w")) // another source: all is applied
	r.awaitInAll("one", "map[a:x b:w]")
}

func (r *row) objectDeleted() {
	r.start("a: x")
	r.inEach(func(c client.Client) error {
		o := one()
		o.Namespace = r.name
		return c.Delete(r.T.Context(), o)
	})
	r.awaitInLed("one", "map[a:x]")
	r.reconcileCRS()
	r.checkPlain("one", "")
	r.source("a", r.manifest("one", "a: v"))
	r.awaitInAll("one", "map[a:v]")
}

func (r *row) labelEdited() {
	r.source("a", fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: shop, namespace: %s, labels: {tier: front}}
spec:
  replicas: 0
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: shop}]}
`, r.name))
	r.createSets("a")
	tier := func(cluster, want string) error {
		o := &appsv1.Deployment{}
		must.Do(r.Members[cluster].Get(r.T.Context(), types.NamespacedName{Namespace: r.name, Name: "shop"}, o))
		return must.ErrorIf(o.Labels["tier"] != want, "%s: tier %q", cluster, o.Labels["tier"])
	}
	await := func(clusters []string, want string) {
		for _, c := range clusters {
			r.Eventually("the Deployment's tier is "+want, soon, func() error { return tier(c, want) })
		}
	}
	await(all, "front")
	r.awaitCRSApplied(plain)
	r.change(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, `{"metadata":{"labels":{"tier":"drift"}}}`)
	await(led, "front")
	r.reconcileCRS()
	r.Must(tier(plain, "drift"))
}

func (r *row) appliedByOther() {
	r.inEach(func(c client.Client) error {
		o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": "first", "b": "first"}}}
		o.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
		o.SetNamespace(r.name)
		o.SetName("one")
		return c.Apply(r.T.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("argocd"))
	})
	r.source("a", r.manifest("one", "a: second"))
	r.createSets("a")
	r.awaitIn(plain, "one", "map[a:second]")
	r.awaitLRS(reason.AppliedByOther, "ConfigMap "+r.name+"/one", "argocd")
	r.awaitInLed("one", "map[a:first b:first]")
	harness.Edit(r.T, r.Hub, r.lrs(), func(o *v1alpha1.LeaderResourceSet) { o.Spec.Force = true })
	r.awaitInLed("one", "map[a:second b:first]")
	r.awaitLRS(reason.InPlace)
}

func (r *row) sourceWrong() {
	r.source("wrong", "this is no manifest, but a text that opens a list: [")
	r.source("good", r.manifest("one", "a: x"))
	r.createSets("missing", "wrong", "good")
	r.awaitInAll("one", "map[a:x]")
	r.awaitLRS(reason.InvalidSource, "there is no ConfigMap "+r.name+"-missing")
	r.source("wrong", r.manifest("two", "b: w"))
	r.awaitInAll("two", "map[b:w]")
}

func (r *row) secretOfAnotherType() {
	secret := func(kind corev1.SecretType) *corev1.Secret {
		return &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: r.Fleet, Name: r.name + "-opaque"}, Type: kind,
			StringData: map[string]string{"all.yaml": r.manifest("two", "b: w")},
		}
	}
	r.Must(r.Hub.Create(r.T.Context(), secret(corev1.SecretTypeOpaque)))
	r.source("good", r.manifest("one", "a: x"))
	r.createSets("good", "Secret/opaque")
	r.awaitInLed("one", "map[a:x]")
	r.awaitLRS(reason.InvalidSource, "must have the type addons.cluster.x-k8s.io/resource-set")
	r.Eventually("the CRS reports the type", soon, func() error {
		o := r.crs()
		must.Do(r.Hub.Get(r.T.Context(), client.ObjectKeyFromObject(o), o))
		is := meta.FindStatusCondition(o.Status.Conditions, addonsv1.ClusterResourceSetResourcesAppliedCondition)
		return must.ErrorIf(is == nil || is.Reason != addonsv1.ClusterResourceSetResourcesAppliedWrongSecretTypeReason,
			"%+v", is)
	})
	r.checkPlain("one", "")
	r.Must(r.Hub.Delete(r.T.Context(), secret("")))
	r.Must(r.Hub.Create(r.T.Context(), secret(addonsv1.ClusterResourceSetSecretType)))
	r.awaitInAll("two", "map[b:w]")
	r.awaitIn(plain, "one", "map[a:x]")
}

// A ConfigMap has at most 1 MiB.
func (r *row) largeSource() {
	const most = 1 << 20
	for _, letter := range []string{"x", "y"} {
		value := strings.Repeat(letter, most-len(r.manifest("one", "a: ")))
		r.source("a", r.manifest("one", "a: "+value))
		if letter == "x" {
			r.createSets("a")
		}
		r.awaitInAll("one", "map[a:"+value+"]")
	}
	r.awaitLRS(reason.InPlace)
}

func (r *row) setDeleted() {
	r.start("a: x")
	r.Must(r.Hub.Delete(r.T.Context(), r.crs()))
	r.awaitGone(r.crs())
	// It owns its sources, so the garbage collector deletes the source of both.
	r.awaitGone(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Fleet, Name: r.name + "-a"}})
	r.awaitLRS(reason.InvalidSource, "there is no ConfigMap "+r.name+"-a")
	r.awaitInAll("one", "map[a:x]")
	r.Must(r.Hub.Delete(r.T.Context(), r.lrs()))
	r.awaitGone(r.lrs())
	r.awaitInLed("one", "")
	r.checkPlain("one", "map[a:x]")
}

// awaitGone waits until there is no such object on the management cluster.
func (r *row) awaitGone(o client.Object) {
	r.T.Helper()
	r.Eventually(fmt.Sprintf("%T %s is gone", o, o.GetName()), soon, func() error {
		err := r.Hub.Get(r.T.Context(), client.ObjectKeyFromObject(o), o)
		return must.ErrorIf(!apierrors.IsNotFound(err), "%v", err)
	})
}

func (r *row) definitionLater() {
	shop := &unstructured.Unstructured{}
	shop.SetGroupVersionKind(schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Shop"})
	shop.SetNamespace(r.name)
	shop.SetName("corner")
	text := fmt.Sprintf("apiVersion: %s/v1\nkind: Shop\nmetadata: {name: corner, namespace: %s}\n", group, r.name)
	r.source("a", r.manifest("one", "a: x"), text)
	r.createSets("a")
	r.awaitInAll("one", "map[a:x]")
	r.awaitLRS(reason.NoSuchKind, "Shop "+r.name+"/corner")

	var last time.Time
	r.Eventually("the CRS pauses for 6 s or more", 2*soon, func() error {
		was, now := last, r.bindings(plain)
		must.FailIf(len(now) == 0, "there is no binding")
		last = now[0].LastAppliedTime.Time
		return must.ErrorIf(was.IsZero() || last.Sub(was) < 6*time.Second, "the last pause was %v", last.Sub(was))
	})
	r.inEach(func(c client.Client) error { return c.Create(r.T.Context(), definition()) })
	has := func(cluster string) error {
		return r.Members[cluster].Get(r.T.Context(), client.ObjectKeyFromObject(shop), shop.DeepCopy())
	}
	begin := time.Now()
	for _, c := range led {
		r.Eventually("the Shop is in "+c, soon, func() error { return has(c) })
	}
	r.T.Logf("the LRS needed %v", time.Since(begin))
	if now := r.bindings(plain)[0].LastAppliedTime.Time; !now.Equal(last) { // the next pause is longer still
		r.T.Errorf("the CRS has tried at %v, after %v", now, last)
	}
	r.awaitLRS(reason.InPlace)
	r.source("a", r.manifest("one", "a: v"), text)
	r.Eventually("the Shop is in the cluster of the CRS", soon, func() error { return has(plain) })
}

// definition defines the kind Shop.
func definition() *apiextensionsv1.CustomResourceDefinition {
	o := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "shops." + group}}
	o.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Shop", Plural: "shops"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
			},
		}},
	}
	return o
}

// The CRS selects all clusters.
func (r *row) leaderChanges() {
	r.source("leader", r.manifest("one", "role: leader"))
	r.source("followers", r.manifest("one", "role: follower"))
	r.createLRS(
		v1alpha1.LeaderResource{Kind: v1alpha1.SourceConfigMap, Name: r.name + "-leader", For: v1alpha1.RoleLeader},
		v1alpha1.LeaderResource{Kind: v1alpha1.SourceConfigMap, Name: r.name + "-followers", For: v1alpha1.RoleFollowers})
	r.source("plain", r.manifest("plain", "role: leader"))
	r.createCRS(metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.PriorityLabel, Operator: metav1.LabelSelectorOpExists},
	}}, addonsv1.ResourceRef{Kind: "ConfigMap", Name: r.name + "-plain"})
	versions := map[string]string{}
	for _, c := range all {
		r.awaitIn(c, "plain", "map[role:leader]")
		r.awaitCRSApplied(c)
		versions[c] = r.get(c, "plain").ResourceVersion
	}
	r.awaitIn("east", "one", "map[role:leader]")
	r.awaitIn("west", "one", "map[role:follower]")

	record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: r.Fleet, Name: r.name}}
	harness.Edit(r.T, r.Hub, record, func(o *v1alpha1.NamespaceLeader) {
		metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.MoveToAnnotation, "west")
	})
	r.Leads("west", r.name, soon, led...)
	r.awaitIn("west", "one", "map[role:leader]")
	r.awaitIn("east", "one", "map[role:follower]")
	for c, was := range versions {
		if is := r.get(c, "plain").ResourceVersion; is != was {
			r.T.Errorf("%s: the CRS has written, version %s after %s", c, is, was)
		}
	}
	r.source("plain", r.manifest("plain", "role: any"))
	for _, c := range all {
		r.awaitIn(c, "plain", "map[role:any]")
	}
}

func (r *row) clusterUnselected() {
	r.start("a: x")
	r.label(plain, addons, nil)
	harness.Edit(r.T, r.Hub, &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: r.Fleet, Name: "p"}},
		func(p *v1alpha1.LeadershipPolicy) { p.Spec.ClusterSelector = onlyPriorities("100") })
	r.awaitIn("west", "one", "")
	r.source("later", r.manifest("later", "z: z"))
	r.addToCRS("later")
	r.Eventually("the CRS is reconciled", soon, func() error {
		o := r.crs()
		must.Do(r.Hub.Get(r.T.Context(), client.ObjectKeyFromObject(o), o))
		return must.ErrorIf(o.Status.ObservedGeneration != o.Generation, "%+v", o.Status)
	})
	r.checkPlain("later", "")
	r.checkPlain("one", "map[a:x]")
	r.source("a", r.manifest("one", "a: v"))
	r.awaitIn("east", "one", "map[a:v]")
}
