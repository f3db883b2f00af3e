package crd_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

func TestCRDs(t *testing.T) {
	shortNames := map[string][]string{
		"leadershippolicies.leasecast.dev": {"lspol"},
		"namespaceleaders.leasecast.dev":   {"nsleader"},
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for name, short := range shortNames {
		t.Run(name, func(t *testing.T) {
			crd, err := client.CustomResourceDefinitions().Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := crd.Spec.Names.ShortNames; !slices.Equal(got, short) {
				t.Errorf("short names %v, want %v", got, short)
			}
			if got := crd.Spec.Names.Categories; !slices.Equal(got, []string{"leasecast"}) {
				t.Errorf("categories %v, want leasecast", got)
			}
			// clusterctl move looks only at CRDs with the first label, and takes their objects along, whoever
			// owns them, where there is the second.
			for _, label := range []string{"clusterctl.cluster.x-k8s.io", v1alpha1.MoveLabel} {
				if _, ok := crd.Labels[label]; !ok {
					t.Errorf("there is no label %s", label)
				}
			}
			for _, condition := range crd.Status.Conditions {
				if condition.Type == apiextensionsv1.NonStructuralSchema && condition.Status == apiextensionsv1.ConditionTrue {
					t.Errorf("the schema is not structural: %s", condition.Message)
				}
			}
			for _, version := range crd.Spec.Versions {
				mustBeDescribed(t, version.Name, *version.Schema.OpenAPIV3Schema)
			}
		})
	}
}

// mustBeDescribed looks for what kubectl explain prints. It prints a text of its own for metadata.
// shorthand is what the rules of the protocol call their timings.
var shorthand = regexp.MustCompile(`\p{Greek}|\b[Dhr]\b`)

func mustBeDescribed(t *testing.T, path string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	for name, property := range schema.Properties {
		field := path + "." + name
		if property.Description == "" && name != "metadata" {
			t.Errorf("%s has no description", field)
		}
		if shorthand.MatchString(property.Description) {
			t.Errorf("%s is described in the shorthand of the protocol: %s", field, property.Description)
		}
		mustBeDescribed(t, field, property)
		if property.Items != nil && property.Items.Schema != nil {
			mustBeDescribed(t, field+"[]", *property.Items.Schema)
		}
	}
}

func TestWhatKubectlPrints(t *testing.T) {
	c := newClient(t)
	record := &v1alpha1.NamespaceLeader{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "printed"}, Spec: leading(),
	}
	if err := c.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	policy := &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "printed"},
		Spec:       v1alpha1.LeadershipPolicySpec{Namespaces: v1alpha1.NamespaceSelection{Names: []string{"team-a"}}},
	}
	if err := c.Create(t.Context(), policy); err != nil {
		t.Fatal(err)
	}
	policy.Status = v1alpha1.LeadershipPolicyStatus{
		Namespaces: ptr.To[int32](3),
		Clusters:   ptr.To[int32](2),
		Conditions: []metav1.Condition{{
			Type:               v1alpha1.ConditionReady,
			Status:             metav1.ConditionTrue,
			Reason:             "Ready",
			LastTransitionTime: metav1.Now(),
		}},
	}
	if err := c.Status().Update(t.Context(), policy); err != nil {
		t.Fatal(err)
	}

	tests := map[string]map[string]string{
		"namespaceleaders": {
			"Name": "printed", "Leader": "east", "State": "Leading", "Epoch": "7", "Reason": "Elected", "Next": "west",
			"Since": "90s", "NotBefore": "<nil>", "Policy": "shop",
		},
		"leadershippolicies": {
			"Name": "printed", "Ready": "True", "Reason": "Ready", "Namespaces": "3", "Clusters": "2",
			"Fenced": "<nil>", "Age": "0s",
		},
	}
	for resource, want := range tests {
		t.Run(resource, func(t *testing.T) {
			table := printed(t, resource)
			got := map[string]string{}
			for i, column := range table.ColumnDefinitions {
				got[column.Name] = fmt.Sprint(table.Rows[0].Cells[i])
			}
			for _, age := range []string{"Since", "Age"} { // of which the test must not depend on the second
				if value, ok := got[age]; ok && strings.HasSuffix(value, "s") {
					got[age] = want[age]
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
		})
	}
}

// printed asks for the object "printed" as kubectl get does.
func printed(t *testing.T, resource string) *metav1.Table {
	t.Helper()
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, v1alpha1.GroupVersion)
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := rest.CopyConfig(config)
	c.GroupVersion, c.APIPath = &v1alpha1.GroupVersion, "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		t.Fatal(err)
	}
	table := &metav1.Table{}
	err = client.Get().Namespace("default").Resource(resource).Name("printed").
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").
		Do(t.Context()).Into(table)
	if err != nil {
		t.Fatal(err)
	}
	if len(table.Rows) != 1 {
		t.Fatalf("%d rows", len(table.Rows))
	}
	return table
}

func TestRecordIsCheckedWhenItIsWritten(t *testing.T) {
	const (
		falls      = "the epoch of a record never falls"
		incomplete = "a record that is Leading has leader, epoch, leaseDurationSeconds and leaseName"
		led        = "a record that is Vacant has no leader"
	)
	type record = v1alpha1.NamespaceLeader
	in := func(s v1alpha1.RecordState) func(*record) {
		return func(o *record) { o.Spec.State, o.Spec.Leader = s, "" }
	}
	tests := map[string]struct {
		change func(*record)
		want   string
	}{
		"as it is":         {func(*record) {}, admitted},
		"the next epoch":   {func(o *record) { o.Spec.Epoch++ }, admitted},
		"an epoch before":  {func(o *record) { o.Spec.Epoch-- }, falls},
		"no epoch":         {func(o *record) { o.Spec.State, o.Spec.Epoch = v1alpha1.StateDraining, 0 }, falls},
		"no epoch below 0": {func(o *record) { o.Spec.Epoch = -1 }, "should be greater than or equal to 1"},
		"no epoch that no Lease can have": {
			func(o *record) { o.Spec.Epoch = 1 << 31 }, "less than or equal to 2147483647",
		},
		"nobody leads":                {in(v1alpha1.StateVacant), admitted},
		"a leader that nobody is":     {func(o *record) { o.Spec.State = v1alpha1.StateVacant }, led},
		"a term that ends":            {func(o *record) { o.Spec.State = v1alpha1.StateDraining }, admitted},
		"a term that ends, of nobody": {in(v1alpha1.StateDraining), admitted},
		"retired":                     {in(v1alpha1.StateRetired), admitted},
		"a state that there is not":   {func(o *record) { o.Spec.State = "Resting" }, `Unsupported value: "Resting"`},
		"no state":                    {func(o *record) { o.Spec.State = "" }, "spec.state: Required value"},
		"no time of the last change":  {func(o *record) { o.Spec.Since = nil }, "spec.since: Required value"},
		"Leading, without a leader":   {func(o *record) { o.Spec.Leader = "" }, incomplete},
		"Leading, without a D":        {func(o *record) { o.Spec.LeaseDurationSeconds = 0 }, incomplete},
		"Leading, without a Lease":    {func(o *record) { o.Spec.LeaseName = "" }, incomplete},
		"a D above all policies'":     {func(o *record) { o.Spec.LeaseDurationSeconds = 86_401 }, "or equal to 86400"},
		"a clock skew above all policies'": {
			func(o *record) { o.Spec.MaxClockSkewMilliseconds = 3600_001 }, "less than or equal to 3600000",
		},
		"a stop time above all policies'": {func(o *record) { o.Spec.StopTimeSeconds = 18_001 }, "or equal to 18000"},
		"one priority per Cluster": {func(o *record) {
			o.Spec.ObservedPriorities = []v1alpha1.ObservedPriority{{Name: "a"}, {Name: "a"}}
		}, "Duplicate value"},
		"no names without bounds": {func(o *record) { o.Spec.Leader = strings.Repeat("a", 254) }, "may not be more than 253"},
		"one entry per Cluster": {func(o *record) {
			o.Status.Candidates = []v1alpha1.Candidate{{Name: "a"}, {Name: "a"}}
		}, "Duplicate value"},
		"the longest history": {func(o *record) { o.Status.History = changes(v1alpha1.MaxHistory) }, admitted},
		"no longer history": {
			change: func(o *record) { o.Status.History = changes(v1alpha1.MaxHistory + 1) },
			want:   "must have at most 16 items",
		},
	}
	c := newClient(t)
	mustBe(t, c.Create(t.Context(), object(t, "NamespaceLeader", "")), "spec: Required value")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			record := &record{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "test-"}, Spec: leading()}
			if err := c.Create(t.Context(), record); err != nil {
				t.Fatal(err)
			}
			test.change(record)
			status := record.Status
			err := c.Update(t.Context(), record)
			if err == nil {
				record.Status = status
				err = c.Status().Update(t.Context(), record)
			}
			mustBe(t, err, test.want)
		})
	}
}

// leading is the record of a term of east.
func leading() v1alpha1.NamespaceLeaderSpec {
	since := metav1.NewMicroTime(time.Now().Add(-90 * time.Second))
	return v1alpha1.NamespaceLeaderSpec{
		Leader: "east", State: v1alpha1.StateLeading, Epoch: 7, Reason: reason.Elected, Next: "west", Since: &since,
		LeaseDurationSeconds: 15, LeaseName: v1alpha1.DefaultLeaseName, Policy: "shop",
	}
}

func changes(n int) (all []v1alpha1.Change) {
	for i := range n {
		all = append(all, v1alpha1.Change{Time: metav1.NowMicro(), Epoch: int64(i)})
	}
	return all
}
