package controller

import (
	"context"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	mcreconcile "sigs.k8s.io/multicluster-runtime/pkg/reconcile"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/publish"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/skew"
	"github.com/leasecast/leasecast/hub/tenure"
	"github.com/leasecast/leasecast/hub/worker"
)

// replica is one process of the hub.
type replica struct {
	*proc
	w *world
	// installation is the one that it belongs to: replicas of two share no election.
	installation int
	began        time.Duration
	mark         string // on the seal, as the cache shows it
	controller   *Controller
	tenure       *tenure.Tenure
	cacheLag     time.Duration
	policies     []v1alpha1.LeadershipPolicy
	clusters     map[string]simCluster
	members      []fleet.Member // as the fleet shows them; nil: something has changed
	edits        int            // seen
	contacts     []*contact     // by member
	working      bool           // elected
	stopping     bool           // asked to end in order
	deaf         bool           // hears nothing of its release
	stopAtEnd    time.Duration  // for how long it is stopped before it gives the election up
	decisions    map[string]*decision
	shown        map[string]int64 // by name of a record, how far a watch has shown it
	offsets      map[fleet.Key]skew.Interval
}

// contact is a replica's connection with one member, as hub/fleet would keep it.
type contact struct {
	r         *replica
	m         *member
	connected bool
	answered  lease.Reading
	track     health.Track
	spaces    map[string]*corev1.Namespace
	entitled  lease.Reading // at the last probe that was; zero: there was none
	deprived  bool
	over      bool      // another one has taken its place
	queue     *simQueue // of the publisher, while there is one
	worker    *simWorker
}

// decision is the work item of one namespace.
type decision struct {
	*item
	failures int
	second   int // of true time
	looks    int // within it
}

func (w *world) newReplica(host *hostClock, number, installation int) *replica {
	r := &replica{
		proc: w.newProc("hub"+strconv.Itoa(number), host), w: w, installation: installation, began: w.now,
		mark:      seal.MarkOf(w.hub.secret),
		decisions: map[string]*decision{},
		shown:     map[string]int64{}, offsets: map[fleet.Key]skew.Interval{},
	}
	r.see(w.hub.policies, w.hub.clusters, w.hub.edits)
	if w.chance(0.3) {
		r.cacheLag = w.between(0, 2*time.Second)
	}
	r.tenure = tenure.New(r.proc, w.h)
	c := New(Options{
		Tenure: r.tenure, Seals: seal.NewStore(liveReader{r: r}, hubClient{r: r}),
		Clock: r.proc, HubID: r.hubID(), OwnNamespace: r.election().Namespace,
	})
	c.Client, c.Live, c.events, c.source = hubClient{r: r}, liveReader{r: r}, silent{}, &simSource{r}
	r.controller = c
	c.hubClock.limits.Store(&limits{w.timings.Skew, w.timings.Duration})
	r.tenure.RefuseIf(c.hubClock.contradicted)
	r.woke = func(from lease.Reading) {
		now := r.host.read(w.now)
		for _, ct := range r.contacts {
			if now.Boot-from.Boot >= time.Second {
				ct.track.Excuse(health.Read, from, now)
				ct.track.Excuse(health.Write, from, now)
			}
		}
	}
	for _, m := range w.members {
		ct := r.newContact(m)
		r.contacts = append(r.contacts, ct)
		if m.away > w.now {
			w.cutAs(r.proc, &m.machine, link{true, true}, m.away-w.now)
		}
		ct.probe()
	}
	w.slowStart(r)
	r.spawn(r.campaign)
	return r
}

func (r *replica) newContact(m *member) *contact {
	return &contact{r: r, m: m, spaces: map[string]*corev1.Namespace{stockSpace: {}}}
}

func nothing() (struct{}, error) { return struct{}{}, nil }

// probe reads and writes the member as the fleet's probes do, again and again.
func (ct *contact) probe() {
	if ct.over {
		return
	}
	r, w, now := ct.r, ct.r.w, ct.r.host.read(ct.r.w.now)
	var read, write *request[struct{}]
	read = send(r.proc, &ct.m.machine, w.timings.Timeout, ct.m.answersProbe, func() {
		if read.err == nil && !ct.connected {
			ct.connected = true
			ct.look()
		}
		ct.observe(observed(health.Read, now, read.err))
	})
	if !r.tenure.MayWrite(now) {
		ct.deprived = true
	} else {
		if ct.deprived && ct.entitled != (lease.Reading{}) {
			ct.track.Excuse(health.Write, ct.entitled, now)
		}
		ct.entitled, ct.deprived = now, false
		if last, ok := ct.track.Last(health.Write); ct.connected && (!ok || now.Boot-last.Boot >= w.timings.Renew) {
			write = send(r.proc, &ct.m.machine, w.timings.Timeout, ct.m.answersProbe, func() {
				ct.observe(observed(health.Write, now, write.err))
			})
		}
	}
	r.after(w.timings.Renew, ct.probe)
}

func observed(k health.Kind, at lease.Reading, err error) health.Observation {
	if err == nil {
		return health.Observation{Kind: k, At: at, OK: true}
	}
	why := reason.Unreachable
	if apierrors.IsForbidden(err) {
		why = reason.Forbidden
	}
	return health.Observation{Kind: k, At: at, Reason: why, Message: err.Error()}
}

func (ct *contact) observe(o health.Observation) {
	see := func() [3]bool {
		return [3]bool{ct.track.Answering(), ct.track.Reached(health.Read), ct.track.Reached(health.Write)}
	}
	before := see()
	if ct.track.Observe(o); o.OK {
		ct.answered = ct.r.Now()
	}
	if before != see() {
		ct.r.reconcileAll()
	}
}

// look takes in the member's namespaces, as an informer would.
func (ct *contact) look() {
	for _, name := range ct.r.w.spaces {
		ct.spaces[name] = nil
		if s, ok := ct.m.spaces[name]; ok {
			ns := &corev1.Namespace{}
			ns.Name, ns.UID, ns.Status.Phase = name, types.UID(strconv.Itoa(s.uid)), corev1.NamespaceActive
			if s.terminating {
				ns.Status.Phase = corev1.NamespaceTerminating
			}
			ct.spaces[name] = ns
		}
	}
	ct.r.reconcileAll()
}

// spacesChanged tells the replicas of changed namespaces, sooner or later.
func (m *member) spacesChanged() {
	for _, r := range m.w.replicas {
		ct := r.contacts[m.index]
		var tell func()
		tell = func() {
			if !r.reaches(&m.machine) {
				r.after(200*time.Millisecond, tell)
			} else if ct.connected {
				ct.look()
			}
		}
		r.after(m.w.lag()+r.cacheLag, tell)
	}
}

// see takes in the policies and Clusters of so many edits.
func (r *replica) see(policies []*v1alpha1.LeadershipPolicy, clusters map[string]simCluster, edits int) {
	r.policies, r.clusters, r.edits = make([]v1alpha1.LeadershipPolicy, len(policies)), clusters, edits
	for i, p := range policies {
		r.policies[i] = *p
	}
}

// hubChanged tells the replicas of changed policies and Clusters.
func (w *world) hubChanged() {
	policies, clusters := w.hub.policies, w.hub.clusters
	w.hub.edits++
	edit := w.hub.edits
	for _, r := range w.replicas {
		r.after(w.lag()+r.cacheLag, func() {
			if edit < r.edits {
				return // a watch shows changes in order
			}
			r.see(policies, clusters, edit)
			r.follow()
			r.reconcileAll()
		})
	}
}

// showRecord shows a version of a record, as a watch would: in order, and the last one of several.
func (r *replica) showRecord(o *v1alpha1.NamespaceLeader, version int64, deleted bool) {
	if version < r.shown[o.Name] {
		return
	}
	r.shown[o.Name] = version
	if r.controller.ledger.Show(o, deleted) {
		r.reconcile(o.Name)
	}
}

// reconcileAll asks for decisions about everything, as something that concerns all has changed.
func (r *replica) reconcileAll() {
	r.members = nil
	for _, name := range r.w.spaces {
		r.reconcile(name)
	}
}

// reconcile asks for a decision, as a controller's queue would: one at a time.
func (r *replica) reconcile(name string) {
	if !r.working || !r.alive {
		return
	}
	d := r.decisions[name]
	if d == nil {
		d = &decision{}
		d.item = newItem(r.proc, func() { r.decideOn(name, d) })
		r.decisions[name] = d
	}
	d.add()
}

func (r *replica) decideOn(name string, d *decision) {
	r.w.oracle.looks(r, name, d)
	req := mcreconcile.Request{
		Request: reconcile.Request{NamespacedName: types.NamespacedName{Namespace: simFleet, Name: name}},
	}
	result, err := r.controller.reconcileNamespace(r.ctx, req)
	wait := result.RequeueAfter
	if err != nil {
		wait = min(5*time.Millisecond<<min(d.failures, 20), 1000*time.Second)
		d.failures++
		r.w.say(r.name, "decision on %s failed: %v", name, err)
	} else {
		d.failures = 0
	}
	if wait > 0 {
		d.addAfter(wait)
	}
}

// start is what the manager starts on the elected replica.
func (r *replica) start() {
	r.w.say(r.name, "is elected")
	r.working = true
	for _, ct := range r.contacts {
		r.spawn(ct.attach)
	}
	r.reconcileAll()
}

// attach publishes in a member.
func (ct *contact) attach() {
	r, w := ct.r, ct.r.w
	var key seal.Key
	for {
		s, ok := r.controller.seals.serve(r.ctx, simFleet)
		if ct.over {
			return
		}
		if ok && ct.connected {
			key = s.Key
			break
		}
		if !r.sleep(worker.ServeRetry) {
			return
		}
	}
	ctx, cancel := context.WithCancel(r.ctx)
	q := &simQueue{r: r, items: map[types.NamespacedName]*item{}, cancel: cancel}
	ct.queue = q
	p := publish.New(publish.Options{
		Client:  leaseClient{p: r.proc, server: &ct.m.leaseServer, timeout: w.timings.Timeout, list: 15 * time.Second},
		Fleet:   simFleet,
		Cluster: ct.m.identity(), ClusterUID: ct.m.uid, Hub: r.hubID(), Key: key,
		Clock: r.proc, Promises: r.controller.promises, MayWrite: func(now lease.Reading) bool {
			return r.controller.MayWrite(simFleet, now)
		},
		Report: func(write bool, sent lease.Reading, err error) {
			if r.alive {
				worker.Report(ct.observe, write, sent, r.Now(), err)
			}
		},
		Changed: func(namespace string) {
			if namespace == "" {
				r.reconcileAll()
			} else {
				r.reconcile(namespace)
			}
		},
		TellOfReader: func(types.NamespacedName, reason.Reason, string) {},
		Queue:        q,
		Log:          logr.Discard(),
	})
	q.work = func(k types.NamespacedName) { p.Work(untimed{ctx}, k) }
	q.watches = append(q.watches, ct.m.watch(r.proc, w.lateWatch, p.Observe, p.ObserveGone))
	if w.acknowledged {
		q.watches = append(q.watches, ct.m.watchReaders(r.proc, w.lateWatch, p.Readers.Observe, p.Readers.ObserveGone))
	}
	ct.worker = newSimWorker(ct, p)
	r.controller.members.of[ct.key()] = &memberState{worker: ct.worker}
	for !p.ReadAll(untimed{ctx}) {
		if ctx.Err() != nil || !r.sleep(time.Second) {
			break
		}
	}
	if ctx.Err() == nil {
		q.open()
	}
	q.isRead = true
}

func (ct *contact) key() fleet.Key { return fleet.Key{Fleet: simFleet, Name: ct.m.name} }

// reattach ends the publisher of the member and starts another one, which waits for its end as [Controller.begin]
// does. Requests that are under way may still be carried out.
func (ct *contact) reattach() {
	r := ct.r
	if q := ct.queue; q != nil && !q.ended {
		ct.end(func() { r.after(r.w.between(0, r.w.timings.Duration/2), func() { r.spawn(ct.attach) }) })
	}
}

// detach ends all that a replica does in a cluster that is not behind its Cluster any more.
func (ct *contact) detach(then func()) {
	ct.over = true
	if q := ct.queue; q != nil && !q.ended {
		ct.end(then)
	} else {
		then()
	}
}

// end ends the publisher of the member.
func (ct *contact) end(then func()) {
	r, q := ct.r, ct.queue
	q.cancel()
	q.ended, ct.worker.ended = true, true
	for _, wt := range q.watches {
		wt.stop()
	}
	var again func()
	again = func() {
		if !q.isRead || q.busy() {
			r.after(time.Millisecond, again)
			return
		}
		if is := r.controller.members.of[ct.key()]; is != nil && is.worker == memberWorker(ct.worker) {
			delete(r.controller.members.of, ct.key())
		}
		then()
	}
	again()
}

// campaign elects as client-go's elector does with the hub's settings: renew deadline
// two thirds of h, retry a sixth. When the election is lost the process ends.
func (r *replica) campaign() {
	w := r.w
	leases := leaseClient{p: r.proc, server: &w.hub.leaseServer, timeout: w.h / 3}.Leases(r.election().Namespace)
	e := &elector{r: r, lock: r.tenure.Lock(&electionLock{leases: leases, key: r.election(), identity: r.name})}
	if w.prompt {
		e.lock = tenure.TakeOverPromptly(e.lock, taskClock{p: r.proc})
	}
	retry, deadline := w.h/6, w.h*2/3
	for !e.try() {
		if !r.sleep(w.between(retry, 2*retry)) {
			return
		}
	}
	r.start()
	for {
		until := r.host.read(w.now).Boot + deadline
		for !e.try() {
			if r.host.read(w.now).Boot >= until || !r.sleep(retry) {
				r.quit(e)
				return
			}
		}
		if r.stopping || r.controller.hubClock.contradicted() != nil || !r.sleep(retry) {
			r.quit(e)
			return
		}
	}
}

// quit gives the election up and ends the process.
func (r *replica) quit(e *elector) {
	if d := r.stopAtEnd; d > 0 && r.alive && r.w.faulty {
		r.freeze(d, r.w.cur)
		if !r.w.cur.wait() {
			return
		}
		r.w.soon(0, time.Second, r.w.unlabelLeaders)
	}
	e.release()
	r.w.after(0, r.crash)
}
