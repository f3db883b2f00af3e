package hostile

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
)

// atOnce is how many requests a tenant makes at once.
const atOnce = 8

// serviceAccount begins the names of service accounts. The honest readers act as administrators.
const serviceAccount = "system:serviceaccount:"

// play is what a tenant does until the context ends. It returns an error if it may do what it must not.
type play func(ctx context.Context, s *testbed) error

// tenant is a service account that may edit one namespace of one member, by the ClusterRole edit of Kubernetes.
type tenant struct {
	account, namespace string
	all                kubernetes.Interface
	leases             coordinationclient.LeaseInterface
}

// tenant makes one, or finds it.
func (s *testbed) tenant(ctx context.Context, member, namespace, name string) (*tenant, error) {
	admin := s.Members[member]
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	}
	for _, o := range []client.Object{namespaceNamed(namespace), account, binding} {
		if err := admin.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return nil, fmt.Errorf("make %s in %s: %w", o.GetName(), member, err)
		}
	}
	config, err := s.Fleet.Member(member).TokenConfig(ctx, namespace, name)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	all, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	t := &tenant{
		account:   serviceAccount + namespace + ":" + name,
		namespace: namespace,
		all:       all,
		leases:    all.CoordinationV1().Leases(namespace),
	}
	return t, must.Await(ctx, patience, "the tenant may edit its namespace", func(ctx context.Context) error {
		_, err := t.leases.List(ctx, metav1.ListOptions{Limit: 1})
		return err
	})
}

// register creates a registration of the tenant, for its own namespace.
func (t *tenant) register(ctx context.Context, name string) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name}}
	_ = wire.WriteRegistration(lease.Registration{ // nothing in it can be wrong
		Identity:   name,
		Namespaces: []string{t.namespace},
		Confirmed:  time.Now(),
		Duration:   15 * time.Second,
		Account:    t.account,
	}, l)
	return t.leases.Create(ctx, l, metav1.CreateOptions{})
}

// over and over has some workers do something until the context ends. n is different in each round.
func overAndOver(ctx context.Context, do func(ctx context.Context, n int) error) error {
	var all errgroup.Group
	for first := range atOnce {
		all.Go(func() error {
			for n := first; ctx.Err() == nil; n += atOnce {
				if err := do(ctx, n); err != nil && ctx.Err() == nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// each does something once for each of so many.
func each(ctx context.Context, many int, do func(ctx context.Context, n int) error) error {
	all, ctx := errgroup.WithContext(ctx)
	all.SetLimit(atOnce)
	for n := range many {
		all.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			return do(ctx, n)
		})
	}
	return all.Wait()
}

// removeRegistrations removes what tenants have registered.
func (s *testbed) removeRegistrations(ctx context.Context) error {
	for member, admin := range s.Members {
		var list coordinationv1.LeaseList
		if err := admin.List(ctx, &list, client.HasLabels{v1alpha1.ReaderLabel}); err != nil {
			return err
		}
		err := each(ctx, len(list.Items), func(ctx context.Context, n int) error {
			l := &list.Items[n]
			if !strings.HasPrefix(l.Annotations[v1alpha1.ReaderAccountAnnotation], serviceAccount) {
				return nil // it is an honest reader's
			}
			patch := []byte(`{"metadata":{"finalizers":null}}`)
			err := admin.Patch(ctx, l, client.RawPatch("application/merge-patch+json", patch))
			if err == nil {
				err = admin.Delete(ctx, l)
			}
			return client.IgnoreNotFound(err)
		})
		if err != nil {
			return fmt.Errorf("registrations in %s: %w", member, err)
		}
	}
	return nil
}

func namespaceNamed(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
