package config_test

import (
	"context"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// A label that no object can have would make the policy invalid, long after it was written.
func TestPolicyWithImpossibleLabelsIsRefused(t *testing.T) {
	api := typed(t, management.config)
	create := func(ctx context.Context, spec string) error {
		o := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "shops"}}
		musttest.Do(t, yaml.UnmarshalStrict([]byte(spec), &o.Spec))
		return api.Create(ctx, o, client.DryRunAll)
	}
	const keys, expressions = "each key of matchLabels and objectLabels", "each key of matchExpressions"
	names := "namespaces: {names: [shop]}\n"
	impossible := names + `clusterSelector: {matchLabels: {"no key!": x}}`
	written := func(labels string) string {
		return names + "fencing: {writes: [{objectLabels: {" + labels + "}, resources: [{names: [secrets]}]}]}"
	}
	awaitEnforced(t, func(ctx context.Context) bool { return create(ctx, impossible) != nil })
	for name, test := range map[string]struct{ spec, refused string }{
		"no labels at all": {names, ""},
		"labels and expressions": {names + `clusterSelector: {matchLabels: {example.com/zone: a, edge: ""}, ` +
			`matchExpressions: [{key: zone, operator: In, values: [a, b]}, {key: edge, operator: Exists}]}`, ""},
		"a key of clusterSelector with a space":   {impossible, keys},
		"a value of clusterSelector with a space": {names + `clusterSelector: {matchLabels: {zone: "a b"}}`, keys},
		"a key of namespaces.selector":            {`namespaces: {selector: {matchLabels: {"/zone": a}}}`, keys},
		"a value of an expression": {
			`namespaces: {selector: {matchExpressions: [{key: zone, operator: In, values: ["a b"]}]}}`, expressions,
		},
		"a key of fencing.schedules":               {names + `fencing: {schedules: {matchLabels: {"run!": once}}}`, keys},
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
