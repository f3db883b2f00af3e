// Package crd_test asks a real API server what the CRDs admit and what they refuse, and in which words.
package crd_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const requestTimeout = 30 * time.Second

// config reaches a real API server that serves the CRDs of config/crd. The tests of this package share it.
var config *rest.Config

func TestMain(m *testing.M) {
	os.Exit(fleet.Main(m, nil, func(_ context.Context, f *fleet.Fleet, _ string) error {
		config = f.Hub().AdminConfig()
		config.Timeout = requestTimeout
		return nil
	}))
}

func newClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	musttest.Do(t, v1alpha1.AddToScheme(scheme))
	c := musttest.Get(client.New(config, client.Options{Scheme: scheme}))(t)
	// As kubectl does: a field that does not exist is an error.
	return client.WithFieldValidation(c, "Strict")
}

// object is what a person writes in YAML, whatever it may be.
func object(t *testing.T, kind, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	if o.Object == nil {
		o.Object = map[string]any{}
	}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetNamespace("default")
	o.SetGenerateName("test-")
	return o
}

// checkSpecs creates a policy with each spec, which is admitted or refused in the words of want.
func checkSpecs(t *testing.T, tests map[string]struct{ spec, want string }) {
	t.Helper()
	c := newClient(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := "spec:\n  " + strings.ReplaceAll(test.spec, "\n", "\n  ")
			mustBe(t, c.Create(t.Context(), object(t, "LeadershipPolicy", text)), test.want)
		})
	}
}
