package seal_test

import (
	"context"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// server is the hub's API server. before, if set, hears of each request before it is carried out, and answer of an
// update before it is answered.
type server struct {
	client.Client
	t      *testing.T
	mu     sync.Mutex
	before func(verb string) error
	answer func()
	writes int
}

func newServer(t *testing.T, objects ...client.Object) *server {
	t.Helper()
	s := &server{t: t}
	hear := func(ctx context.Context, verb string) error {
		if _, ok := ctx.Deadline(); !ok {
			t.Errorf("a %s without a deadline", verb)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s.mu.Lock()
		before := s.before
		if verb != "get" {
			s.writes++
		}
		s.mu.Unlock()
		if before != nil {
			return before(verb)
		}
		return nil
	}
	s.Client = fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if o.GetName() != "" {
				t.Error("a get into an object that is not empty: a real client leaves what the answer does not say")
			}
			if err := hear(ctx, "get"); err != nil {
				return err
			}
			return c.Get(ctx, k, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := hear(ctx, "create"); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := hear(ctx, "update"); err != nil {
				return err
			}
			err := c.Update(ctx, o, opts...)
			s.mu.Lock()
			answer := s.answer
			s.mu.Unlock()
			if answer != nil {
				answer()
			}
			return err
		},
	}).Build()
	return s
}

// hears sets what becomes of requests.
func (s *server) hears(before func(verb string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// context is that of a person who looks: it has a deadline, as every request must.
func (s *server) context() context.Context {
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*second)
	s.t.Cleanup(cancel)
	return ctx
}

func (s *server) store() *seal.Store { return seal.NewStore(s, s) }

func (s *server) secret() *corev1.Secret {
	s.t.Helper()
	o := &corev1.Secret{}
	if err := s.Get(s.context(), name, o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// edit changes the Secret as somebody else does.
func (s *server) edit(changes ...func(*corev1.Secret)) {
	s.t.Helper()
	o := s.secret()
	for _, change := range changes {
		change(o)
	}
	if err := s.Update(s.context(), o); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) remove() {
	s.t.Helper()
	if err := s.Delete(s.context(), s.secret()); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) loads(store *seal.Store) seal.Seal {
	s.t.Helper()
	got, err := store.Load(s.t.Context(), fleet)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

func (s *server) raises(store *seal.Store, d time.Duration) {
	s.t.Helper()
	if err := store.Raise(s.t.Context(), fleet, "shops", seal.Bounds{Duration: d, Skew: second}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) remembers(seconds string) {
	s.t.Helper()
	if got := string(s.secret().Data["largest-lease-duration-seconds"]); got != seconds {
		s.t.Errorf("the Secret remembers %q, want %q", got, seconds)
	}
}

// theSecret is one that a hub made earlier.
func theSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: seal.SecretName, Labels: map[string]string{v1alpha1.MoveLabel: ""}},
		Data: map[string][]byte{
			"key":                            []byte("only for tests, of exactly 32 B."),
			"largest-lease-duration-seconds": []byte("15"),
			"largest-max-clock-skew":         []byte("1s"),
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}
