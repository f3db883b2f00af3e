package gate

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/member"
)

// CapClient returns a client that works like c, and fences every write whose context comes from a term. A write after
// the term is refused: the error wraps member.ErrNotBegun and member.ErrLost, as with member.CapWrites. A write in the
// term has the term's remaining time as its timeout. A write that fails when the term is over wraps member.ErrLost: it
// may have happened.
//
// Other writes pass unchanged, also with a context that carries no term.
//
// It is for clients without a transport for CapWrites, above all controller-runtime's fake. With it, a test fails if
// its reconciler writes after the term, as the real write would. Against an API server use member.CapWrites, or both.
// CapWrites also limits how long the server may work on a write, and lets a registered reader wait for the answer.
func CapClient(c client.Client) client.Client { return &cappedClient{c} }

type cappedClient struct{ client.Client }

// fence makes a write, within its term if it has one.
func fence(ctx context.Context, verb string, what any, write func(context.Context) error) error {
	term, gated := member.TermFrom(ctx)
	if !gated {
		return write(ctx)
	}
	capped, cancel := context.WithTimeout(ctx, term.Remaining())
	defer cancel()
	if err := member.Check(ctx); err != nil {
		if o, ok := what.(client.Object); ok {
			return fmt.Errorf("%s %T %s: %w", verb, o, client.ObjectKeyFromObject(o), err)
		}
		return fmt.Errorf("%s %T: %w", verb, what, err)
	}
	err := write(capped)
	if err != nil && !term.Holds() {
		return fmt.Errorf("%w: %w", member.ErrLost, err)
	}
	return err
}

func (c *cappedClient) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return fence(ctx, "apply", o, func(ctx context.Context) error { return c.Client.Apply(ctx, o, opts...) })
}

func (c *cappedClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return fence(ctx, "create", o, func(ctx context.Context) error { return c.Client.Create(ctx, o, opts...) })
}

func (c *cappedClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return fence(ctx, "delete", o, func(ctx context.Context) error { return c.Client.Delete(ctx, o, opts...) })
}

func (c *cappedClient) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return fence(ctx, "update", o, func(ctx context.Context) error { return c.Client.Update(ctx, o, opts...) })
}

func (c *cappedClient) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return fence(ctx, "patch", o, func(ctx context.Context) error { return c.Client.Patch(ctx, o, p, opts...) })
}

func (c *cappedClient) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	return fence(ctx, "delete all of", o, func(ctx context.Context) error { return c.Client.DeleteAllOf(ctx, o, opts...) })
}

func (c *cappedClient) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *cappedClient) SubResource(name string) client.SubResourceClient {
	return &cappedSubResource{c.Client.SubResource(name), name}
}

type cappedSubResource struct {
	client.SubResourceClient
	name string
}

func (s *cappedSubResource) fence(ctx context.Context, verb string, what any, write func(context.Context) error) error {
	return fence(ctx, verb+" the "+s.name+" of", what, write)
}

func (s *cappedSubResource) Create(
	ctx context.Context, o, sub client.Object, opts ...client.SubResourceCreateOption,
) error {
	return s.fence(ctx, "create", o, func(ctx context.Context) error {
		return s.SubResourceClient.Create(ctx, o, sub, opts...)
	})
}

func (s *cappedSubResource) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.fence(ctx, "update", o, func(ctx context.Context) error {
		return s.SubResourceClient.Update(ctx, o, opts...)
	})
}

func (s *cappedSubResource) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return s.fence(ctx, "patch", o, func(ctx context.Context) error {
		return s.SubResourceClient.Patch(ctx, o, p, opts...)
	})
}

func (s *cappedSubResource) Apply(
	ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	return s.fence(ctx, "apply", o, func(ctx context.Context) error { return s.SubResourceClient.Apply(ctx, o, opts...) })
}
