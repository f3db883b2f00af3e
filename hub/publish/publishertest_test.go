package publish

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/assign"
)

// publisherTest is a Publisher in a bubble, in which time passes when all wait, and its member.
type publisherTest struct {
	*Publisher
	t      *testing.T
	member *testMember
	clock  *clocktest.Bubble
	ctx    context.Context // of what runs
	cancel context.CancelFunc
	ended  chan struct{} // once started
	began  time.Time     // of the bubble
	marked time.Time     // at the last step "mark"

	removed  *coordinationv1.Lease // at the last step "remember"
	promise  Promise               // at the same step
	mu       sync.Mutex
	mayNot   bool // the tenure has no right to write
	changed  []string
	reports  []string
	reported []string // of readers
}

func newPublisherTest(t *testing.T) *publisherTest {
	w := &publisherTest{t: t, member: newTestMember(), began: time.Now(),
		clock: clocktest.NewBubble(lease.Reading{Wall: time.Now().Round(0)})}
	w.ctx, w.cancel = context.WithCancel(t.Context())
	note := func(list *[]string, format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		*list = append(*list, fmt.Sprintf(format, args...))
	}
	w.Publisher = New(Options{
		Client: w.member, Fleet: fleetName, Cluster: "east.fleet", ClusterUID: "uid-of-east", Hub: "hub", Key: testKey,
		Clock: w.clock, Promises: NewPromises(), Log: logr.Discard(),
		Queue: workqueue.NewTypedDelayingQueue[types.NamespacedName](),
		MayWrite: func(lease.Reading) bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return !w.mayNot
		},
		Report: func(write bool, _ lease.Reading, err error) {
			note(&w.reports, "%s%s", map[bool]string{true: "write", false: "read"}[write],
				map[bool]string{true: "-failed"}[err != nil])
		},
		Changed: func(namespace string) { note(&w.changed, "%s", cmp.Or(namespace, "all")) },
		TellOfReader: func(name types.NamespacedName, why reason.Reason, _ string) {
			note(&w.reported, "%s:%s", name, why)
		},
	})
	return w
}

// start runs the Publisher until stop.
func (w *publisherTest) start() {
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		w.Run(w.ctx)
	}()
	synctest.Wait()
}

// stop ends the Publisher. After Run has returned, no request may be in flight.
func (w *publisherTest) stop() {
	w.t.Helper()
	if w.cancel(); w.ended == nil {
		w.Queue.ShutDown()
		return
	}
	<-w.ended
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	if n := w.member.inFlight; n > 0 {
		w.t.Errorf("%d requests are in flight after Run has returned", n)
	}
}

// after lets time pass until nothing more happens at that instant.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// assignLead makes this member the leader of a namespace from now on.
func (w *publisherTest) assignLead(namespace string, epoch int64, timings Timings) {
	t := term("east", epoch)
	t.AcquireTime = w.clock.Now().Wall
	w.Assign(keyOf(namespace), assign.Assignment{Role: assign.Lead, Term: t, First: true}, timings)
}

func (w *publisherTest) promised(namespace string) Promise {
	return w.Promises.Get(types.NamespacedName{Namespace: fleetName, Name: namespace})
}

// leads fails the test unless the Lease is live.
func (w *publisherTest) leads(namespace string) {
	w.t.Helper()
	c, _ := wire.Read(w.there(namespace))
	if c.Holder != "east.fleet" || !c.Live(w.clock.Now().Wall) {
		w.t.Fatalf("the Lease of %s is not live: %+v", namespace, c)
	}
}

// there returns the Lease of a namespace in the member, or an empty one.
func (w *publisherTest) there(namespace string) *coordinationv1.Lease {
	if obj := w.member.lease(keyOf(namespace)); obj != nil {
		return obj
	}
	return &coordinationv1.Lease{}
}

func readerKey(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "pods", Name: name}
}

// register stores a registration in the member, confirmed now.
func (w *publisherTest) register(name string, options ...string) *coordinationv1.Lease {
	return w.member.put(readerKey(name), registered(name, 1,
		func(r *lease.Registration) { r.Confirmed = time.Now() }, registrationOf(options)))
}

// confirm has all readers confirm their registrations.
func (w *publisherTest) confirm() {
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	for key, l := range w.member.leases {
		if key.Namespace == "pods" {
			l = l.DeepCopy()
			l.Spec.RenewTime.Time = time.Now()
			w.member.store(key, l)
		}
	}
}

// back has the member show its etcd's versions before so many changes.
func (w *publisherTest) back(by int) {
	w.member.mu.Lock()
	defer w.member.mu.Unlock()
	w.member.version -= by
	for key, obj := range w.member.leases {
		obj = obj.DeepCopy()
		obj.ResourceVersion = strconv.Itoa(min(int(number(obj.ResourceVersion)), w.member.version))
		w.member.leases[key] = obj
	}
}

// sent counts the requests of a verb since the last mark.
func (w *publisherTest) sent(verb string) int { return count(w.member.since(w.marked), verb) }

// taken returns what was noted since the last time.
func (w *publisherTest) taken(list *[]string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := *list
	*list = nil
	return got
}

// inBubble runs a test in a bubble, and stops what it has started. A bubble fails its test if a goroutine outlives it.
func inBubble(t *testing.T, test func(*publisherTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newPublisherTest(t)
		defer func() {
			w.stop()
			if w.member.spins {
				t.Errorf("more than %d requests at one instant", mostAtOnce)
			}
		}()
		test(w)
	})
}

// dice is a random source that several goroutines may use.
type dice struct {
	mu sync.Mutex
	r  *rand.Rand
}

func newDice(seed uint64) *dice { return &dice{r: rand.New(rand.NewPCG(seed, 0))} }

func (d *dice) roll(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.r.IntN(n)
}
