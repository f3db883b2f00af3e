package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
)

// quiet is an engaged cluster whose caches show nothing.
type quiet struct{ cluster.Cluster }

func (quiet) GetCache() cache.Cache       { return &informertest.FakeInformers{} }
func (quiet) GetConfig() *rest.Config     { return &rest.Config{Host: "http://[::1"} }
func (quiet) GetHTTPClient() *http.Client { return http.DefaultClient }

// memberClient is a client of a member that answers all requests but those about admission policies.
type memberClient struct {
	kubernetes.Interface
	admission admissionclient.AdmissionregistrationV1Interface
}

func newMemberClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	silent, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://east"}, &http.Client{Transport: silence{}})
	if err != nil {
		t.Fatal(err)
	}
	return memberClient{kubernetesfake.NewClientset(), silent.AdmissionregistrationV1()}
}

func (c memberClient) AdmissionregistrationV1() admissionclient.AdmissionregistrationV1Interface {
	return c.admission
}

type silence struct{}

func (silence) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no answer") }

// foreman is a muster of cluster east, which answers.
func foreman(t *testing.T) *muster {
	t.Helper()
	m := newMuster(t, pinned("east"))
	east := newMemberClient(t)
	m.writer = func(fleet.Member) kubernetes.Interface { return east }
	return m
}

// engages engages a member until the returned function is called.
func (m *muster) engages(key fleet.Key) (end context.CancelFunc) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	if err := m.Engage(ctx, key.ClusterName(), quiet{}); err != nil {
		m.t.Fatal(err)
	}
	synctest.Wait()
	return cancel
}

// atWorkIn is the worker in a member, or nil.
func (m *muster) atWorkIn(key fleet.Key) memberWorker {
	synctest.Wait()
	return m.members.worker(key)
}

// An earlier publisher of a member may renew once more until it has stopped. Whoever stops all renewals has to find it
// until then, and its successor from then on.
func TestANewWorkerWaitsForTheEndOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := foreman(t)
		running, stop := context.WithCancel(t.Context())
		m.members.running = running
		engaged := func() bool {
			synctest.Wait()
			m.members.mu.Lock()
			defer m.members.mu.Unlock()
			s := m.members.of[eastKey]
			return s != nil && s.engaged.ctx != nil
		}

		endFirst := m.engages(eastKey)
		first := m.atWorkIn(eastKey)
		if first == nil {
			t.Fatal("nothing works in a member that was engaged")
		}
		endSecond := m.engages(eastKey)
		if m.atWorkIn(eastKey) != first {
			t.Error("the new worker is at work before the old one has ended")
		}
		endFirst()
		second := m.atWorkIn(eastKey)
		if second == nil || second == first {
			t.Errorf("after the end of the old worker there is %p, want a new one than %p", second, first)
		}
		if !engaged() {
			t.Error("the end of the old engagement ended the new one")
		}
		endSecond()
		if left := m.atWorkIn(eastKey); left != nil || engaged() {
			t.Errorf("after the end of both there is still %p, engaged: %v", left, engaged())
		}
		stop()
		m.members.wg.Wait()
	})
}

// What is remembered of a member goes with its Cluster, but not before the work there has ended.
func TestAMemberIsRememberedUntilItsClusterAndTheWorkThereHaveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := foreman(t)
		m.members.running = t.Context()
		north := fleet.Key{Fleet: "fleet", Name: "north"} // one that the fleet does not know
		end := m.engages(eastKey)
		m.sources.recordProblem(eastKey)
		m.loses("east")
		m.Fleet.Forget(eastKey)
		synctest.Wait()
		if m.sources.recordProblem(eastKey); m.atWorkIn(eastKey) == nil {
			t.Error("it is forgotten while the work there goes on")
		}
		end()
		m.engages(north)()
		if synctest.Wait(); len(m.members.of) != 0 {
			t.Errorf("remembered are %v", m.members.of)
		}
	})
}

// The work that outlives its engagement keeps the member, too: what stops renewals has to find it.
func TestAMemberWithoutAClusterIsKeptForWhatWorksThere(t *testing.T) {
	for name, test := range map[string]struct {
		state *memberState
		kept  bool
	}{
		"it is engaged":            {&memberState{engaged: engagement{ctx: t.Context()}}, true},
		"its worker has not ended": {&memberState{worker: &laborer{}}, true},
		"both have ended":          {&memberState{}, false},
		"it was not seen before":   {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMuster(t)
				if test.state != nil {
					m.members.of[eastKey] = test.state
				}
				m.sources.recordProblem(eastKey)
				if _, kept := m.members.of[eastKey]; kept != test.kept {
					t.Errorf("kept: %v", kept)
				}
			})
		})
	}
}

// An engagement that failed is tried again, so that a member may be engaged twice until the same end.
func TestAMemberThatIsEngagedTwiceIsForgottenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := foreman(t)
		m.members.running = t.Context()
		ctx, end := context.WithCancel(t.Context())
		for range 2 {
			if err := m.Engage(ctx, eastKey.ClusterName(), quiet{}); err != nil {
				t.Fatal(err)
			}
		}
		if m.atWorkIn(eastKey) == nil {
			t.Error("nothing works there")
		}
		end()
		if left := m.atWorkIn(eastKey); left != nil || len(m.members.of) > 0 {
			t.Errorf("there is still %p, remembered are %v", left, m.members.of)
		}
	})
}

// What was engaged before this replica is elected is worked on from then on, and until the end.
func TestWhatAReplicaDoesFromItsElectionOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := foreman(t)
		var measured []fleet.Key
		m.Measure = func(key fleet.Key, client coordinationclient.LeasesGetter) coordinationclient.LeasesGetter {
			measured = append(measured, key)
			return client
		}
		disengage := m.engages(eastKey)
		defer disengage()
		m.members.of[eastKey].known = true
		pass(time.Second)
		if m.atWorkIn(eastKey) != nil {
			t.Error("it is worked on before the election")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- m.Start(ctx) }()
		pass(time.Second)
		if m.atWorkIn(eastKey) == nil || m.atWorkIn(eastKey).Publisher() == nil {
			t.Fatal("it is not worked on")
		}
		p := m.atWorkIn(eastKey).Publisher()
		if work, ok := m.Work(eastKey); !ok || work.Readers != 0 {
			t.Errorf("the work there: %+v, %v", work, ok)
		}
		if !slices.Equal(measured, []fleet.Key{eastKey}) {
			t.Errorf("measured: %v", measured)
		}
		if len(m.events.events) == 0 {
			t.Error("nobody is told of what was found out before")
		}
		last := make(chan struct{})
		m.members.wg.Go(func() { <-last })
		stop()
		synctest.Wait()
		if len(ended) > 0 {
			t.Error("Start returned before all work had ended")
		}
		close(last)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if !p.Queue.ShuttingDown() || m.atWorkIn(eastKey) != nil {
			t.Error("it had not ended when Start returned")
		}
		if _, ok := m.Work(eastKey); ok {
			t.Error("work is told of where there is none")
		}
		m.engages(eastKey)
		if m.atWorkIn(eastKey) != nil || len(measured) != 1 {
			t.Errorf("it is worked on after the end: %v", measured)
		}
	})
}

func TestWhatIsNotWorkedInIsNotWrittenTo(t *testing.T) {
	m, err := New(Options{}).members.lookAt(t.Context(), fleet.Member{Key: eastKey}, "shop")
	if err != nil || m.Publisher != nil || m.Unguarded == nil || m.Readers != 0 {
		t.Errorf("%+v, %v", m, err)
	}
	if ps := New(Options{}).members.publishers("fleet"); len(ps) > 0 {
		t.Errorf("publishers: %v", ps)
	}
	c := New(Options{})
	c.members.of[eastKey] = atWork(nil)
	if work, ok := c.Work(eastKey); ok {
		t.Errorf("a worker that knows no seal yet: %+v", work)
	}
}

// Only the replica that may write records events about readers and about fences that it has put back.
func TestTheClusterHearsOfReadersAndFences(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := foreman(t)
		h := workersHub{m.Controller}
		reader := func(name string) types.NamespacedName { return types.NamespacedName{Namespace: "pods", Name: name} }
		h.RecordReader(eastKey, reader("a"), corev1.EventTypeNormal, "ReaderGone", "pods/a is gone")
		if want := []string{"Lease pods/a"}; !slices.Equal(m.events.related, want) { // else the next would be one with it
			t.Errorf("related to %q, want %q", m.events.related, want)
		}
		want := []string{"*v1beta2.Cluster Normal ReaderGone: pods/a is gone"}
		if !slices.Equal(m.events.events, want) {
			t.Errorf("told %q, want %q", m.events.events, want)
		}
		h.RecordMended(eastKey, "the fence was put back")
		if want = append(want, "*v1beta2.Cluster Warning FenceMended: the fence was put back"); !slices.Equal(m.events.events,
			want) {
			t.Errorf("told %q, want %q", m.events.events, want)
		}
		h.RecordReader(eastKey, types.NamespacedName{}, corev1.EventTypeWarning, "TooMany", "no more of them are read")
		if want = append(want, "*v1beta2.Cluster Warning TooMany: no more of them are read"); !slices.Equal(m.events.events,
			want) {
			t.Errorf("told %q, want %q", m.events.events, want)
		}
		if len(m.events.related) != 1 {
			t.Errorf("what is about all registrations is related to %q", m.events.related[1:])
		}
		m.standby()
		h.RecordReader(eastKey, reader("b"), corev1.EventTypeNormal, "ReaderGone", "pods/b is gone")
		h.RecordMended(eastKey, "the fence was put back again")
		if !slices.Equal(m.events.events, want) {
			t.Errorf("a standby tells: %q", m.events.events)
		}
	})
}

// What a worker has seen in its member is decided and shown again.
func TestTheHubLooksAgainAtWhatWorkersTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, pinned("east"),
			policyOf("fleet", "shops", "shop"), policyOf("fleet", "tills", "till"), policyOf("fleet2", "others", "other"))
		for name, test := range map[string]struct {
			tell              func(workersHub)
			records, policies []string
		}{
			"news of a namespace": {func(h workersHub) { h.Changed(eastKey, "shop") }, []string{"fleet/shop"}, nil},
			"news of its fences":  {func(h workersHub) { h.FenceNews(eastKey) }, nil, []string{"fleet/shops", "fleet/tills"}},
		} {
			asked(&m.recordQueue)
			asked(&m.policyQueue)
			test.tell(workersHub{m.Controller})
			if got := asked(&m.recordQueue); !slices.Equal(got, test.records) {
				t.Errorf("%s: decisions on %q, want %q", name, got, test.records)
			}
			if got := asked(&m.policyQueue); !slices.Equal(got, test.policies) {
				t.Errorf("%s: policies %q, want %q", name, got, test.policies)
			}
		}
	})
}

func TestNothingIsFencedInAClusterThatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := policyOf("fleet", "shops", "shop")
		o.Spec.Fencing = &v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
		m := newMuster(t, o, clusterOf("fleet", "east", "5"))
		for name, want := range map[string]int{"east": 1, "south": 0} {
			fs, _, err := workersHub{m.Controller}.Fences(t.Context(), fleet.Key{Fleet: "fleet", Name: name})
			if err != nil || len(fs) != want {
				t.Errorf("%s: %d fences, %v; want %d", name, len(fs), err, want)
			}
		}
	})
}

// unlisted refuses lists.
type unlisted struct{ client.Client }

func (unlisted) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errRefused
}

// A worker removes the fences that no policy asks for, so it must not take a failed list for no policies.
func TestFencesAreNotKnownWhileThePoliciesCannotBeListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMuster(t, clusterOf("fleet", "east", "5"))
		m.Client = unlisted{m.api}
		if fs, _, err := (workersHub{m.Controller}).Fences(t.Context(), eastKey); !errors.Is(err, errRefused) {
			t.Errorf("%d fences, %v", len(fs), err)
		}
	})
}

func TestTheWorkInAMemberIsGuardedWhileItsPoliciesAreInForce(t *testing.T) {
	for want, unguarded := range map[bool]error{true: nil, false: errRefused} {
		s := newStage(t)
		s.c.members.of[eastKey] = &memberState{worker: &laborer{publisher: s.publisher(), unguarded: unguarded}}
		if work, ok := s.c.Work(eastKey); !ok || work.Guarded != want {
			t.Errorf("%v: %+v, %v; want %v", unguarded, work, ok, want)
		}
	}
}

// What workers are told of the hub is what holds for the fleet of their member.
func TestTheHubAsWorkersSeeIt(t *testing.T) {
	for name, test := range map[string]struct {
		change         func(*muster)
		served, serves bool
	}{
		"it serves the fleet": {func(m *muster) { m.source = elsewhere{fleetSource{m.Fleet}, ""} }, true, true},
		"nobody does":         {func(m *muster) { m.source = fleetSource{m.Fleet} }, false, true},
		"another installation does": {
			func(m *muster) { m.source = elsewhere{fleetSource{m.Fleet}, "platform"} }, false, false,
		},
		"it does, but is not elected": {
			func(m *muster) { m.source = elsewhere{fleetSource{m.Fleet}, ""}; m.standby() }, true, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := foreman(t)
				test.change(m)
				h := workersHub{m.Controller}
				if got := h.Served("fleet"); got != test.served {
					t.Errorf("served: %v", got)
				}
				if got := h.Serves("fleet"); got != test.serves {
					t.Errorf("serves: %v", got)
				}
				if got := h.MayWrite("fleet", musterStart); got != test.serves {
					t.Errorf("may write: %v", got)
				}
				if key, got := h.Serve(t.Context(), "fleet"); got != test.serves || (len(key) > 0) != test.serves {
					t.Errorf("served by now: %v", got)
				}
			})
		})
	}
}
