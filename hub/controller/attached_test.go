package controller

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
)

// A refusal may concern one namespace only; the probe asks about the member as a whole.
func TestWhatARequestSaysOfAMember(t *testing.T) {
	silence := &url.Error{Op: "Get", URL: "https://placeholder/api", Err: errors.New("no route")}
	for name, test := range map[string]struct {
		err  error
		want *health.Observation
	}{
		"it was answered":               {nil, &health.Observation{OK: true}},
		"there is no such copy":         {apierrors.NewNotFound(leaseResource, "shop"), &health.Observation{OK: true}},
		"it is forbidden":               {apierrors.NewForbidden(leaseResource, "shop", errRefused), nil},
		"the credentials are not valid": {apierrors.NewUnauthorized("who"), nil},
		"it is invalid":                 {apierrors.NewInvalid(clusterv1.GroupVersion.WithKind("Lease").GroupKind(), "shop", nil), nil},
		"silence":                       {silence, &health.Observation{Reason: reason.Unreachable, Message: "a request for a copy got no answer: no route"}},
		"anything else":                 {errors.New("lost"), &health.Observation{Reason: reason.Unreachable, Message: "a request for a copy got no answer: lost"}},
	} {
		t.Run(name, func(t *testing.T) {
			for write, kind := range map[bool]health.Kind{false: health.Read, true: health.Write} {
				var got *health.Observation
				report(func(o health.Observation) { got = &o }, write, musterStart, test.err)
				if test.want == nil {
					if got != nil {
						t.Errorf("observed %+v, want nothing", *got)
					}
					continue
				}
				want := *test.want
				want.Kind, want.At = kind, musterStart
				if got == nil || *got != want {
					t.Errorf("observed %+v, want %+v", got, want)
				}
			}
		})
	}
}

// shows is a member whose cache can be told what to show.
type shows struct {
	cluster.Cluster
	informers *informertest.FakeInformers
}

func (s shows) GetCache() cache.Cache { return s.informers }

func TestThePublisherSeesWhatTheCacheShows(t *testing.T) {
	informers := &informertest.FakeInformers{}
	informer, err := informers.FakeInformerFor(t.Context(), &coordinationv1.Lease{})
	if err != nil {
		t.Fatal(err)
	}
	s := newStage(t)
	p := s.publisher()
	detach, err := watchCopies(t.Context(), engagement{cluster: shows{informers: informers}}, p)
	if err != nil {
		t.Fatal(err)
	}
	known := func(when string, want bool) {
		t.Helper()
		s.work(p)
		if known := len(p.LeasesIn("shop")) > 0; known != want {
			t.Errorf("%s: a copy is known: %v, want %v", when, known, want)
		}
	}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "leasecast", UID: "uid", ResourceVersion: "5", Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
	}}
	known("at first", false)
	informer.Add(l)
	known("it was added", true)
	informer.Delete(l)
	known("it was deleted", false)
	informer.Update(nil, l)
	known("it was changed", true)
	detach()
	informers.Error = errRefused
	if _, err := watchCopies(t.Context(), engagement{cluster: shows{informers: informers}}, p); err == nil {
		t.Error("a cache that shows nothing is no error")
	}
}

// The guard is looked at after a pause, and earlier when the member leaves or its fleet is claimed by nobody.
func TestWhenTheGuardIsDue(t *testing.T) {
	for name, test := range map[string]struct {
		served, leaves, woken bool
		at                    time.Duration
	}{
		"after a pause":                   {true, false, false, time.Minute},
		"not because something changed":   {true, false, true, time.Minute},
		"because the member leaves":       {true, true, true, 0},
		"because nobody serves the fleet": {false, false, true, 0},
		"a member that leaves, not woken": {true, true, false, time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMuster(t, clusterOf("fleet", "east", "5"))
				by := ""
				if test.served {
					by = m.HubID
				}
				m.sight = served{fleetSight{m.Fleet}, by}
				if test.leaves {
					m.loses("east")
				}
				a := &attachment{wake: make(chan struct{}, 1)}
				if test.woken {
					a.wake <- struct{}{}
				}
				ctx, cancel := context.WithCancel(t.Context())
				returned := make(chan bool, 1)
				go func() { returned <- m.guardDue(ctx, eastKey, a, time.Minute) }()
				synctest.Wait()
				if early := len(returned) > 0; early != (test.at == 0) {
					t.Errorf("at once: %v", early)
				}
				if !<-returned {
					t.Error("it ended")
				}
				cancel()
				if m.guardDue(ctx, eastKey, a, time.Minute) {
					t.Error("due after the end")
				}
			})
		})
	}
}

// Nothing is written into a member without the right to.
func TestAStandbyChecksNoGuard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, clusterOf("fleet", "east", "5"))
		m.standby()
		if verified, err := m.checkGuard(t.Context(), m.member("east"), true); verified || !errors.Is(err, errUnchecked) {
			t.Errorf("%v, %v", verified, err)
		}
	})
}

// A guard stays where another hub has copies, and where a copy of this one may be left.
func TestWhenAMemberThatTakesNoPartIsLetGoOf(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*muster, *attachment)
		left   bool
	}{
		"another hub has a copy there":  {func(*muster, *attachment) {}, true},
		"a standby lets go of nothing":  {func(m *muster, _ *attachment) { m.standby() }, false},
		"nor does one that stands back": {func(m *muster, _ *attachment) { m.sight = served{fleetSight{m.Fleet}, besideMark} }, false},
		"a copy of this hub is left": {func(m *muster, a *attachment) {
			a.publisher = publisherThatRead(m.t, musterStart.Wall, testKey, eastCopy(20))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMuster(t, clusterOf("fleet", "east", "5"))
				cp := eastCopy(20)
				cp.Hub = "another"
				a := &attachment{publisher: publisherThatRead(t, musterStart.Wall, testKey, cp)}
				test.change(m, a)
				member := m.member("east")
				m.changes("east", func(c *clusterv1.Cluster) {
					c.Annotations = map[string]string{v1alpha1.ClusterUIDAnnotation: "uid"}
				})
				m.loses("east")
				m.leave(t.Context(), member, a)
				synctest.Wait()
				if _, ok := m.Fleet.Member(fleet.Key{Fleet: "fleet", Name: "east"}); ok == test.left {
					t.Errorf("it is still known: %v", ok)
				}
			})
		})
	}
}
