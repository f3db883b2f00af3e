package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// server is the hub's API server. before, if set, is called before each request is carried out, and answer before an
// update is answered.
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
	serve := func(ctx context.Context, verb string) error {
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
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if o.GetName() != "" {
				t.Error("a get into an object that is not empty: a real client leaves what the answer does not say")
			}
			if err := serve(ctx, "get"); err != nil {
				return err
			}
			return c.Get(ctx, k, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := serve(ctx, "create"); err != nil {
				return err
			}
			return c.Create(ctx, o, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			if err := serve(ctx, "update"); err != nil {
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

// onRequest sets what happens to requests from now on.
func (s *server) onRequest(before func(verb string) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// once runs do before the next request with this verb is carried out.
func (s *server) once(verb string, do func() error) {
	s.onRequest(func(v string) error {
		if v != verb {
			return nil
		}
		s.onRequest(nil)
		return do()
	})
}

// fails has requests with these verbs fail, or all requests.
func (s *server) fails(err error, verbs ...string) {
	s.onRequest(func(verb string) error {
		if len(verbs) == 0 || slices.Contains(verbs, verb) {
			return err
		}
		return nil
	})
}

// context has a deadline, as every request must have.
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

// edit changes the Secret as an administrator does.
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

func (s *server) load(store *seal.Store) seal.Seal {
	s.t.Helper()
	got, err := store.Load(s.t.Context(), fleet)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// raise raises the bounds of the policy shops.
func (s *server) raise(store *seal.Store, b seal.Bounds) {
	s.t.Helper()
	if err := store.Raise(s.t.Context(), fleet, "shops", b); err != nil {
		s.t.Fatal(err)
	}
}

// failsToRaise raises bounds, which must fail with the error and change nothing.
func (s *server) failsToRaise(store *seal.Store, want error) {
	s.t.Helper()
	if err := store.Raise(s.t.Context(), fleet, "shops", larger); !errors.Is(err, want) ||
		!strings.Contains(err.Error(), theName) {
		s.t.Errorf("got %v, want %v", err, want)
	}
	s.onRequest(nil)
	if got := s.load(store).Largest(); got != usual {
		s.t.Errorf("the store counts with %v, which was not written", got)
	}
}

// knows fails the test unless a store and one of the next replica have these bounds.
func (s *server) knows(store *seal.Store, want seal.Bounds) {
	s.t.Helper()
	for who, of := range map[string]*seal.Store{"this replica": store, "the next replica": s.store()} {
		if got := s.load(of).Largest(); got != want {
			s.t.Errorf("%s has the bounds %v, want %v", who, got, want)
		}
	}
}

// hasKey fails the test unless the Secret has this key.
func (s *server) hasKey(want seal.Key) {
	s.t.Helper()
	if !bytes.Equal(s.secret().Data["key"], want) || len(want) != 32 {
		s.t.Errorf("the Secret has another key, or it has %d bytes", len(want))
	}
}

// wrote fails the test unless there were so many writes.
func (s *server) wrote(want int) {
	s.t.Helper()
	if s.writes != want {
		s.t.Errorf("%d writes, want %d", s.writes, want)
	}
}

// run runs tests on a server with the usual Secret and the store of a replica that has read nothing.
func run(t *testing.T, tests map[string]func(*server, *seal.Store)) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, theSecret())
			test(s, s.store())
		})
	}
}

const (
	fleet   = "fleet"
	second  = time.Second
	theName = "secret fleet/leasecast-seal"
)

var (
	name   = types.NamespacedName{Namespace: fleet, Name: seal.SecretName}
	errSay = errors.New("no")

	usual  = seal.Bounds{Duration: 15 * second, Skew: second} // in the usual Secret
	larger = seal.Bounds{Duration: 60 * second, Skew: 2 * second, Stop: 17 * second}

	conflict = apierrors.NewConflict(corev1.Resource("secrets"), seal.SecretName, errors.New("changed"))
)

func put(key, value string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { s.Data[key] = []byte(value) }
}

func drop(key string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { delete(s.Data, key) }
}

func marked(mark string) func(*corev1.Secret) {
	return func(s *corev1.Secret) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, v1alpha1.HubAnnotation, mark) }
}

// bounds sets those of the policy shops.
func bounds(duration, skew, stop string) func(*corev1.Secret) {
	const text = `{"shops":{"leaseDuration":%q,"maxClockSkew":%q,"stopTime":%q}}`
	return put("policies", fmt.Sprintf(text, duration, skew, stop))
}

func anotherKey(s *corev1.Secret) { s.Data["key"] = []byte("of another one, exactly of 32 B.") }

// theSecret is one that a hub made earlier.
func theSecret(changes ...func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: seal.SecretName,
			Labels: map[string]string{v1alpha1.MoveLabel: ""}},
		Data: map[string][]byte{
			"key": []byte("only for tests, of exactly 32 B."),
		},
	}
	bounds("15s", "1s", "0s")(s)
	for _, change := range changes {
		change(s)
	}
	return s
}
