package config_test

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// A label that no object can have would make the policy invalid, long after it was written.
func TestPolicyWithImpossibleLabelsIsRefused(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(management.config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	create := func(ctx context.Context, spec string) error {
		o := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shops"}}
		if err := yaml.UnmarshalStrict([]byte(spec), &o.Spec); err != nil {
			t.Fatal(err)
		}
		return api.Create(ctx, o, client.DryRunAll)
	}
	const keys, expressions = "each key of matchLabels and objectLabels", "each key of matchExpressions"
	names := "namespaces: {names: [shop]}\n"
	impossible := names + `clusterSelector: {matchLabels: {"no key!": x}}`
	written := func(labels string) string {
		return names + "fencing: {writes: [{objectLabels: {" + labels + "}, resources: [{names: [secrets]}]}]}"
	}
	// API servers learn of an admission policy a second later.
	enforced := func(ctx context.Context) (bool, error) { return create(ctx, impossible) != nil, nil }
	err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, timeout, true, enforced)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ spec, refused string }{
		"no labels at all": {names, ""},
		"labels with a prefix, and empty values": {
			spec: names + `clusterSelector: {matchLabels: {example.com/zone: a, edge: ""}}`,
		},
		"expressions": {spec: names + `clusterSelector: {matchExpressions: [` +
			`{key: zone, operator: In, values: [a, b]}, {key: edge, operator: Exists}]}`},
		"a key of clusterSelector with a space":   {impossible, keys},
		"a value of clusterSelector with a space": {names + `clusterSelector: {matchLabels: {zone: "a b"}}`, keys},
		"a key of namespaces.selector":            {`namespaces: {selector: {matchLabels: {"/zone": a}}}`, keys},
		"a key of an expression": {
			`namespaces: {selector: {matchExpressions: [{key: "a b", operator: Exists}]}}`, expressions,
		},
		"a value of an expression": {
			`namespaces: {selector: {matchExpressions: [{key: zone, operator: In, values: ["a b"]}]}}`, expressions,
		},
		"a key of fencing.schedules":               {names + `fencing: {schedules: {matchLabels: {"run!": once}}}`, keys},
		"a key of objectLabels":                    {written(`"no key!": x`), keys},
		"a value of objectLabels that is too long": {written("led: " + strings.Repeat("x", 64)), keys},
	} {
		t.Run(name, func(t *testing.T) {
			err := create(t.Context(), test.spec)
			invalid := apierrors.IsInvalid(err) && strings.Contains(err.Error(), test.refused)
			if test.refused == "" && err != nil || test.refused != "" && !invalid {
				t.Errorf("the API server says: %v", err)
			}
		})
	}
}
