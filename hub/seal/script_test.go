package seal_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

const (
	fleet  = "fleet"
	second = time.Second
)

var (
	name = types.NamespacedName{Namespace: fleet, Name: seal.SecretName}
	// marks are those of this installation, of one beside it, and of one on another management cluster.
	marks = map[string]string{"own": seal.Mark("9b2d", "leasecast-system"), "beside": seal.Mark("9b2d", "platform"),
		"moved": seal.Mark("77aa", "platform")}

	errNo = errors.New("no")
	named = map[string]error{
		"no": errNo, "late": context.DeadlineExceeded, "served": seal.ErrServed, "broken": seal.ErrBroken,
		"conflict": apierrors.NewConflict(corev1.Resource("secrets"), seal.SecretName, errNo),
	}
)

// sealTest is the hub's API server with the stores of its replicas.
type sealTest struct {
	t      *testing.T
	admin  client.WithWatch // not counted
	stores map[string]*seal.Store
	store  *seal.Store // of the present replica
	got    seal.Seal   // the last result
	err    error
	kept   seal.Key

	before           func(verb string) error // called before a request is carried out
	after            func(verb string)       // called when a request has been carried out
	writes, requests int
}

// newSealTest begins with a Secret that a hub made earlier.
func newSealTest(t *testing.T) *sealTest {
	s := &sealTest{t: t, stores: map[string]*seal.Store{}, admin: fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet, Name: seal.SecretName,
			Labels: map[string]string{v1alpha1.MoveLabel: ""}},
		Data: sound(),
	}).Build()}
	s.store = s.newStore()
	s.stores["1"] = s.store
	return s
}

// sound is the content of the Secret at the start.
func sound() map[string][]byte {
	return map[string][]byte{"key": []byte("only for tests, of exactly 32 B."), "policies": shops("15s", "1s", "0s")}
}

// shops is the text of the bounds of the policy shops.
func shops(duration, skew, stop string) []byte {
	return fmt.Appendf(nil, `{"shops":{"leaseDuration":%q,"maxClockSkew":%q,"stopTime":%q}}`, duration, skew, stop)
}

// newStore is that of a replica that has read nothing.
func (s *sealTest) newStore() *seal.Store {
	c := interceptor.NewClient(s.admin, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if o.GetName() != "" {
				s.t.Error("a get into an object that is not empty: a real client leaves what the answer lacks")
			}
			return s.serve(ctx, "get", func() error { return c.Get(ctx, k, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			return s.serve(ctx, "create", func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return s.serve(ctx, "update", func() error {
				if equality.Semantic.DeepEqual(o, s.secret()) {
					s.t.Error("an update that changes nothing: a real API server keeps the resourceVersion")
				}
				return c.Update(ctx, o, opts...)
			})
		},
	})
	return seal.NewStore(c, c)
}

func (s *sealTest) serve(ctx context.Context, verb string, carry func() error) error {
	if _, ok := ctx.Deadline(); !ok {
		s.t.Errorf("a %s without a deadline", verb)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if s.requests++; verb != "get" {
		s.writes++
	}
	if s.before != nil {
		if err := s.before(verb); err != nil {
			return err
		}
	}
	err := carry()
	if s.after != nil {
		s.after(verb)
	}
	return err
}

func (s *sealTest) secret() *corev1.Secret {
	o := &corev1.Secret{}
	if err := s.admin.Get(s.t.Context(), name, o); err != nil {
		s.t.Fatal(err)
	}
	return o
}

// edit changes the Secret as an administrator does.
func (s *sealTest) edit(words []string) {
	o := s.secret()
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "reset": // by a program that replaces the Secret by the one of its manifests
			o.Labels, o.Annotations = nil, nil
		case "sound":
			o.Data = sound()
		case "empty":
			o.Data = nil
		case "blank":
			o.Data = map[string][]byte{"key": {}, "policies": nil}
		case "mark":
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, v1alpha1.HubAnnotation, marks[value])
		case "unmark":
			delete(o.Annotations, v1alpha1.HubAnnotation)
		case "team":
			o.Labels, o.Annotations = map[string]string{"team": value}, map[string]string{"team": value}
			o.Data["note"] = []byte(value)
		case "anotherKey":
			o.Data["key"] = []byte("of another one, exactly of 32 B.")
		case "bounds":
			b := strings.Split(value, ",")
			o.Data["policies"] = shops(b[0], b[1], b[2])
		case "drop":
			delete(o.Data, value)
		default:
			o.Data[key] = []byte(value)
		}
	}
	if err := s.admin.Update(s.t.Context(), o); err != nil {
		s.t.Fatal(err)
	}
}

// boundsOf reads D, ε and the stop time.
func boundsOf(words []string) seal.Bounds {
	var ds [3]time.Duration
	for i := range ds {
		d, err := time.ParseDuration(words[i])
		if err != nil {
			panic(err)
		}
		ds[i] = d
	}
	return seal.Bounds{Duration: ds[0], Skew: ds[1], Stop: ds[2]}
}

// play runs scripts: tables of tests. Each line that is not indented names a test. Its steps follow in indented lines,
// separated by semicolons. A step of a store must succeed, or fail with the error after "->".
//
//   - find, refresh, serve, raise and lower call the Store. "raise" names a policy and its bounds.
//     "replica" goes on with the store of another replica;
//   - remove, edit: what an administrator does with the Secret;
//   - fails, works: requests of a verb, or all, fail from now on, or succeed again. "once" has the next request of a
//     verb fail, or runs a step of another replica before it, or of the same one. "after" runs a step of the same one
//     when the next request of a verb was carried out;
//   - keep: the key of the last result is remembered.
//
// The others are conditions. "bounds" must hold in this replica and in one that starts.
func play(t *testing.T, scripts string) {
	t.Helper()
	steps := map[string][]string{}
	var name string
	for line := range strings.SplitSeq(strings.Trim(scripts, "\n"), "\n") {
		if rest, indented := strings.CutPrefix(line, "\t"); indented {
			steps[name] = append(steps[name], strings.Split(strings.TrimSuffix(rest, ";"), "; ")...)
		} else if name = line; steps[name] != nil {
			t.Fatalf("two tests are named %s", name)
		}
	}
	for name, steps := range steps {
		t.Run(name, func(t *testing.T) {
			s := newSealTest(t)
			for _, step := range steps {
				s.play(step)
			}
		})
	}
}

func (s *sealTest) play(step string) {
	s.t.Helper()
	do, want, _ := strings.Cut(step, " -> ")
	words := strings.Fields(do)
	if call := s.calls(words[1:])[words[0]]; call != nil {
		s.err = call()
		s.result(step, want)
	} else if happens := s.events(strings.Fields(step)[1:])[words[0]]; happens != nil {
		happens()
	} else if holds := s.conditions(words[1:])[words[0]]; holds == nil {
		s.t.Fatalf("no such step: %q", step)
	} else if !holds() {
		s.t.Fatalf("not so: %s; the result has the bounds %v; error %v", step, s.got.Policies, s.err)
	}
}

// calls are those of the store.
func (s *sealTest) calls(args []string) map[string]func() error {
	ctx, err := s.t.Context(), error(nil)
	return map[string]func() error{
		"find":    func() error { s.got, err = s.store.Find(ctx, fleet); return err },
		"refresh": func() error { s.got, err = s.store.Refresh(ctx, fleet); return err },
		"serve": func() error { // the list of Clusters is a request too: they move, or it fails
			s.got, err = s.store.Serve(ctx, fleet, marks[args[0]], func() (bool, error) {
				s.requests++
				is := strings.Join(args[1:], " ")
				return is == "moving", named[is]
			})
			return err
		},
		"raise": func() error {
			s.got = seal.Seal{}
			return s.store.Raise(ctx, fleet, args[0], boundsOf(args[1:]))
		},
		"lower": func() error { // to the bounds of these policies, from those of both
			after := map[string]seal.Bounds{}
			for _, arg := range args {
				policy, b, _ := strings.Cut(arg, "=")
				after[policy] = boundsOf(strings.Split(b, ","))
			}
			return s.store.Lower(ctx, fleet, maps.Clone(both), after)
		},
	}
}

// result fails the test unless the last call ended like that. No error shows what the Secret holds.
func (s *sealTest) result(step, want string) {
	s.t.Helper()
	if want == "" {
		if s.err != nil {
			s.t.Fatalf("%s: %v", step, s.err)
		}
		return
	}
	why := apierrors.ReasonForError(named[want])
	is := errors.Is(s.err, named[want]) || why != metav1.StatusReasonUnknown && apierrors.ReasonForError(s.err) == why
	if !is || !strings.Contains(s.err.Error(), "secret "+name.String()) || s.got.Key != nil {
		s.t.Fatalf("%s: %v, with a key: %v", step, s.err, s.got.Key != nil)
	}
	shown := strings.ReplaceAll(s.err.Error(), "such as 15s", "")
	if slices.ContainsFunc([]string{"only for tests", "only-for-tests", "32 B", "32-B", "-15", "15s", "9999"},
		func(secret string) bool { return strings.Contains(shown, secret) }) {
		s.t.Fatalf("%s: the error shows the content of the Secret: %v", step, s.err)
	}
}

// events are what happens around the store.
func (s *sealTest) events(args []string) map[string]func() {
	rest := func(n int) string { return strings.Join(args[n:], " ") }
	return map[string]func(){
		"replica": func() {
			if s.stores[args[0]] == nil {
				s.stores[args[0]] = s.newStore()
			}
			s.store = s.stores[args[0]]
		},
		"remove": func() {
			if err := s.admin.Delete(s.t.Context(), s.secret()); err != nil {
				s.t.Fatal(err)
			}
		},
		"edit": func() { s.edit(args) },
		"fails": func() {
			s.before = func(verb string) error {
				if args[0] == "all" || args[0] == verb {
					return named[args[1]]
				}
				return nil
			}
		},
		"works": func() { s.before = nil },
		"once": func() {
			s.before = func(verb string) error {
				if verb != args[0] {
					return nil
				}
				s.before = nil
				err := named[args[1]]
				if err != nil && len(args) > 2 {
					s.play(rest(2))
				}
				if err != nil {
					return err
				}
				store, got := s.store, s.got
				if args[1] != "same" {
					s.store = s.newStore()
				}
				s.play(strings.TrimPrefix(rest(1), "same "))
				s.store, s.got = store, got
				return nil
			}
		},
		"after": func() {
			s.after = func(verb string) {
				if verb != args[0] {
					return
				}
				s.after = nil
				got := s.got
				s.play(rest(1))
				s.got = got
			}
		},
		"keep":  func() { s.kept = s.got.Key },
		"count": func() { s.writes, s.requests = 0, 0 },
	}
}

// conditions are what must hold.
func (s *sealTest) conditions(args []string) map[string]func() bool {
	bounds := func(of *seal.Store) bool {
		got, err := of.Find(s.t.Context(), fleet)
		return err == nil && got.Largest() == boundsOf(args)
	}
	ofPolicy := func(of *seal.Store) bool {
		got, err := of.Find(s.t.Context(), fleet)
		return err == nil && got.Of(args[0]) == boundsOf(args[1:]) && got.Of("new") == seal.Bounds{}
	}
	is := func(a, b seal.Key) bool { return bytes.Equal(a, b) && len(b) == 32 }
	key := func() seal.Key { return s.secret().Data["key"] }
	return map[string]func() bool{
		"key":         func() bool { return is(key(), s.got.Key) }, // of the last result is in the Secret
		"kept":        func() bool { return is(key(), s.kept) },
		"kept-result": func() bool { return is(s.got.Key, s.kept) },
		"no-key":      func() bool { return len(s.got.Key) == 0 },
		"no-secret": func() bool {
			return apierrors.IsNotFound(s.admin.Get(s.t.Context(), name, &corev1.Secret{}))
		},
		"bounds":  func() bool { return bounds(s.store) && bounds(s.newStore()) },
		"here":    func() bool { return bounds(s.store) },                   // in this replica
		"largest": func() bool { return s.got.Largest() == boundsOf(args) }, // of the last result
		"of":      func() bool { return ofPolicy(s.store) && ofPolicy(s.newStore()) },
		"mark":    func() bool { return seal.MarkOf(s.secret()) == marks[args[0]] },
		"moves": func() bool { // clusterctl move takes the Secret along, which shows whose it is
			labels := s.secret().Labels
			_, ok := labels["clusterctl.cluster.x-k8s.io/move"]
			return ok && labels["app.kubernetes.io/managed-by"] == "leasecast"
		},
		"team": func() bool {
			o := s.secret()
			return o.Labels["team"] == args[0] && o.Annotations["team"] == args[0] && string(o.Data["note"]) == args[0]
		},
		"wrote":    func() bool { return strconv.Itoa(s.writes) == args[0] },
		"requests": func() bool { return strconv.Itoa(s.requests) == args[0] },
		"message":  func() bool { return strings.Contains(s.err.Error(), strings.Join(args, " ")) },
	}
}
