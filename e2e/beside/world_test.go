// Package beside runs Cluster API's ClusterResourceSets (CRS) and LeaderResourceSets (LRS) in one fleet, with the same
// sources. Each test is a row of the table in config/README.md, and observes both. Another test shows that in a steady
// minute hub and Cluster API write nothing but renewals.
package beside

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	addonsv1 "sigs.k8s.io/cluster-api/api/addons/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

const (
	// soon bounds the wait for what either controller does at once.
	soon = time.Minute
	// addons is the label by which CRSs select Clusters.
	addons = "addons"
	// interval is the least that an LRS may have.
	interval = 10
	// group is that of the kind Shop, which is defined while the tests run.
	group = "beside.example.com"
)

var (
	// led are the clusters of LRSs, and plain is the cluster of CRSs.
	led   = []string{"east", "west"}
	plain = "south"
	all   = append(led, plain)
	// servers and folder are those of TestMain.
	servers *fleet.Fleet
	folder  string
)

func TestMain(m *testing.M) {
	flag.Parse()
	harness.Logs(testing.Verbose())
	os.Exit(fleet.Main(m, all, func(_ context.Context, f *fleet.Fleet, dir string) error {
		servers, folder = f, dir
		return nil
	}))
}

// world is a fleet with both controllers.
type world struct{ *harness.World }

// newWorld starts both controllers, and returns when east leads the namespaces.
func newWorld(t *testing.T, namespaces ...string) *world {
	w := &world{harness.NewWorld(t, servers, "shops", "leasecast-system",
		harness.PolicyTimings(15*time.Second, time.Second, 5*time.Second, 250*time.Millisecond))}
	w.Must(addonsv1.AddToScheme(w.Hub.Scheme()))
	w.startCoreManager()
	collector := harness.Get(harness.StartControllers(servers.Hub(), folder, "garbage-collector-controller",
		"--leader-elect=false"))(t)
	t.Cleanup(func() { w.Must(collector.Stop()) })
	for i, name := range all {
		w.provide(name, fmt.Sprint(100-i))
	}
	w.label(plain, addons, ptr.To("yes"))
	for _, name := range led {
		w.Must(harness.Apply(t.Context(), servers.Member(name), "follow"))
		w.Must(w.Members[name].Create(t.Context(), &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{
				Name: "follow-shops", Labels: map[string]string{"leasecast.dev/aggregate-to-follow": "true"},
			},
			Rules: []rbacv1.PolicyRule{{
				APIGroups: []string{group}, Resources: []string{"shops"},
				Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
			}},
		}))
	}
	for _, name := range namespaces {
		w.Namespace(name, all...)
	}
	p := w.NewPolicy("p", namespaces...)
	p.Spec.ClusterSelector = onlyPriorities("100", "99")
	w.Must(w.Hub.Create(t.Context(), p))
	w.StartHub(servers.Hub().AdminConfig())
	for _, name := range namespaces {
		w.Leads("east", name, 2*soon, led...)
	}
	w.awaitConditions(plain, "RemoteConnectionProbe=True")
	return w
}

// onlyPriorities selects Clusters by their priority.
func onlyPriorities(values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1alpha1.PriorityLabel, Operator: metav1.LabelSelectorOpIn, Values: values},
	}}
}

// label sets or removes a label of a Cluster.
func (w *world) label(cluster, key string, value *string) {
	harness.Edit(w.T, w.Hub, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: cluster}},
		func(c *clusterv1.Cluster) {
			delete(c.Labels, key)
			if value != nil {
				c.Labels[key] = *value
			}
		})
}

// row is a row of the table. Its namespace in the members, its CRS and its LRS have one name.
type row struct {
	*world
	name string
}

// manifest is a ConfigMap with one entry.
func (r *row) manifest(name, entry string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {%s}\n", name, r.name,
		entry)
}

// source writes a ConfigMap with manifests beside the sets.
func (r *row) source(name string, manifests ...string) {
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: r.Fleet, Name: r.name + "-" + name}}
	_, err := controllerutil.CreateOrUpdate(r.T.Context(), r.Hub, o, func() error {
		o.Data = map[string]string{"all.yaml": strings.Join(manifests, "---\n")}
		return nil
	})
	r.Must(err)
}

// createSets creates both sets with these sources, each a ConfigMap or, as in "Secret/name", a Secret.
func (r *row) createSets(sources ...string) {
	var refs []addonsv1.ResourceRef
	var resources []v1alpha1.LeaderResource
	for _, s := range sources {
		kind, name, is := strings.Cut(s, "/")
		if !is {
			kind, name = "ConfigMap", s
		}
		name = r.name + "-" + name
		refs = append(refs, addonsv1.ResourceRef{Kind: kind, Name: name})
		resources = append(resources,
			v1alpha1.LeaderResource{Kind: v1alpha1.SourceKind(kind), Name: name, For: v1alpha1.RoleAll})
	}
	r.createLRS(resources...)
	r.createCRS(metav1.LabelSelector{MatchLabels: map[string]string{addons: "yes"}}, refs...)
}

func (r *row) createLRS(resources ...v1alpha1.LeaderResource) {
	o := r.lrs()
	o.Spec = v1alpha1.LeaderResourceSetSpec{Namespace: r.name, Resources: resources, IntervalSeconds: interval}
	r.Must(r.Hub.Create(r.T.Context(), o))
}

func (r *row) createCRS(clusters metav1.LabelSelector, resources ...addonsv1.ResourceRef) {
	o := r.crs()
	o.Spec = addonsv1.ClusterResourceSetSpec{
		ClusterSelector: clusters, Resources: resources, Strategy: string(addonsv1.ClusterResourceSetStrategyReconcile),
	}
	r.Must(r.Hub.Create(r.T.Context(), o))
}

func (r *row) lrs() *v1alpha1.LeaderResourceSet {
	return &v1alpha1.LeaderResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.Fleet, Name: r.name}}
}

func (r *row) crs() *addonsv1.ClusterResourceSet {
	return &addonsv1.ClusterResourceSet{ObjectMeta: metav1.ObjectMeta{Namespace: r.Fleet, Name: r.name}}
}

// start has both sets keep one object in place, by the source a.
func (r *row) start(entry string) {
	r.source("a", r.manifest("one", entry))
	r.createSets("a")
	r.awaitInAll("one", fmt.Sprintf("map[%s]", strings.NewReplacer(": ", ":", ", ", " ").Replace(entry)))
	r.awaitCRSApplied(plain)
}

// awaitCRSApplied waits until the CRS has recorded that it has applied each source in a cluster.
func (r *row) awaitCRSApplied(cluster string) {
	r.Eventually("the CRS is applied in "+cluster, soon, func() error {
		applied := r.bindings(cluster)
		must.FailIf(len(applied) == 0, "there is no binding")
		for _, b := range applied {
			must.FailIf(!ptr.Deref(b.Applied, false), "%+v", b)
		}
		return nil
	})
}

// bindings are the records of the CRS about its sources in a cluster.
func (r *row) bindings(cluster string) []addonsv1.ResourceBinding {
	o := &addonsv1.ClusterResourceSetBinding{}
	err := r.Hub.Get(r.T.Context(), types.NamespacedName{Namespace: r.Fleet, Name: cluster}, o)
	r.Must(client.IgnoreNotFound(err))
	for _, b := range o.Spec.Bindings {
		if b.ClusterResourceSetName == r.name {
			return b.Resources
		}
	}
	return nil
}

// reconcileCRS adds a source to the CRS, and returns when it is applied, which is after the sources before it.
func (r *row) reconcileCRS() {
	r.source("later", r.manifest("later", "z: z"))
	r.addToCRS("later")
	r.awaitIn(plain, "later", "map[z:z]")
}

func (r *row) addToCRS(source string) {
	harness.Edit(r.T, r.Hub, r.crs(), func(o *addonsv1.ClusterResourceSet) {
		o.Spec.Resources = append(o.Spec.Resources,
			addonsv1.ResourceRef{Kind: "ConfigMap", Name: r.name + "-" + source})
	})
}

// get reads a ConfigMap in a cluster, or returns nil if there is none.
func (r *row) get(cluster, name string) *corev1.ConfigMap {
	o := &corev1.ConfigMap{}
	err := r.Members[cluster].Get(r.T.Context(), types.NamespacedName{Namespace: r.name, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil
	}
	r.Must(err)
	return o
}

// is reports whether a ConfigMap has this data, as fmt prints it. Empty: there is none.
func (r *row) is(cluster, name, want string) error {
	got := ""
	if o := r.get(cluster, name); o != nil {
		got = fmt.Sprint(o.Data)
	}
	return must.ErrorIf(got != want, "%s has %.99q", cluster, got)
}

func (r *row) awaitIn(cluster, name, want string) {
	r.T.Helper()
	r.Eventually(fmt.Sprintf("%s has %s with %.99q", cluster, name, want), soon, func() error {
		return r.is(cluster, name, want)
	})
}

// awaitInLed waits until a ConfigMap has this data in the clusters of the LRS, and awaitInAll in all.
func (r *row) awaitInLed(name, want string) {
	r.T.Helper()
	for _, c := range led {
		r.awaitIn(c, name, want)
	}
}

func (r *row) awaitInAll(name, want string) {
	r.T.Helper()
	r.awaitInLed(name, want)
	r.awaitIn(plain, name, want)
}

// checkPlain checks that a ConfigMap has this data in the cluster of the CRS now.
func (r *row) checkPlain(name, want string) {
	r.T.Helper()
	if err := r.is(plain, name, want); err != nil {
		r.T.Errorf("%s: %v, want %q", name, err, want)
	}
}

// inEach runs an act with the client of each cluster.
func (r *row) inEach(act func(c client.Client) error) {
	r.T.Helper()
	for _, name := range all {
		r.Must(act(r.Members[name]))
	}
}

// change edits an object in each cluster, as kubectl edit does.
func (r *row) change(o client.Object, patch string) {
	r.T.Helper()
	o.SetNamespace(r.name)
	r.inEach(func(c client.Client) error {
		return c.Patch(r.T.Context(), o.DeepCopyObject().(client.Object),
			client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-edit"))
	})
}

// one names the ConfigMap of start.
func one() *corev1.ConfigMap { return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "one"}} }

// awaitLRS waits until the condition Ready of the LRS has a reason, and a message with these words.
func (r *row) awaitLRS(why reason.Reason, words ...string) {
	r.T.Helper()
	r.Eventually("the LRS is "+string(why), soon, func() error {
		o := r.lrs()
		must.Do(r.Hub.Get(r.T.Context(), client.ObjectKeyFromObject(o), o))
		is := meta.FindStatusCondition(o.Status.Conditions, "Ready")
		must.FailIf(is == nil || is.Reason != string(why), "%+v", o.Status)
		for _, word := range words {
			must.FailIf(!strings.Contains(is.Message, word), "%q does not say %q", is.Message, word)
		}
		return nil
	})
}
