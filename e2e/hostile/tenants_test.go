package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// megabyte is what tenants like to write.
var megabyte = strings.Repeat("m", 1<<20)

// manyRegistrations writes so many valid registrations in a namespace of a member.
func manyRegistrations(member, namespace string, number int) play {
	return func(ctx context.Context, s *testbed) error {
		t, err := s.tenant(ctx, member, namespace, "many")
		if err != nil {
			return err
		}
		return each(ctx, number, func(ctx context.Context, n int) error {
			_, err := t.register(ctx, fmt.Sprint("many-", n))
			return unlessEnded(ctx, err)
		})
	}
}

// rewritten writes few registrations as fast as the API server answers.
func rewritten(ctx context.Context, s *testbed) error {
	t, err := s.tenant(ctx, far, shop, "restless")
	if err != nil {
		return err
	}
	var stored [atOnce]*coordinationv1.Lease
	return overAndOver(ctx, func(ctx context.Context, n int) (err error) {
		l := &stored[n%atOnce] // of this worker
		if *l == nil {
			*l, err = t.register(ctx, fmt.Sprint("restless-", n))
			return err
		}
		(*l).Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		*l, err = t.leases.Update(ctx, *l, metav1.UpdateOptions{})
		return err
	})
}

// comingAndGoing registers, and takes back, as fast as the API server answers.
func comingAndGoing(ctx context.Context, s *testbed) error {
	t, err := s.tenant(ctx, far, shop, "fickle")
	if err != nil {
		return err
	}
	return overAndOver(ctx, func(ctx context.Context, n int) error {
		l, err := t.register(ctx, fmt.Sprint("fickle-", n))
		if err != nil {
			return err
		}
		l.Finalizers = nil
		if _, err := t.leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
			return err
		}
		return t.leases.Delete(ctx, l.Name, metav1.DeleteOptions{})
	})
}

// unlessEnded is an error, unless the attack has ended.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// together has several tenants act at once.
func together(plays ...play) play {
	return func(ctx context.Context, s *testbed) error {
		return each(ctx, len(plays), func(ctx context.Context, n int) error { return plays[n](ctx, s) })
	}
}
