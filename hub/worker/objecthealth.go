package worker

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// readHealth reads an object, and judges its health. gone: it does not exist any more.
func readHealth(
	ctx context.Context, client rest.Interface, of schema.GroupVersionResource, name types.NamespacedName,
) (is objectHealth, gone bool) {
	ctx, cancel := context.WithTimeout(ctx, readRequired)
	defer cancel()
	prefix := "/apis/" + of.Group
	if of.Group == "" {
		prefix = "/api"
	}
	body, err := client.Get().AbsPath(prefix, of.Version).Namespace(name.Namespace).Resource(of.Resource).Name(name.Name).
		SetHeader("Accept", transport.Plain).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return objectHealth{}, true
	case err != nil:
		return objectHealth{err: explained(err)}, false
	}
	wrong, err := whatIsWrong(of.GroupResource(), body)
	if err != nil {
		return objectHealth{err: fmt.Errorf("%s cannot be read: %w", name, err)}, false
	}
	if wrong != "" {
		wrong = fmt.Sprintf("%s %s %s", of.GroupResource(), name.Name, wrong)
	}
	return objectHealth{unhealthy: wrong}, false
}

// whatIsWrong judges an object by its status, and says what is wrong, or nothing.
func whatIsWrong(of schema.GroupResource, object []byte) (string, error) {
	switch of {
	case schema.GroupResource{Group: "apps", Resource: "statefulsets"}:
		var o struct {
			Spec   struct{ Replicas *int32 }
			Status struct{ AvailableReplicas int32 }
		}
		if err := json.Unmarshal(object, &o); err != nil {
			return "", err
		}
		wanted := int32(1)
		if o.Spec.Replicas != nil {
			wanted = *o.Spec.Replicas
		}
		return fewer(o.Status.AvailableReplicas, wanted), nil
	case schema.GroupResource{Group: "apps", Resource: "daemonsets"}:
		var o struct {
			Status struct{ NumberAvailable, DesiredNumberScheduled int32 }
		}
		err := json.Unmarshal(object, &o)
		return fewer(o.Status.NumberAvailable, o.Status.DesiredNumberScheduled), err
	default:
		var o struct {
			Status struct {
				Conditions []struct{ Type, Status string }
			}
		}
		if err := json.Unmarshal(object, &o); err != nil {
			return "", err
		}
		is := map[string]string{}
		for _, c := range o.Status.Conditions {
			is[c.Type] = c.Status
		}
		for _, condition := range []string{"Available", "Ready"} {
			switch status, has := is[condition]; {
			case has && status == "True":
				return "", nil
			case has:
				return "is not " + condition, nil
			}
		}
		return "has neither the condition Available nor Ready", nil
	}
}

// fewer says that fewer replicas are available than there must be, or nothing.
func fewer(available, wanted int32) string {
	if available >= wanted {
		return ""
	}
	return fmt.Sprintf("has %d of %d replicas available", available, wanted)
}
