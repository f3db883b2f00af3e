package gate

import (
	"context"
	"errors"
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
func CapClient(c client.Client) client.Client { return &guarded{c, fence} }

// ErrReadOnly reports a write through a client made by ReadOnly.
var ErrReadOnly = errors.New("this client is read-only, because only the leader cluster may write")

// ReadOnly returns a client that reads like c and refuses every write, also of subresources, with an error that wraps
// ErrReadOnly. It is meant for the reconcilers of Observe.
func ReadOnly(c client.Client) client.Client { return &guarded{c, refuse} }

// guard makes or refuses a write of an object. Its own errors name the object.
type guard func(ctx context.Context, o any, write func(context.Context) error) error

// fence makes a write, within its term if it has one.
func fence(ctx context.Context, o any, write func(context.Context) error) error {
	term, gated := member.TermFrom(ctx)
	if !gated {
		return write(ctx)
	}
	capped, cancel := context.WithTimeout(ctx, term.Remaining())
	defer cancel()
	if err := member.Check(ctx); err != nil {
		return failed(o, err)
	}
	err := write(capped)
	if err != nil && !term.Holds() {
		return failed(o, fmt.Errorf("%w: epoch %d: %w", member.ErrLost, term.Epoch(), err))
	}
	return err
}

// refuse makes no write.
func refuse(_ context.Context, o any, _ func(context.Context) error) error {
	return failed(o, ErrReadOnly)
}

// failed returns the error of a write with the object that was to be written.
func failed(o any, err error) error {
	if o, ok := o.(client.Object); ok {
		return fmt.Errorf("%T %s: %w", o, client.ObjectKeyFromObject(o), err)
	}
	return fmt.Errorf("%T: %w", o, err)
}

// guarded is a client whose writes go through a guard.
type guarded struct {
	client.Client
	guard guard
}

func (g *guarded) Apply(ctx context.Context, o runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
	return g.guard(ctx, o, func(ctx context.Context) error { return g.Client.Apply(ctx, o, opts...) })
}

func (g *guarded) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return g.guard(ctx, o, func(ctx context.Context) error { return g.Client.Create(ctx, o, opts...) })
}

func (g *guarded) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return g.guard(ctx, o, func(ctx context.Context) error { return g.Client.Delete(ctx, o, opts...) })
}

func (g *guarded) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	return g.guard(ctx, o, func(ctx context.Context) error { return g.Client.Update(ctx, o, opts...) })
}

func (g *guarded) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	return g.guard(ctx, o, func(ctx context.Context) error { return g.Client.Patch(ctx, o, p, opts...) })
}

func (g *guarded) DeleteAllOf(ctx context.Context, o client.Object, opts ...client.DeleteAllOfOption) error {
	return g.guard(ctx, o, func(ctx context.Context) error { return g.Client.DeleteAllOf(ctx, o, opts...) })
}

func (g *guarded) Status() client.SubResourceWriter { return g.SubResource("status") }

func (g *guarded) SubResource(name string) client.SubResourceClient {
	return &guardedSubResource{g.Client.SubResource(name), g.guard}
}

// guardedSubResource reads like the embedded client. Its writes go through a guard.
type guardedSubResource struct {
	client.SubResourceClient
	guard guard
}

func (s *guardedSubResource) Create(
	ctx context.Context, o, sub client.Object, opts ...client.SubResourceCreateOption,
) error {
	return s.guard(ctx, o, func(ctx context.Context) error { return s.SubResourceClient.Create(ctx, o, sub, opts...) })
}

func (s *guardedSubResource) Update(
	ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption,
) error {
	return s.guard(ctx, o, func(ctx context.Context) error { return s.SubResourceClient.Update(ctx, o, opts...) })
}

func (s *guardedSubResource) Patch(
	ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption,
) error {
	return s.guard(ctx, o, func(ctx context.Context) error { return s.SubResourceClient.Patch(ctx, o, p, opts...) })
}

func (s *guardedSubResource) Apply(
	ctx context.Context, o runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption,
) error {
	return s.guard(ctx, o, func(ctx context.Context) error { return s.SubResourceClient.Apply(ctx, o, opts...) })
}
