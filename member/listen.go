package member

import (
	"slices"
	"sync"
)

// Listener is notified when this cluster begins and stops to lead. Nil functions are not called.
type Listener struct {
	// Promoted is called when this cluster has begun to lead the namespace.
	Promoted func(namespace string, t Term)
	// Demoted is called when this cluster no longer leads. The reason wraps ErrLost. By then checks fail and the contexts
	// of the term have been cancelled. If the namespace was not led when the listener first observed it, Demoted is called
	// once with a reason that wraps ErrNotLeader.
	Demoted func(namespace string, reason error)
}

// notifier notifies listeners of the terms. Guarded by terms.mu.
type notifier struct {
	terms     *terms
	listeners []*listening
	calls     int       // running calls to listeners
	idle      sync.Cond // signals that no call is running
}

// listening is one listener and its last notification for each namespace.
type listening struct {
	Listener
	views   map[*nsState]*view
	removed bool
}

// view is a listener's view of one namespace.
type view struct {
	any  bool  // it has been called
	term *term // the term that it was last promoted in; nil: demoted
	acts *term // the term that it may act in until it returns from Demoted
	busy bool  // a goroutine is calling it
}

// listen adds a listener.
func (n *notifier) listen(l Listener) (remove func()) {
	if l.Promoted == nil {
		l.Promoted = func(string, Term) {}
	}
	if l.Demoted == nil {
		l.Demoted = func(string, error) {}
	}
	n.terms.mu.Lock()
	defer n.terms.mu.Unlock()
	ls := &listening{Listener: l, views: map[*nsState]*view{}}
	n.listeners = append(n.listeners, ls)
	n.terms.namespaces.Range(func(_, v any) bool {
		n.notify(ls, v.(*nsState))
		return true
	})
	return func() {
		n.terms.mu.Lock()
		defer n.terms.mu.Unlock()
		ls.removed = true
		for _, v := range ls.views {
			if !v.busy {
				n.returned(v)
			}
		}
		n.listeners = slices.DeleteFunc(n.listeners, func(o *listening) bool { return o == ls })
	}
}

// announce notifies all listeners whether this cluster now leads the namespace.
func (n *notifier) announce(ns *nsState) {
	for _, ls := range n.listeners {
		n.notify(ls, ns)
	}
}

// notify starts a goroutine that notifies one listener. It does nothing if the listener is up to date or such a
// goroutine already runs, which checks again after every call.
func (n *notifier) notify(ls *listening, ns *nsState) {
	v := ls.views[ns]
	if v == nil {
		v = &view{}
		ls.views[ns] = v
	}
	if v.busy || (v.any && v.term == ns.term.Load()) {
		return
	}
	v.busy = true
	n.calls++
	go n.call(ls, ns, v)
}

// call notifies one listener until it is up to date about one namespace.
func (n *notifier) call(ls *listening, ns *nsState, v *view) {
	n.terms.mu.Lock()
	defer n.terms.mu.Unlock()
	for next := n.next(ls, ns, v); next != nil; next = n.next(ls, ns, v) {
		n.terms.mu.Unlock()
		next()
		n.terms.mu.Lock()
		if v.term == nil {
			n.returned(v)
		}
	}
	v.busy = false
	if ls.removed {
		n.returned(v)
	}
	if n.calls--; n.calls == 0 {
		n.idle.Broadcast()
	}
}

// next returns the next call to make, and nil if the listener is up to date.
func (n *notifier) next(ls *listening, ns *nsState, v *view) func() {
	if ls.removed {
		return nil
	}
	was, is, first := v.term, ns.term.Load(), !v.any
	v.any = true
	switch {
	case was != nil && was != is:
		v.term = nil
		return func() { ls.Demoted(ns.name, was.cause) }
	case is != was:
		v.term, v.acts = is, is
		is.promoted++
		return func() { ls.Promoted(ns.name, Term{is}) }
	case first:
		reason := n.terms.notLeader(ns.name)
		return func() { ls.Demoted(ns.name, reason) }
	}
	return nil
}

// returned records that a listener has returned from Demoted, or will not be called.
func (n *notifier) returned(v *view) {
	if tm := v.acts; tm != nil {
		v.acts = nil
		tm.promoted--
		n.terms.releases.settle(tm)
	}
}

// wait returns when no call to a listener is running.
func (n *notifier) wait() {
	n.terms.mu.Lock()
	defer n.terms.mu.Unlock()
	for n.calls > 0 {
		n.idle.Wait()
	}
}
