package gate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/member"
)

// CapClient returns a client that works like c and refuses every write whose context comes from a term that is over:
// the error wraps member.ErrNotBegun and member.ErrLost, as that of member.CapWrites does. It is for clients that have
// no transport to put CapWrites on, above all controller-runtime's fake: with it, a test of a reconciler that writes
// after its term fails, as the write would.
//
// Other writes pass unchanged, those with a context that no term made included. Against an API server use
// member.CapWrites: it also limits how long the server may work on a write, and has a registered reader wait for the
// answer.
func CapClient(c client.Client) client.Client { return &cappedClient{c} }

type cappedClient struct{ client.Client }

// begin refuses a write after its term.
func begin(ctx context.Context, verb string, what any) error {
	if _, gated := member.EpochFrom(ctx); !gated {
		return nil
	}
	if err := member.Check(ctx); err != nil {
		if o, ok := what.(client.Object); ok {
			return fmt.Errorf("%s %T %s: %w", verb, o, client.ObjectKeyFromObject(o), err)
		}
		return fmt.Errorf("%s %T: %w", verb, what, err)
	}
	return nil
}

func (c *cappedClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	if err := begin(ctx, "apply", o); err != nil {
		return err
	}
	return c.Client.Apply(ctx, o, opts...)
}

func (c *cappedClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := begin(ctx, "create", o); err != nil {
		return err
	}
	return c.Client.Create(ctx, o, opts...)
}

func (c *cappedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := begin(ctx, "delete", o); err != nil {
		return err
	}
	return c.Client.Delete(ctx, o, opts...)
}

func (c *cappedClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if err := begin(ctx, "update", o); err != nil {
		return err
	}
	return c.Client.Update(ctx, o, opts...)
}

func (c *cappedClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := begin(ctx, "patch", o); err != nil {
		return err
	}
	return c.Client.Patch(ctx, o, p, opts...)
}

func (c *cappedClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	if err := begin(ctx, "delete all of", o); err != nil {
		return err
	}
	return c.Client.DeleteAllOf(ctx, o, opts...)
}

func (c *cappedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *cappedClient) SubResource(name string) client.SubResourceClient {
	return &cappedSubResource{c.Client.SubResource(name), name}
}

type cappedSubResource struct {
	client.SubResourceClient
	name string
}

func (s *cappedSubResource) begin(ctx context.Context, verb string, what any) error {
	return begin(ctx, verb+" the "+s.name+" of", what)
}

func (s *cappedSubResource) Create(ctx context.Context, o, sub client.Object, opts ...client.SubResourceCreateOption) error {
	if err := s.begin(ctx, "create", o); err != nil {
		return err
	}
	return s.SubResourceClient.Create(ctx, o, sub, opts...)
}

func (s *cappedSubResource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := s.begin(ctx, "update", o); err != nil {
		return err
	}
	return s.SubResourceClient.Update(ctx, o, opts...)
}

func (s *cappedSubResource) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := s.begin(ctx, "patch", o); err != nil {
		return err
	}
	return s.SubResourceClient.Patch(ctx, o, p, opts...)
}

func (s *cappedSubResource) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
	if err := s.begin(ctx, "apply", o); err != nil {
		return err
	}
	return s.SubResourceClient.Apply(ctx, o, opts...)
}
