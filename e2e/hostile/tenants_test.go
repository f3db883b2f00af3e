package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Words of the refusals of the admission policies.
const (
	tooLarge     = "a registration of a reader has at most"
	notWatched   = "a registration may only name namespaces in which its writer may watch Leases"
	notTheReader = "only the user named in the annotation " + v1alpha1.ReaderAccountAnnotation
)

// megabyte is what tenants like to write.
var megabyte = strings.Repeat("m", 1<<20)

// largeRegistrations writes registrations of a megabyte.
func largeRegistrations(ctx context.Context, s *scene) error {
	t, err := s.tenant(ctx, far, shop, "large")
	if err != nil {
		return err
	}
	return overAndOver(ctx, func(ctx context.Context, n int) error {
		_, err := t.register(ctx, t.registration(fmt.Sprint("large-", n), func(l *coordinationv1.Lease) {
			l.Spec.HolderIdentity = &megabyte
		}))
		return refusal("a holderIdentity of 1 MB", err, tooLarge)
	})
}

// othersNamespaces registers for namespaces in which the tenant may not watch Leases.
func othersNamespaces(ctx context.Context, s *scene) error {
	t, err := s.tenant(ctx, far, shop, "claimant")
	if err != nil {
		return err
	}
	claims := []string{"*", "ledger", shop + ",ledger", "kube-system," + shop}
	return overAndOver(ctx, func(ctx context.Context, n int) error {
		claim := claims[n%len(claims)]
		_, err := t.register(ctx, t.registration(fmt.Sprint("claim-", n), func(l *coordinationv1.Lease) {
			l.Annotations[v1alpha1.ReaderNamespacesAnnotation] = claim
		}))
		return refusal("a registration for "+claim, err, notWatched)
	})
}

// othersRegistrations writes to the registration of another account in the same namespace, and in its name.
func othersRegistrations(ctx context.Context, s *scene) error {
	owner, err := s.tenant(ctx, far, shop, "owner")
	if err != nil {
		return err
	}
	stored, err := owner.register(ctx, owner.registration("owned", func(l *coordinationv1.Lease) {
		l.Spec.LeaseDurationSeconds = ptr.To[int32](3600) // nobody confirms it
	}))
	if err != nil {
		return err
	}
	t, err := s.tenant(ctx, far, shop, "thief")
	if err != nil {
		return err
	}
	tries := map[string]func(context.Context) error{
		"an update of another's": func(ctx context.Context) error {
			l := stored.DeepCopy()
			l.Spec.RenewTime = &metav1.MicroTime{Time: time.Now().Add(time.Hour)}
			_, err := t.leases.Update(ctx, l, metav1.UpdateOptions{})
			return err
		},
		"a release in another's name": func(ctx context.Context) error {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"{\"shop\":99999999}"}}}`, v1alpha1.ReaderReleasedAnnotation)
			_, err := t.leases.Patch(ctx, stored.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		},
		"a deletion of another's": func(ctx context.Context) error {
			return t.leases.Delete(ctx, stored.Name, metav1.DeleteOptions{})
		},
		"one of its own in another's name": func(ctx context.Context) error {
			_, err := t.register(ctx, owner.registration("thiefs"))
			return err
		},
		"one of its own in the place of another's": func(ctx context.Context) error {
			l := t.registration(stored.Name)
			l.ResourceVersion = stored.ResourceVersion
			_, err := t.leases.Update(ctx, l, metav1.UpdateOptions{})
			return err
		},
	}
	return overAndOver(ctx, func(ctx context.Context, _ int) error {
		for what, try := range tries {
			if err := refusal(what, try(ctx), notTheReader); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
}

// theNamespacesLease writes the Lease by which the namespace is led, and others that look like it.
func theNamespacesLease(ctx context.Context, s *scene) error {
	t, err := s.tenant(ctx, far, shop, "editor")
	if err != nil {
		return err
	}
	patch := func(text string) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := t.leases.Patch(ctx, v1alpha1.DefaultLeaseName, types.MergePatchType, []byte(text), metav1.PatchOptions{})
			return err
		}
	}
	tries := map[string]func(context.Context) error{
		"its holder":         patch(`{"spec":{"holderIdentity":"` + far + `.default"}}`),
		"its epoch":          patch(`{"spec":{"leaseTransitions":2147483647}}`),
		"its renewTime":      patch(`{"spec":{"renewTime":"2100-01-01T00:00:00.000000Z"}}`),
		"its label":          patch(`{"metadata":{"labels":{"` + v1alpha1.ManagedLabel + `":null}}}`),
		"a finalizer":        patch(`{"metadata":{"finalizers":["example.com/mine"]}}`),
		"a large annotation": patch(`{"metadata":{"annotations":{"example.com/mine":"` + megabyte[:200<<10] + `"}}}`),
		"its deletion": func(ctx context.Context) error {
			return t.leases.Delete(ctx, v1alpha1.DefaultLeaseName, metav1.DeleteOptions{})
		},
		"one under its label": func(ctx context.Context) error {
			_, err := t.leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Name: "mine", Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
			}}, metav1.CreateOptions{})
			return err
		},
	}
	return overAndOver(ctx, func(ctx context.Context, _ int) error {
		for what, try := range tries {
			if err := refusal("the Lease of the namespace: "+what, try(ctx), ""); err != nil && ctx.Err() == nil {
				return err
			}
		}
		return nil
	})
}

// manyRegistrations writes more valid registrations than the hub keeps for a member.
func manyRegistrations(ctx context.Context, s *scene) error {
	t, err := s.tenant(ctx, far, shop, "many")
	if err != nil {
		return err
	}
	return each(ctx, 2100, func(ctx context.Context, n int) error {
		_, err := t.register(ctx, t.registration(fmt.Sprint("many-", n)))
		return unlessEnded(ctx, err)
	})
}

// manyBeside writes registrations in an honest member, for a namespace that is not led.
func manyBeside(member string) play {
	return func(ctx context.Context, s *scene) error {
		t, err := s.tenant(ctx, member, "beside", "many")
		if err != nil {
			return err
		}
		return each(ctx, 200, func(ctx context.Context, n int) error {
			_, err := t.register(ctx, t.registration(fmt.Sprint("many-", n)))
			return unlessEnded(ctx, err)
		})
	}
}

// rewritten writes few registrations as fast as the API server answers.
func rewritten(ctx context.Context, s *scene) error {
	t, err := s.tenant(ctx, far, shop, "restless")
	if err != nil {
		return err
	}
	var stored [atOnce]*coordinationv1.Lease
	return overAndOver(ctx, func(ctx context.Context, n int) (err error) {
		l := &stored[n%atOnce] // of this worker
		if *l == nil {
			*l, err = t.register(ctx, t.registration(fmt.Sprint("restless-", n)))
			return err
		}
		(*l).Spec.RenewTime = &metav1.MicroTime{Time: time.Now()}
		*l, err = t.leases.Update(ctx, *l, metav1.UpdateOptions{})
		return err
	})
}

// comingAndGoing registers, and takes back, as fast as the API server answers.
func comingAndGoing(ctx context.Context, s *scene) error {
	t, err := s.tenant(ctx, far, shop, "fickle")
	if err != nil {
		return err
	}
	return overAndOver(ctx, func(ctx context.Context, n int) error {
		l, err := t.register(ctx, t.registration(fmt.Sprint("fickle-", n)))
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
	return func(ctx context.Context, s *scene) error {
		return each(ctx, len(plays), func(ctx context.Context, n int) error { return plays[n](ctx, s) })
	}
}
