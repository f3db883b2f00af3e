package controller

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/publish"
)

var (
	leaseResource  = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	readerSelector = publish.ReaderSelector().String()
)

// leaseServer holds Leases as an API server does. Stored objects are never changed.
type leaseServer struct {
	machine
	version  int64
	uids     int
	leases   map[types.NamespacedName]*coordinationv1.Lease
	spaces   map[string]space
	log      []change // since the start, or since the last restore
	restored int      // how often
	watchers []*watcher
	noted    func(old, obj *coordinationv1.Lease)
	deny     func(types.NamespacedName) error // writes
	refuse   func(types.NamespacedName) error // reads and lists
}

// space is a namespace: how often it was made, whether it is going away, and its labels.
type space struct {
	uid         int
	terminating bool
}

// change is one entry of the history that watches show. A nil lease is gone.
type change struct {
	at    time.Duration
	key   types.NamespacedName
	lease *coordinationv1.Lease
}

// snapshot takes one of the member's etcd, and returns what restores it. Versions go back with it.
func (m *member) snapshot() (restore func()) {
	version, leases, spaces, fences := m.version, maps.Clone(m.leases), maps.Clone(m.spaces), slices.Clone(m.fences)
	return func() {
		m.version, m.leases, m.spaces, m.fences = version, leases, spaces, fences
		m.log, m.restored = nil, m.restored+1
		for _, key := range sortedKeys(m.leases) {
			m.log = append(m.log, change{m.w.now, key, m.leases[key]})
		}
		for _, wt := range m.watchers {
			wt.relist(0)
		}
		m.spacesChanged()
	}
}

// put stores a Lease under a new version.
func (s *leaseServer) put(key types.NamespacedName, obj *coordinationv1.Lease, uid types.UID) *coordinationv1.Lease {
	stored := *obj
	s.version++
	stored.Namespace, stored.Name, stored.UID, stored.ResourceVersion = key.Namespace, key.Name, uid,
		strconv.FormatInt(s.version, 10)
	s.noted(s.leases[key], &stored)
	s.leases[key] = &stored
	s.changed(key, &stored)
	return &stored
}

func (s *leaseServer) changed(key types.NamespacedName, obj *coordinationv1.Lease) {
	s.log = append(s.log, change{s.w.now, key, obj})
	for _, wt := range s.watchers {
		wt.kick()
	}
	if s.w.trace != nil {
		s.w.say(s.name, "%s", describeLease(key, obj))
	}
}

func (s *leaseServer) create(key types.NamespacedName, obj *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	ns, ok := s.spaces[key.Namespace]
	if err := s.deny(key); err != nil {
		return nil, err
	}
	switch {
	case !ok && !isRegistration(obj):
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, key.Namespace)
	case ns.terminating:
		return nil, apierrors.NewForbidden(leaseResource, key.Name, errEnded)
	case s.leases[key] != nil:
		return nil, apierrors.NewAlreadyExists(leaseResource, key.Name)
	}
	s.uids++
	return s.put(key, obj, types.UID("u"+strconv.Itoa(s.uids))), nil
}

// update compares UID and version, if they are given. Without a UID it makes a Lease
// that does not exist, as the real API server does.
func (s *leaseServer) update(key types.NamespacedName, obj *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	old := s.leases[key]
	if err := s.deny(key); err != nil {
		return nil, err
	}
	switch {
	case old == nil && obj.UID == "":
		return s.create(key, obj)
	case old == nil:
		return nil, apierrors.NewConflict(leaseResource, key.Name, errRefused)
	case obj.UID != "" && obj.UID != old.UID, obj.ResourceVersion != "" && obj.ResourceVersion != old.ResourceVersion:
		return nil, apierrors.NewConflict(leaseResource, key.Name, errRefused)
	case obj.ResourceVersion == "":
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: "coordination.k8s.io", Kind: "Lease"}, key.Name, nil)
	}
	return s.put(key, obj, old.UID), nil
}

func (s *leaseServer) remove(key types.NamespacedName, pre *metav1.Preconditions) error {
	old := s.leases[key]
	switch {
	case old == nil:
		return apierrors.NewNotFound(leaseResource, key.Name)
	case !isMet(pre, old):
		return apierrors.NewConflict(leaseResource, key.Name, errRefused)
	}
	delete(s.leases, key)
	s.version++
	s.changed(key, nil)
	return nil
}

// newLeaseServer makes one that refuses nothing.
func (w *world) newLeaseServer(id int, name string) leaseServer {
	accept := func(types.NamespacedName) error { return nil }
	return leaseServer{
		machine: machine{w: w, id: id, name: name}, deny: accept, refuse: accept,
		leases: map[types.NamespacedName]*coordinationv1.Lease{}, spaces: map[string]space{},
		noted: func(_, _ *coordinationv1.Lease) {},
	}
}

// leaseClient is the client of one process. It has the methods that the hub uses.
type leaseClient struct {
	coordinationclient.LeaseInterface
	p         *proc
	server    *leaseServer
	namespace string
	timeout   time.Duration // of a request
	list      time.Duration // of a list
}

func (c leaseClient) Leases(namespace string) coordinationclient.LeaseInterface {
	c.namespace = namespace
	return c
}

func (c leaseClient) key(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: c.namespace, Name: name}
}

// tell traces a request, if somebody reads it.
func (c leaseClient) tell(verb string, key types.NamespacedName, obj *coordinationv1.Lease) {
	if c.p.w.trace != nil {
		c.p.w.say(c.p.name, "sends %s to %s: %s", verb, c.server.name, describeLease(key, obj))
	}
}

func (c leaseClient) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return call(c.p, &c.server.machine, c.timeout, func() (*coordinationv1.Lease, error) {
		if err := c.server.refuse(c.key(name)); err != nil {
			return nil, err
		}
		if l := c.server.leases[c.key(name)]; l != nil {
			return l, nil
		}
		return nil, apierrors.NewNotFound(leaseResource, name)
	})
}

func (c leaseClient) Create(
	_ context.Context, obj *coordinationv1.Lease, _ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	c.tell("create", c.key(obj.Name), obj)
	c.p.w.oracle.sends(c.p.w, obj)
	return call(c.p, &c.server.machine, c.timeout, func() (*coordinationv1.Lease, error) {
		return c.server.create(c.key(obj.Name), obj)
	})
}

func (c leaseClient) Update(
	_ context.Context, obj *coordinationv1.Lease, _ metav1.UpdateOptions,
) (*coordinationv1.Lease, error) {
	c.tell("update", c.key(obj.Name), obj)
	c.p.w.oracle.sends(c.p.w, obj)
	return call(c.p, &c.server.machine, c.timeout, func() (*coordinationv1.Lease, error) {
		return c.server.update(c.key(obj.Name), obj) // which the caller does not change afterwards
	})
}

func (c leaseClient) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	c.p.w.say(c.p.name, "sends delete to %s: %s/%s", c.server.name, c.namespace, name)
	return invoke(c.p, &c.server.machine, c.timeout, func() error { return c.server.remove(c.key(name), o.Preconditions) })
}

func (c leaseClient) List(_ context.Context, o metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	match := managed
	if o.LabelSelector == readerSelector {
		match = isRegistration
	}
	timeout := c.list
	if o.TimeoutSeconds != nil {
		timeout = time.Duration(*o.TimeoutSeconds) * time.Second
	}
	return call(c.p, &c.server.machine, timeout, func() (*coordinationv1.LeaseList, error) {
		if err := c.server.refuse(c.key("")); err != nil {
			return nil, err
		}
		list := &coordinationv1.LeaseList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.FormatInt(c.server.version, 10)}}
		state := c.server.leases
		if o.ResourceVersion != "" { // from a cache, with whatever version
			state, _ = c.server.then(c.p.w.now - c.p.w.between(0, c.p.w.timings.Duration))
		}
		for _, key := range sortedKeys(state) {
			if l := state[key]; match(l) {
				list.Items = append(list.Items, *l)
			}
		}
		return list, nil
	})
}

func managed(l *coordinationv1.Lease) bool { return l.Labels[v1alpha1.ManagedLabel] == "true" }

// then is the state at an earlier time, as far as the server remembers, and the index of the next change in its log.
func (s *leaseServer) then(at time.Duration) (state map[types.NamespacedName]*coordinationv1.Lease, next int) {
	state = map[types.NamespacedName]*coordinationv1.Lease{}
	for ; next < len(s.log) && s.log[next].at <= at; next++ {
		if c := s.log[next]; c.lease != nil {
			state[c.key] = c.lease
		} else {
			delete(state, c.key)
		}
	}
	return state, next
}

// watcher is an informer on the managed Leases of a server, or on others.
type watcher struct {
	p        *proc
	server   *leaseServer
	match    func(*coordinationv1.Lease) bool
	seen     func(*coordinationv1.Lease)
	gone     func(types.NamespacedName)
	view     map[types.NamespacedName]*coordinationv1.Lease
	next     int // in the server's log
	busy     bool
	listing  bool
	lateness float64

	replacing bool                  // what goes is missing in a new list
	last      *coordinationv1.Lease // what went last
	readers   bool                  // of registrations

	consistent bool // its lists are as new as the server
	since      int  // how often the server had been restored when it began
	stopped    bool
}

// watch starts an informer: it lists first.
func (s *leaseServer) watch(
	p *proc, lateness float64, seen func(*coordinationv1.Lease), gone func(types.NamespacedName),
) *watcher {
	wt := s.watcher(p, lateness, managed)
	wt.seen, wt.gone = seen, gone
	wt.relist(s.w.staleBy())
	return wt
}

func (s *leaseServer) watcher(p *proc, lateness float64, match func(*coordinationv1.Lease) bool) *watcher {
	wt := &watcher{
		p: p, server: s, match: match, lateness: lateness, view: map[types.NamespacedName]*coordinationv1.Lease{},
	}
	s.watchers = append(s.watchers, wt)
	return wt
}

// staleBy draws how old the state is that a list shows.
func (w *world) staleBy() time.Duration {
	if w.faulty && w.chance(w.staleLists) {
		return w.between(0, 2*w.timings.Duration)
	}
	return 0
}

// stop has nothing delivered any more.
func (wt *watcher) stop() {
	wt.stopped = true
	s := wt.server
	s.watchers = slices.DeleteFunc(slices.Clone(s.watchers), func(o *watcher) bool { return o == wt })
}

// kick has news delivered.
func (wt *watcher) kick() {
	if wt.busy || wt.listing || wt.stopped || !wt.p.alive {
		return
	}
	wt.busy = true
	w := wt.p.w
	lag := w.lag()
	if w.faulty && w.chance(wt.lateness) {
		lag = w.between(0, w.timings.Duration)
	}
	wt.p.after(lag, wt.deliver)
}

func (wt *watcher) deliver() {
	wt.busy = false
	switch w := wt.p.w; {
	case wt.listing, wt.stopped:
	case !wt.sees():
		wt.p.after(w.between(50*time.Millisecond, 200*time.Millisecond), wt.kick)
	default:
		for ; wt.next < len(wt.server.log); wt.next++ {
			c := wt.server.log[wt.next]
			wt.show(c.key, c.lease)
		}
	}
}

func (wt *watcher) sees() bool { return !wt.p.muted && wt.p.reaches(&wt.server.machine) }

func (wt *watcher) show(key types.NamespacedName, obj *coordinationv1.Lease) {
	switch {
	case obj != nil && wt.match(obj):
		wt.view[key] = obj
		wt.seen(obj)
	case wt.view[key] != nil:
		wt.last = wt.view[key]
		delete(wt.view, key)
		wt.gone(key)
	}
}

// relist breaks the watch: a list follows that shows the state of some time ago.
func (wt *watcher) relist(stale time.Duration) {
	if wt.listing || wt.stopped {
		return
	}
	wt.listing = true
	if wt.consistent {
		stale = 0
	}
	w := wt.p.w
	wt.p.after(w.lag(), func() {
		wt.listing = false
		if wt.stopped {
			return
		}
		if !wt.sees() {
			wt.p.after(100*time.Millisecond, func() { wt.relist(stale) })
			return
		}
		state, next := wt.server.then(w.now - stale)
		if wt.next = next; stale > 0 {
			w.say(wt.p.name, "lists %s as it was %v ago", wt.server.name, stale)
		}
		wt.replacing = true
		for _, key := range sortedKeys(wt.view) {
			if state[key] == nil {
				wt.show(key, nil)
			}
		}
		wt.replacing = false
		for _, key := range sortedKeys(state) {
			wt.show(key, state[key])
		}
		wt.kick()
	})
}
