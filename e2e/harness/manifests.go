package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is what the drill's server-side apply is called in managedFields.
const fieldOwner = client.FieldOwner("leasecast-drill")

// kustomization renders a folder of config/.
func (p Programs) kustomization(ctx context.Context, folder string) ([]*unstructured.Unstructured, error) {
	out, err := command(ctx, "", nil, p.kustomize, "build", filepath.Join(p.config, folder))
	if err != nil {
		return nil, fmt.Errorf("render config/%s: %w", folder, err)
	}
	objects, err := parse(out)
	if err != nil {
		return nil, fmt.Errorf("render config/%s: %w", folder, err)
	}
	return objects, nil
}

// parse reads objects from a YAML stream.
func parse(stream []byte) ([]*unstructured.Unstructured, error) {
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(stream), 4096)
	var objects []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("object %d: %w", len(objects)+1, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// apply applies objects on the server side, as kubectl apply --server-side does. Namespaces and CRDs come
// first.
func apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	first := func(o *unstructured.Unstructured) int {
		switch o.GetKind() {
		case "Namespace", "CustomResourceDefinition":
			return 0
		default:
			return 1
		}
	}
	objects = slices.Clone(objects)
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return first(a) - first(b) })
	for _, o := range objects {
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("apply %s %s: %w", o.GetKind(), client.ObjectKeyFromObject(o), err)
		}
	}
	return nil
}
