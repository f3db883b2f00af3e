package controller

import (
	"context"
	"fmt"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/publish"
)

// registeredReaders are the readers whose registrations a member shows. They are for people: who has to release a term
// is for a consistent list to say, which the publisher makes. A nil one has none.
type registeredReaders struct {
	mu  sync.Mutex
	all map[types.UID]registeredReader
}

type registeredReader struct {
	name   string
	reader lease.Registration
	broken bool // it cannot be read: it counts where it says, and everywhere if that cannot be read either
}

func (r registeredReader) follows(namespace string) bool {
	return r.reader.Follows(namespace)
}

// scope says in words which namespaces the reader follows.
func (r registeredReader) scope() string {
	switch {
	case r.broken && len(r.reader.Namespaces) == 0:
		return "namespaces that cannot be read"
	case len(r.reader.Namespaces) == 0:
		return "all namespaces"
	}
	return "namespaces " + strings.Join(r.reader.Namespaces, ", ")
}

// see takes in a registration, and reports whether it is new.
func (r *registeredReaders) see(l *coordinationv1.Lease) (of registeredReader, came bool) {
	reader, err := wire.ReadRegistration(l)
	if err != nil {
		reader = lease.Registration{Namespaces: wire.ReadClaims(l)}
	}
	of = registeredReader{name: l.Namespace + "/" + l.Name, reader: reader, broken: err != nil}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.all == nil {
		r.all = map[types.UID]registeredReader{}
	}
	_, known := r.all[l.UID]
	if !known && len(r.all) >= publish.MaxRegistrations {
		return of, false
	}
	r.all[l.UID] = of
	return of, !known
}

// lose takes in that a registration is not shown any more, and reports whether it was.
func (r *registeredReaders) lose(uid types.UID) (of registeredReader, went bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of, went = r.all[uid]
	delete(r.all, uid)
	return of, went
}

// following counts those that may act in a namespace.
func (r *registeredReaders) following(namespace string) (n int) {
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range r.all {
		if of.follows(namespace) {
			n++
		}
	}
	return n
}

func (r *registeredReaders) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// readerNews hears which registrations a member shows, and which not any more; before: the first list showed it.
type readerNews struct {
	came func(l *coordinationv1.Lease, before bool)
	went func(uid types.UID)
}

func (c *Controller) newsOf(key fleet.Key, r *registeredReaders) readerNews {
	return readerNews{
		came: func(l *coordinationv1.Lease, before bool) { c.readerCame(key, r, l, before) },
		went: func(uid types.UID) { c.readerWent(key, r, uid) },
	}
}

// readersIn counts the registered readers of a member that follow a namespace.
func (c *Controller) readersIn(key fleet.Key, namespace string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, ok := c.attached[key]; ok {
		return a.readers.following(namespace)
	}
	return 0
}

// readerCame has the status of all namespaces count a reader that has registered. Its Cluster hears of it in an event,
// unless it had registered before this hub looked.
func (c *Controller) readerCame(key fleet.Key, r *registeredReaders, l *coordinationv1.Lease, before bool) {
	if of, came := r.see(l); came {
		c.readersChanged(key, of)
		if !before {
			c.tellReaders(key, "ReaderRegistered", fmt.Sprintf("%s has registered for %s", of.name, of.scope()), r.count())
		}
	}
}

// readerWent is readerCame for one whose registration is gone.
func (c *Controller) readerWent(key fleet.Key, r *registeredReaders, uid types.UID) {
	if of, went := r.lose(uid); went {
		c.readersChanged(key, of)
		c.tellReaders(key, "ReaderGone", of.name+" is not registered any more", r.count())
	}
}

// readersChanged asks for decisions where a reader counts, because they write the status.
func (c *Controller) readersChanged(key fleet.Key, of registeredReader) {
	if len(of.reader.Namespaces) == 0 {
		c.leaseChanged(key, "")
		return
	}
	for _, ns := range of.reader.Namespaces {
		c.leaseChanged(key, ns)
	}
}

// tellReaders tells the owner of a Cluster who registers there: planned changes wait for all of them.
func (c *Controller) tellReaders(key fleet.Key, why, what string, n int) {
	if !c.Tenure.Holds() || c.standsBack(key.Fleet) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	cl := &clusterv1.Cluster{}
	if err := c.client.Get(ctx, types.NamespacedName{Namespace: key.Fleet, Name: key.Name}, cl); err != nil {
		return // it is gone, and nobody looks for its events any more
	}
	c.events.Eventf(cl, nil, corev1.EventTypeNormal, why, "Register", "%s; readers that are registered in this cluster: %d", what, n)
}
