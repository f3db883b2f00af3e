package controller

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	admissionclient "k8s.io/client-go/kubernetes/typed/admissionregistration/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/decide/decidetest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// emptyCluster is an engaged cluster whose caches show nothing.
type emptyCluster struct{ cluster.Cluster }

func (emptyCluster) GetCache() cache.Cache       { return &informertest.FakeInformers{} }
func (emptyCluster) GetConfig() *rest.Config     { return &rest.Config{Host: "http://[::1"} }
func (emptyCluster) GetHTTPClient() *http.Client { return http.DefaultClient }

// memberClient is a client of a member that answers all requests but those about admission policies.
type memberClient struct {
	kubernetes.Interface
	admission admissionclient.AdmissionregistrationV1Interface
}

func newMemberClient(t *testing.T) kubernetes.Interface {
	t.Helper()
	silent, err := kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://east"}, &http.Client{Transport: silence{}})
	musttest.Do(t, err)
	return memberClient{kubernetesfake.NewClientset(), silent.AdmissionregistrationV1()}
}

func (c memberClient) AdmissionregistrationV1() admissionclient.AdmissionregistrationV1Interface {
	return c.admission
}

type silence struct{}

func (silence) RoundTrip(*http.Request) (*http.Response, error) { return nil, errors.New("no answer") }

// newTestFleetAtWork is a fleet of cluster east, which answers.
func newTestFleetAtWork(t *testing.T) *testFleet {
	t.Helper()
	m := newTestFleet(t, pinned("east"))
	east := newMemberClient(t)
	m.writer = func(fleet.Member) kubernetes.Interface { return east }
	return m
}

// engages engages a member until the returned function is called.
func (m *testFleet) engages(key fleet.Key) (end context.CancelFunc) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	musttest.Do(m.t, m.Engage(ctx, key.ClusterName(), emptyCluster{}))
	synctest.Wait()
	return cancel
}

// atWorkIn is the worker in a member, or nil.
func (m *testFleet) atWorkIn(key fleet.Key) memberWorker {
	synctest.Wait()
	return m.members.worker(key)
}

// An earlier publisher of a member may renew once more until it has stopped. Whoever stops all renewals has to find it
// until then, and its successor from then on.
func TestANewWorkerWaitsForTheEndOfTheOldOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleetAtWork(t)
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
		m := newTestFleetAtWork(t)
		m.members.running = t.Context()
		north := fleet.Key{Fleet: "fleet", Name: "north"} // one that the fleet does not know
		end := m.engages(eastKey)
		m.sources.memberChanged(eastKey)
		m.loses("east")
		m.Fleet.Forget(eastKey)
		synctest.Wait()
		if m.sources.memberChanged(eastKey); m.atWorkIn(eastKey) == nil {
			t.Error("it is forgotten while the work there goes on")
		}
		end()
		m.engages(north)()
		if synctest.Wait(); len(m.members.of) != 0 {
			t.Errorf("remembered are %v", m.members.of)
		}
	})
}

// What was engaged before this replica is elected is worked on from then on, and until the end.
func TestWhatAReplicaDoesFromItsElectionOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleetAtWork(t)
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
		if len(m.events.events) == 0 {
			t.Error("what was found before has no event")
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
		if m.atWorkIn(eastKey) != nil {
			t.Error("it is worked on after the end")
		}
	})
}

func TestWorkInAMember(t *testing.T) {
	c := New(Options{})
	m, err := c.members.lookAt(t.Context(), fleet.Member{Key: eastKey}, "shop")
	if err != nil || m.Publisher != nil || m.Unguarded == nil || m.Readers != 0 || len(c.members.publishers("fleet")) > 0 {
		t.Errorf("without a worker: %+v, %v", m, err)
	}
	c.members.of[eastKey] = atWork(nil)
	if work, ok := c.Work(eastKey); ok {
		t.Errorf("a worker that has no seal yet: %+v", work)
	}
	for want, unguarded := range map[Work]error{
		{Guarded: true, Checked: true}: nil, {Checked: true}: errRefused, {}: guard.ErrUnchecked,
	} {
		w := &fakeWorker{publisher: newTestMember(t).publisher(), unguarded: unguarded}
		c.members.of[eastKey] = &memberState{worker: w}
		if work, ok := c.Work(eastKey); !ok || work != want {
			t.Errorf("%v: %+v, %v; want %+v", unguarded, work, ok, want)
		}
	}
}

// Only the replica that may write records events about readers and about fences that it has reverted. An event that is
// related to a registration is not merged with the next one.
func TestEventsOfWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestFleetAtWork(t)
		records := func() {
			h, reader := workersHub{m.Controller}, types.NamespacedName{Namespace: "pods", Name: "a"}
			h.RecordReader(eastKey, reader, "ReaderSilent", "pods/a is silent")
			h.RecordGuard(eastKey, reason.FenceMended, "the fence was put back")
			h.RecordReader(eastKey, types.NamespacedName{}, "TooMany", "no more of them are read")
		}
		records()
		m.standby()
		records()
		want := []string{"*v1beta2.Cluster Warning ReaderSilent: pods/a is silent",
			"*v1beta2.Cluster Warning FenceMended: the fence was put back",
			"*v1beta2.Cluster Warning TooMany: no more of them are read"}
		if !slices.Equal(m.events.events, want) || !slices.Equal(m.events.related, []string{"Lease pods/a"}) {
			t.Errorf("events %q, related to %q; want %q", m.events.events, m.events.related, want)
		}
	})
}

// A worker ends what no policy asks for, so it must not take a failed list for no policies. A cluster that is not
// selected any more keeps its fences while it leads: programs there may go on until the stop time is over.
func TestWhatAWorkerKeepsInItsMember(t *testing.T) {
	ofRecords := func(_ context.Context, _ string, o runtime.Object) error {
		if _, ok := o.(*v1alpha1.NamespaceLeaderList); ok {
			return errRefused
		}
		return nil
	}
	for name, test := range map[string]struct {
		state          v1alpha1.RecordState
		leader, policy string
		inEast, inWest int // west is not selected
	}{
		"its term ends":                      {v1alpha1.StateEnding, "west", "shops", 1, 1},
		"another cluster leads":              {v1alpha1.StateLeading, "east", "shops", 1, 0},
		"nobody leads":                       {v1alpha1.StateVacant, "", "shops", 1, 0},
		"it leads for a policy that is gone": {v1alpha1.StateLeading, "west", "gone", 1, 0},
		"another policy owns its namespace":  {v1alpha1.StateLeading, "east", "mails", 0, 0},
	} {
		inBubble(t, name, func(t *testing.T) {
			o := policyOf("fleet", "shops", "shop")
			o.Spec.Fencing = decidetest.Locks(simLock)
			o.Spec.ClusterSelector = &metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.PriorityLabel: "5"}}
			record := recordOf("fleet", "shop")
			record.Spec.State, record.Spec.Leader, record.Spec.Policy = test.state, test.leader, test.policy
			o.Spec.Requires = &v1alpha1.Requires{
				Resources: []v1alpha1.RequiredResources{{Group: "apps", Names: []string{"deployments"}}},
			}
			m := newTestFleet(t, o, record, policyOf("fleet", "mails", "shop"), clusterOf("fleet", "east", "5"),
				clusterOf("fleet", "west", "7"), clusterOf("fleet", "north", "7"))
			h := workersHub{m.Controller}
			expects := func(cluster string, want int) {
				t.Helper()
				fs, _, err := h.Fences(t.Context(), fleet.Key{Fleet: "fleet", Name: cluster})
				if err != nil || len(fs) != want {
					t.Errorf("%s: %d fences, %v; want %d", cluster, len(fs), err, want)
				}
			}
			m.Client = failing(m.api, "list")
			if rs, err := h.Requires(t.Context(), eastKey); !errors.Is(err, errRefused) {
				t.Errorf("requires %v, %v", rs, err)
			}
			m.Client = m.api
			for cluster, want := range map[string]int{"east": test.inEast, "west": test.inWest, "north": 0, "unknown": 0} {
				expects(cluster, want)
				rs, err := h.Requires(t.Context(), fleet.Key{Fleet: "fleet", Name: cluster})
				if err != nil || (len(rs) == 1) != (cluster == "east") {
					t.Errorf("%s requires %v, %v", cluster, rs, err)
				}
			}
			m.Client = checked(m.api, ofRecords)
			expects("west", test.inEast) // it may lead
			m.Client = failing(m.api, "list")
			if fs, _, err := h.Fences(t.Context(), eastKey); !errors.Is(err, errRefused) {
				t.Errorf("%d fences, %v", len(fs), err)
			}
		})
	}
}
