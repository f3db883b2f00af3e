package controller

import (
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/worker"
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
	fences      []storedFence
	unfenceable time.Duration   // until then it refuses to store a fence, and to remove one
	unguarded   time.Duration   // until then the guard of its Leases is not in force
	required    worker.Required // what policies require there
}

func (m *member) identity() string { return lease.Identity(m.name, simFleet) }

func (w *world) newMember(i int) *member {
	name := "m" + strconv.Itoa(i)
	m := &member{index: i, uid: "uid-" + name, leaseServer: w.newLeaseServer(i+1, name)}
	m.noted = m.noteRevocation
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
	permits map[types.NamespacedName]lease.Permit // by Lease
	wt      *watcher
	reg     *registration // nil: it does not register
	lates   []*late
}

func (w *world) newReader(m *member, number int, host *hostClock) *reader {
	r := &reader{
		proc: w.newProc(fmt.Sprintf("%s-r%d", m.name, number), host), m: m, number: number,
		rules: map[types.NamespacedName]*lease.Reader{}, permits: map[types.NamespacedName]lease.Permit{},
	}
	if w.acknowledged {
		r.register()
		return r
	}
	r.wt = m.watch(r.proc, w.lateWatch, r.seen, r.gone)
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
	before := r.permits[key]
	if r.reg != nil && !r.reg.trusts {
		p = lease.Permit{}
	}
	if before.Epoch != p.Epoch {
		r.stop(key, before)
	}
	r.permits[key] = p
	if r.w.trace != nil && before != p {
		r.w.say(r.name, "%s: may act in epoch %d for %v", key, p.Epoch, p.Remaining(r.host.read(r.w.now)))
	}
	r.w.oracle.check(r.w, r, key.Namespace, p)
}

// leader returns the reader that may act for a namespace now.
func (w *world) leader(namespace string) *reader {
	for _, r := range w.readers {
		for _, name := range leaseNames {
			if r.may(r.permits[types.NamespacedName{Namespace: namespace, Name: name}]) {
				return r
			}
		}
	}
	return nil
}
