package worker

import (
	"context"
	"errors"
	"net/http"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
)

var (
	eastKey    = fleet.Key{Fleet: "fleet", Name: "east"}
	testKey    = seal.Key("a key of thirty-two characters..")
	rigStart   = lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	shopLease  = types.NamespacedName{Namespace: "shop", Name: "leasecast"}
	errRefused = errors.New("refused")
)

// us and them are the installations of the hub here.
const us, them = "us", "them"

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// rig is a worker in cluster east, which is the hub and the fleet of its worker, too. The API server of east notes when
// its guard is looked at and tried.
type rig struct {
	*Worker
	t     *testing.T
	east  *memberAPI
	start time.Time

	mu            sync.Mutex
	looked, tried []time.Duration
	look, try     *metav1.Status // what looking and trying are answered with; nil: as by a member whose guard is in force
	unselected    []string       // questions for all Leases, whatever their labels
	observed      []health.Observation
	members       map[fleet.Key]fleet.Member
	by            string // the installation that serves the fleet
	standby       bool
	unsealed      bool // the seal of the fleet cannot be had
	wanted        []guard.Fence
	invalid       []string      // policies
	unread        error         // the policies cannot be read
	reading       chan struct{} // if it is not nil, who reads the policies waits for it
	records       error         // that they cannot be relinquished
	changed       []string      // the namespaces of which there is news; "": all
	fenceNews     int           // how often there was news of what is fenced
	events        []string
}

// newRig is to be called in a bubble of synctest.
func newRig(t *testing.T) *rig {
	t.Helper()
	east := fleet.Member{Key: eastKey, UID: "uid", Pinned: true}
	r := &rig{t: t, east: newMemberAPI(), start: time.Now(), by: us, members: map[fleet.Key]fleet.Member{eastKey: east}}
	client := r.east.client(t)
	r.Worker = New(Options{
		Member: east, Cluster: r.east, Client: client, Leases: client.CoordinationV1(), CronJobs: r.east.cronJobs(t), Fleet: r, Hub: r, HubID: us,
		Clock: clocktest.NewBubble(rigStart), Promises: publish.NewPromises(), Log: logr.Discard(),
		Observe: func(o health.Observation) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.observed = append(r.observed, o)
		},
	})
	r.east.refuses(r.answer)
	return r
}

func (r *rig) Member(key fleet.Key) (fleet.Member, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m, ok := r.members[key]
	return m, ok
}

func (r *rig) Members(fleetName string) (ms []fleet.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key, m := range r.members {
		if key.Fleet == fleetName {
			ms = append(ms, m)
		}
	}
	return ms
}

func (r *rig) Forget(key fleet.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, key)
}

func (r *rig) Serve(context.Context, string) (seal.Key, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.standby || r.unsealed || r.by == them {
		return nil, false
	}
	r.by = us
	return testKey, true
}

func (r *rig) Served(string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by == us
}

func (r *rig) Serves(string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.by != them && !r.standby
}

func (r *rig) MayWrite(fleetName string, _ lease.Reading) bool { return r.Serves(fleetName) }

func (r *rig) Changed(_ fleet.Key, namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changed = append(r.changed, namespace)
}

func (r *rig) FenceNews(fleet.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fenceNews++
}

func (r *rig) Fences(context.Context, fleet.Key) (wanted []guard.Fence, invalid []string, err error) {
	if r.reading != nil {
		<-r.reading
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.unread != nil {
		return nil, nil, r.unread
	}
	return r.wanted, r.invalid, nil
}

func (r *rig) RelinquishRecords(ctx context.Context, _ string) error {
	if end, bounded := ctx.Deadline(); !bounded || time.Until(end) <= 0 {
		r.t.Errorf("the records are to be relinquished until %v", end)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.records
}

func (r *rig) RecordReader(_ fleet.Key, _ types.NamespacedName, _, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, reason+": "+message)
}

func (r *rig) RecordMended(_ fleet.Key, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, message)
}

// will changes what the member answers from now on, or what the hub and the fleet say.
func (r *rig) will(change func(*rig)) {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r)
}

// is changes a member of the fleet.
func (r *rig) is(name string, change func(*fleet.Member)) {
	r.will(func(r *rig) {
		key := fleet.Key{Fleet: "fleet", Name: name}
		m := r.members[key]
		m.Key = key
		change(&m)
		r.members[key] = m
	})
}

// news empties the list of namespaces of which there is news.
func (r *rig) news() (changed []string) {
	r.will(func(r *rig) { changed, r.changed = r.changed, nil })
	return changed
}

// letThrough is how a write is answered that nothing refuses.
var letThrough = &metav1.Status{}

// answer notes what is asked of the guard.
func (r *rig) answer(req *http.Request) *metav1.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	note := func(in *[]time.Duration) {
		now := time.Since(r.start)
		if n := len(*in); n == 0 || (*in)[n-1] != now {
			*in = append(*in, now)
		}
	}
	switch {
	case strings.Contains(req.URL.Path, "admissionregistration"):
		if req.Method == http.MethodGet {
			note(&r.looked)
		}
		return r.look
	case req.URL.Query().Get("dryRun") == "":
		if path.Base(req.URL.Path) == "leases" && req.Method == http.MethodGet && req.URL.Query().Get("labelSelector") == "" {
			r.unselected = append(r.unselected, req.URL.String())
		}
		return nil
	case r.try == letThrough:
		note(&r.tried)
		return nil
	case r.try != nil:
		note(&r.tried)
		return r.try
	}
	note(&r.tried)
	s := failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	for _, p := range guard.Policies() {
		for _, v := range p.Policy.Spec.Validations {
			s.Message += v.Message
		}
	}
	return s
}

// since forgets what was asked, and returns it.
func (r *rig) since() (looked, tried []time.Duration) {
	r.will(func(r *rig) {
		looked, tried = r.looked, r.tried
		r.looked, r.tried = nil, nil
	})
	return looked, tried
}

// eastLease is the Lease of a term of east in east, renewed at the start.
func eastLease(epoch int64) lease.Content {
	id := eastKey.Identity()
	return lease.Content{
		Namespace: shopLease.Namespace, Name: shopLease.Name, Cluster: id, ClusterUID: "uid", Hub: us,
		Term: lease.Term{Holder: id, Epoch: epoch, AcquireTime: rigStart.Wall, RenewTime: rigStart.Wall, Duration: 15 * time.Second},
	}
}

// has stores Leases in east.
func (r *rig) has(leases ...lease.Content) {
	r.t.Helper()
	for _, c := range leases {
		l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: c.Namespace, Name: c.Name, UID: "uid-of-it"}}
		if err := seal.Write(testKey, c, l); err != nil {
			r.t.Fatal(err)
		}
		r.east.store(l)
	}
}

// reads gives the worker a publisher that has read east.
func (r *rig) reads() *publish.Publisher {
	r.t.Helper()
	p := r.newPublisher(testKey)
	r.t.Cleanup(p.Queue.ShutDown)
	if !p.ReadAll(r.t.Context()) {
		r.t.Fatal("the Leases were not read")
	}
	r.publisher = p
	r.writes()
	return p
}

// writes has the publisher do all that is to be done at once.
func (r *rig) writes() {
	for p := r.Publisher(); p.Queue.Len() > 0; {
		key, _ := p.Queue.Get()
		p.Work(r.t.Context(), key)
		p.Queue.Done(key)
	}
}

// runs has f run until the returned function is called.
func (r *rig) runs(f func(context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f(ctx)
	}()
	synctest.Wait()
	return func() {
		cancel()
		<-ended
	}
}

// guarded puts the guard into east.
func (r *rig) guarded() {
	r.t.Helper()
	r.keeper.Keep(r.t.Context(), guard.Desired{})
	if err := r.Unguarded(); err != nil {
		r.t.Fatal(err)
	}
	r.since()
}

// knows reports whether the fleet knows a member.
func (r *rig) knows(name string) bool {
	_, ok := r.Member(fleet.Key{Fleet: "fleet", Name: name})
	return ok
}

// installed reports whether the guard is in east.
func (r *rig) installed() bool { return len(r.east.holds(guard.Name)) > 0 }

// every lists instants until an end.
func every(pause, end time.Duration) (at []time.Duration) {
	for d := time.Duration(0); d <= end; d += pause {
		at = append(at, d)
	}
	return at
}
