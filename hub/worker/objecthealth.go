package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/hub/fleet/transport"
)

// readRequired bounds one read of an object.
const readRequired = 3 * time.Second

// readHealth reads an object, and judges its health. An error may pass: nothing was learned. An object that does not
// exist any more is healthy: a watch shows its end.
func readHealth(
	ctx context.Context, client rest.Interface, of schema.GroupVersionResource, namespace, name string,
) (is objectHealth, version string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readRequired)
	defer cancel()
	prefix := "/apis/" + of.Group
	if of.Group == "" {
		prefix = "/api"
	}
	body, err := client.Get().AbsPath(prefix, of.Version).Namespace(namespace).Resource(of.Resource).Name(name).
		SetHeader("Accept", transport.Plain).Do(ctx).Raw()
	switch {
	case apierrors.IsNotFound(err):
		return objectHealth{}, "", nil
	case apierrors.IsForbidden(err):
		return objectHealth{err: errNoRight}, "", nil
	case errors.Is(err, transport.ErrTooLarge):
		return objectHealth{err: errTooLarge}, "", nil
	case err != nil:
		return objectHealth{}, "", err
	}
	wrong, version, err := whatIsWrong(of.GroupResource(), body)
	if err != nil {
		return objectHealth{err: errNoStatus}, "", nil // the error may hold what a tenant wrote
	}
	if wrong != "" {
		wrong = fmt.Sprintf("%s %s %s", of.GroupResource(), transport.Shorten(name), wrong)
	}
	return objectHealth{unhealthy: wrong}, version, nil
}

// whatIsWrong judges an object by its status, and says what is wrong, or nothing. It returns the object's version.
func whatIsWrong(of schema.GroupResource, object []byte) (wrong, version string, err error) {
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(object, &o); err != nil {
		return "", "", err
	}
	switch of {
	case schema.GroupResource{Group: "apps", Resource: "statefulsets"}:
		wrong, err = statefulSet(object)
	case schema.GroupResource{Group: "apps", Resource: "daemonsets"}:
		wrong, err = daemonSet(object)
	default:
		wrong, err = byConditions(object)
	}
	return wrong, o.Metadata.ResourceVersion, err
}

func statefulSet(object []byte) (string, error) {
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
}

func daemonSet(object []byte) (string, error) {
	var o struct {
		Status struct{ NumberAvailable, DesiredNumberScheduled int32 }
	}
	err := json.Unmarshal(object, &o)
	return fewer(o.Status.NumberAvailable, o.Status.DesiredNumberScheduled), err
}

// byConditions judges by the condition Available, or else Ready.
func byConditions(object []byte) (string, error) {
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
		case status == "True":
			return "", nil
		case has:
			return "is not " + condition, nil
		}
	}
	return "has neither the condition Available nor Ready", nil
}

// fewer says that fewer replicas are available than there must be, or nothing. It names no number, which would change.
func fewer(available, wanted int32) string {
	if available >= wanted {
		return ""
	}
	return "has fewer replicas available than it must have"
}
