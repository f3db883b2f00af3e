package controller

import (
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
)

// member is one member cluster: an API server, and its name.
type member struct {
	leaseServer
	index       int
	uid         string
	generation  int           // of clusters of this name
	away        time.Duration // until then replicas that start cannot reach it
	revoked     time.Duration // when a leader's Lease gave way to nobody's last
	servers     []*apiServer
	fences      []*storedFence
	unfenceable time.Duration // until then it refuses to store a fence, and to remove one
	unguarded   time.Duration // until then the guard of its Leases is not in force
}

func (m *member) identity() string { return lease.Identity(m.name, simFleet) }

func (w *world) newMember(i int) *member {
	name := "m" + strconv.Itoa(i)
	m := &member{index: i, uid: "uid-" + name}
	m.machine = machine{w: w, id: i + 1, name: name}
	m.leases = map[types.NamespacedName]*coordinationv1.Lease{}
	m.spaces, m.noted = map[string]space{}, m.noteRevocation
	if len(w.locks) > 0 {
		m.servers = w.newServers()
	}
	return m
}

// reader is one process in a member that obeys the Leases, with one rule a Lease.
type reader struct {
	*proc
	m       *member
	number  int
	rules   map[types.NamespacedName]*lease.Reader
	permits map[string]lease.Permit // by namespace
	wt      *watcher
	reg     *registration // nil: it does not register
	lates   []*late
}

func (w *world) newReader(m *member, number int, host *hostClock) *reader {
	r := &reader{
		proc: w.newProc(fmt.Sprintf("%s-r%d", m.name, number), host), m: m, number: number,
		rules: map[types.NamespacedName]*lease.Reader{}, permits: map[string]lease.Permit{},
	}
	if w.acknowledged {
		r.register()
		return r
	}
	m.watch(r.proc, w.lateWatch, r.seen, r.gone)
	r.wt = m.watchers[len(m.watchers)-1]
	return r
}

func (r *reader) rule(key types.NamespacedName) *lease.Reader {
	if r.rules[key] == nil {
		r.rules[key] = &lease.Reader{Skew: r.w.timings.Skew}
	}
	return r.rules[key]
}

// seen applies the reader's rule. A policy may change the name of the Leases: a reader
// follows the name that it was configured with, so there is a reader for each.
func (r *reader) seen(obj *coordinationv1.Lease) {
	key := types.NamespacedName{Namespace: obj.Namespace, Name: obj.Name}
	c, _ := wire.Read(obj)
	r.w.oracle.seen = max(r.w.oracle.seen, c.Epoch)
	p := r.rule(key).Observe(c, r.host.read(r.w.now))
	r.permitted(key, p)
	r.ended(c)
}

func (r *reader) gone(key types.NamespacedName) {
	r.rule(key).Gone()
	r.permitted(key, lease.Permit{})
}

func (r *reader) permitted(key types.NamespacedName, p lease.Permit) {
	place := key.Namespace + "/" + key.Name
	before := r.permits[place]
	if r.reg != nil && !r.reg.trusts {
		p = lease.Permit{}
	}
	if before.Epoch != p.Epoch {
		r.stop(place, key.Namespace, before)
	}
	r.permits[place] = p
	if r.w.trace != nil && before != p {
		r.w.say(r.name, "%s: may act in epoch %d for %v", place, p.Epoch, p.Remaining(r.host.read(r.w.now)))
	}
	r.w.oracle.check(r.w, r, key.Namespace, p)
}

// oracle judges what readers may do, by their own clocks, at every instant of true
// time. A permit ends by itself, so that it is enough to look whenever one begins.
type oracle struct {
	violation string
	highest   map[string]int64   // the highest epoch permitted so far, by namespace
	last      map[string]*member // whose it was
	seen      int64              // the highest epoch that any reader has seen
	overlap   bool
	stuck     bool
	terms     int
	records   map[string]*recordOracle
	// needless is how many leaders were replaced for nothing, together how often two replicas could decide.
	needless, together, mostWrites, mostLooks int
	// revoked is how many terms were, acknowledged how many of them their readers released in time.
	revoked, acknowledged int
	// candidates are the reasons that records gave for the state of clusters.
	candidates map[reason.Reason]bool
}

func (o *oracle) check(w *world, r *reader, namespace string, p lease.Permit) {
	if !r.may(p) || o.violation != "" {
		return
	}
	if p.Epoch < o.highest[namespace] && !w.ahead {
		o.fail(w, "%s may act for %s in epoch %d after epoch %d", r.name, namespace, p.Epoch, o.highest[namespace])
		return
	}
	if p.Epoch != o.highest[namespace] {
		o.terms++
	} else if o.last[namespace] != r.m && !w.ahead {
		o.fail(w, "%s may act for %s in epoch %d, which was that of %s", r.name, namespace, p.Epoch, o.last[namespace].name)
		return
	}
	o.highest[namespace], o.last[namespace] = p.Epoch, r.m
	for _, other := range w.readers {
		if other == r || !other.alive {
			continue
		}
		for place, q := range other.permits {
			if (place == namespace+"/"+leaseNames[0] || place == namespace+"/"+leaseNames[1]) && other.may(q) &&
				(other.m != r.m || q.Epoch != p.Epoch) {
				o.fail(w, "%s (epoch %d) and %s (epoch %d) may both act for %s", r.name, p.Epoch, other.name, q.Epoch, namespace)
			}
		}
		for _, l := range other.lates {
			if l.namespace == namespace && l.holds(other.host.read(w.now)) && (other.m != r.m || l.permit.Epoch != p.Epoch) {
				o.fail(w, "%s (epoch %d) may act for %s while %s still does (epoch %d)", r.name, p.Epoch, namespace, other.name,
					l.permit.Epoch)
			}
		}
	}
}

func (o *oracle) fail(w *world, format string, args ...any) {
	if o.violation == "" {
		o.violation, o.overlap = fmt.Sprintf(format, args...), true
		w.say("ORACLE", "%s", o.violation)
	}
}

// leader returns the reader that may act for a namespace now.
func (w *world) leader(namespace string) *reader {
	for _, r := range w.readers {
		for _, name := range leaseNames {
			if r.may(r.permits[namespace+"/"+name]) {
				return r
			}
		}
	}
	return nil
}
