package gate

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ErrReadOnly reports a write through a client made by ReadOnly.
var ErrReadOnly = errors.New("this client is read-only, because only the leader cluster may write")

// ReadOnly returns a client that reads like c and refuses every write, also of subresources, with an error that wraps
// ErrReadOnly. It is meant for the reconcilers of Observe.
func ReadOnly(c client.Client) client.Client { return &readOnly{c} }

type readOnly struct{ client.Client }

func refuse(verb string, what any) error {
	if o, ok := what.(client.Object); ok {
		return fmt.Errorf("%w: refused to %s %T %s", ErrReadOnly, verb, o, client.ObjectKeyFromObject(o))
	}
	return fmt.Errorf("%w: refused to %s %T", ErrReadOnly, verb, what)
}

func (*readOnly) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	return refuse("apply", o)
}

func (*readOnly) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	return refuse("create", o)
}

func (*readOnly) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	return refuse("delete", o)
}

func (*readOnly) Update(_ context.Context, o client.Object, _ ...client.UpdateOption) error {
	return refuse("update", o)
}

func (*readOnly) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return refuse("patch", o)
}

func (*readOnly) DeleteAllOf(_ context.Context, o client.Object, _ ...client.DeleteAllOfOption) error {
	return refuse("delete all of", o)
}

func (r *readOnly) Status() client.SubResourceWriter { return r.SubResource("status") }

func (r *readOnly) SubResource(name string) client.SubResourceClient {
	return &readOnlySubResource{r.Client.SubResource(name), name}
}

// readOnlySubResource reads like the embedded reader, and refuses writes.
type readOnlySubResource struct {
	client.SubResourceReader
	name string
}

func (s *readOnlySubResource) Create(_ context.Context, o, _ client.Object, _ ...client.SubResourceCreateOption) error {
	return refuse("create the "+s.name+" of", o)
}

func (s *readOnlySubResource) Update(_ context.Context, o client.Object, _ ...client.SubResourceUpdateOption) error {
	return refuse("update the "+s.name+" of", o)
}

func (s *readOnlySubResource) Patch(
	_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption,
) error {
	return refuse("patch the "+s.name+" of", o)
}

func (s *readOnlySubResource) Apply(
	_ context.Context, o runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption,
) error {
	return refuse("apply the "+s.name+" of", o)
}
