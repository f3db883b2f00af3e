package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/seal"
)

// elsewhere is a fleet without Clusters. other is the namespace of the installation that serves it, if not this one.
type elsewhere struct {
	fleetSource
	other string
}

func (s elsewhere) served(string) (here bool, other string) { return s.other == "", s.other }

// said are the events that a controller wrote, or began to.
type said struct{ events, related []string }

func (s *said) Eventf(about, related runtime.Object, kind, reason, _, note string, args ...any) {
	if r, ok := related.(*corev1.ObjectReference); ok {
		s.related = append(s.related, r.Kind+" "+r.Namespace+"/"+r.Name)
	}
	s.events = append(s.events, fmt.Sprintf("%T %s %s: %s", about, kind, reason, fmt.Sprintf(note, args...)))
}

// installation is a controller that is elected, and what it asks of the management cluster.
func installation(t *testing.T, by string, requests *[]string) (*Controller, *clocktest.Hand, *said) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1alpha1.AddToScheme, corev1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	p := &v1alpha1.LeadershipPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"}}
	note := func(what string, o client.Object) { *requests = append(*requests, fmt.Sprintf("%s %T", what, o)) }
	builder := fake.NewClientBuilder().WithScheme(scheme).WithObjects(p).WithStatusSubresource(p)
	api := builder.WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, k client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			note("get", o)
			return c.Get(ctx, k, o, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			note("create", o)
			return c.Create(ctx, o, opts...)
		},
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object,
			opts ...client.SubResourceUpdateOption) error {
			note("update "+sub, o)
			return c.SubResource(sub).Update(ctx, o, opts...)
		},
	}).Build()
	start := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	clock, events := clocktest.NewHand(start), &said{}
	f := fleet.New(fleet.Options{HubID: seal.Mark("uid", "platform"), MayWrite: func() bool { return true }, Clock: clock})
	c := New(Options{
		Fleet: f, Clock: clock, HubID: seal.Mark("uid", "platform"), OwnNamespace: "platform",
		Tenure: succeeding(t, start, 6*time.Second, -time.Hour), Seals: seal.NewStore(api, api),
	})
	c.Client, c.Live, c.events, c.source = api, api, events, elsewhere{fleetSource{f}, by}
	return c, clock, events
}

// One installation serves a fleet; another one on the same management cluster touches nothing of it.
func TestAnInstallationStandsBackWhereAnotherOneServes(t *testing.T) {
	for name, tc := range map[string]struct {
		by     string
		stands bool
	}{
		"this one serves":    {"", false},
		"another one serves": {"leasecast-system", true},
	} {
		t.Run(name, func(t *testing.T) {
			var requests []string
			c, clock, events := installation(t, tc.by, &requests)
			request := func(name string) mcreconcile.Request {
				return mcreconcile.Request{
					Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: name}},
				}
			}
			if result, err := c.reconcileNamespace(t.Context(), request("shop")); err != nil || result.RequeueAfter != notYet {
				t.Errorf("%+v, %v", result, err)
			}
			if read := slices.Contains(requests, "get *v1alpha1.NamespaceLeader"); read == tc.stands {
				t.Errorf("a decision: %t, requests %q", read, requests)
			}
			if _, err := c.statuses.reconcilePolicy(t.Context(), request("shops")); err != nil {
				t.Error(err)
			}
			if written := slices.Contains(requests, "update status *v1alpha1.LeadershipPolicy"); written == tc.stands {
				t.Errorf("a status: %t, requests %q", written, requests)
			}
			if got := c.MayWrite("fleet", clock.Now()); got == tc.stands {
				t.Errorf("may stamp: %t", got)
			}
			if tc.stands != (len(events.events) == 1) {
				t.Errorf("events: %q", events.events)
			}
		})
	}
}

// Whoever looks at the policy sees what is wrong and what to do.
func TestAnInstallationSaysThatItStandsBack(t *testing.T) {
	var requests []string
	c, _, events := installation(t, "leasecast-system", &requests)
	r := mcreconcile.Request{
		Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "fleet", Name: "shops"}},
	}
	if result, err := c.statuses.reconcilePolicy(t.Context(), r); err != nil || result.RequeueAfter != standBackAgain {
		t.Errorf("%+v, %v", result, err)
	}
	if len(events.events) != 1 {
		t.Fatalf("events %q", events.events)
	}
	for _, words := range []string{
		"*v1alpha1.LeadershipPolicy Warning OtherHub: the hub in namespace leasecast-system serves",
		"the one in platform changes nothing", "kubectl delete leases -A -l leasecast.dev/managed",
		"kubectl -n fleet annotate secret leasecast-seal leasecast.dev/hub-",
	} {
		if !strings.Contains(events.events[0], words) {
			t.Errorf("%q does not say %q", events.events[0], words)
		}
	}
}

// An earlier tenure may go by a larger ε than the policies have now. The seal holds it.
func TestTheSealIsReadAgainOnceAnEarlierTenureHasEndedByTheClocksOfTheSeal(t *testing.T) {
	const h = 6 * time.Second
	clock := clocktest.NewHand(clocktest.Start)
	c := New(Options{Tenure: succeeding(t, clock.Now(), h, -2*time.Second), Clock: clock, HubID: "this"})
	api := hubOf(t, c)
	for _, step := range []struct {
		at     time.Duration // since the start
		raised string        // by the earlier tenure, just before
		want   time.Duration
	}{
		{0, "60", time.Minute},
		{h + 100*time.Millisecond, "70", time.Minute},
		{h + 400*time.Millisecond, "80", time.Minute}, // it has ended by the policies' ε
		{h + 700*time.Millisecond, "90", 90 * time.Second},
	} {
		clock.Advance(clocktest.Start.Boot + step.at - clock.Now().Boot)
		raiseSeal(t, api, step.raised, "5s")
		if s, err := c.seals.of(t.Context(), shop.Namespace, 250*time.Millisecond); err != nil ||
			s.Largest().Duration != step.want {
			t.Errorf("after %v the largest D is %v, want %v (%v)", step.at, s.Largest().Duration, step.want, err)
		}
	}
}

// unsteady is an API server that may fail what it is asked.
type unsteady struct {
	client.Reader
	fails error
}

func (u *unsteady) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if u.fails != nil {
		return u.fails
	}
	return u.Reader.Get(ctx, key, o, opts...)
}

// A worker may have read the seal long before the first decision. Other replicas may have raised it since.
func TestTheFirstDecisionReadsTheSealWhoeverHasReadItBefore(t *testing.T) {
	for name, since := range map[string]time.Duration{"an earlier tenure is at work": 0, "it has ended": time.Hour} {
		t.Run(name, func(t *testing.T) {
			clock := clocktest.NewHand(clocktest.Start)
			c := New(Options{Tenure: succeeding(t, clock.Now(), 6*time.Second, -2*time.Second), Clock: clock, HubID: "this"})
			clock.Advance(since)
			api := hubOf(t, c)
			server := &unsteady{Reader: api}
			c.Seals = seal.NewStore(server, api)
			if s, err := c.Seals.Load(t.Context(), shop.Namespace); err != nil || s.Largest().Duration != time.Minute {
				t.Fatalf("%v, %v", s.Largest().Duration, err)
			}
			raiseSeal(t, api, "70", "5s")
			server.fails = errRefused
			if _, err := c.seals.of(t.Context(), shop.Namespace, time.Second); !errors.Is(err, errRefused) {
				t.Errorf("one that cannot be read: %v", err)
			}
			server.fails = nil
			if s, err := c.seals.of(t.Context(), shop.Namespace, time.Second); err != nil ||
				s.Largest().Duration != 70*time.Second {
				t.Errorf("the largest D is %v, want 70s (%v)", s.Largest().Duration, err)
			}
		})
	}
}
