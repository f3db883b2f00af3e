package member

import "slices"

// Listener is notified when this cluster begins and stops to lead. Nil functions are not called.
type Listener struct {
	// Promoted is called when this cluster has begun to lead the namespace.
	Promoted func(namespace string, t Term)
	// Demoted is called when this cluster no longer leads. The reason wraps ErrLost. By then checks fail and the contexts
	// of the term have been cancelled. If the namespace was not led when the listener first observed it, Demoted is called
	// once with a reason that wraps ErrNotLeader.
	Demoted func(namespace string, reason error)
}

// Listen implements Member.Listen.
func (t *terms) Listen(l Listener) (remove func()) { return t.listen("", l) }

// listening is one listener and its last notification for each namespace. Guarded by terms.mu.
type listening struct {
	Listener
	only    string // the only namespace that it observes; empty: all
	told    map[*nsState]*told
	removed bool
}

// told is a listener's view of one namespace.
type told struct {
	any  bool  // it has been called
	term *term // the term that it was last promoted in; nil: demoted
	acts *term // the term that it may act in until it returns from Demoted
	busy bool  // a goroutine is calling it
}

// heard records that a listener has returned from Demoted, or will not be called.
func (t *terms) heard(s *told) {
	if tm := s.acts; tm != nil {
		s.acts = nil
		tm.told--
		t.settle(tm)
	}
}

func (t *terms) listen(only string, l Listener) (remove func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	ls := &listening{Listener: l, only: only, told: map[*nsState]*told{}}
	t.listeners = append(t.listeners, ls)
	t.namespaces.Range(func(_, v any) bool {
		t.tell(ls, v.(*nsState))
		return true
	})
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		ls.removed = true
		for _, s := range ls.told {
			if !s.busy {
				t.heard(s)
			}
		}
		t.listeners = slices.DeleteFunc(t.listeners, func(o *listening) bool { return o == ls })
	}
}

// announce notifies all listeners whether this cluster now leads the namespace.
func (t *terms) announce(n *nsState) {
	for _, ls := range t.listeners {
		t.tell(ls, n)
	}
}

// tell starts a goroutine that notifies one listener. It does nothing if the listener is up to date or such a goroutine
// already runs, which checks again after every call.
func (t *terms) tell(ls *listening, n *nsState) {
	if ls.only != "" && ls.only != n.name {
		return
	}
	s := ls.told[n]
	if s == nil {
		s = &told{}
		ls.told[n] = s
	}
	if s.busy || (s.any && s.term == n.term.Load()) {
		return
	}
	s.busy = true
	t.calls++
	go t.call(ls, n, s)
}

// call notifies one listener until it is up to date about one namespace.
func (t *terms) call(ls *listening, n *nsState, s *told) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for next := t.next(ls, n, s); next != nil; next = t.next(ls, n, s) {
		t.mu.Unlock()
		t.write()
		next()
		t.mu.Lock()
		if s.term == nil {
			t.heard(s)
		}
	}
	s.busy = false
	if ls.removed {
		t.heard(s)
	}
	t.called()
}

// called records that a call has returned. The caller holds mu.
func (t *terms) called() {
	if t.calls--; t.calls == 0 {
		t.idle.Broadcast()
	}
}

// next returns the next call to make, and nil if the listener is up to date.
func (t *terms) next(ls *listening, n *nsState, s *told) func() {
	if ls.removed {
		return nil
	}
	was, is, first := s.term, n.term.Load(), !s.any
	s.any = true
	switch {
	case was != nil && was != is:
		s.term = nil
		return ls.demoted(n.name, was.cause)
	case is != was:
		s.term, s.acts = is, is
		is.told++
		return ls.promoted(n.name, Term{is})
	case first:
		return ls.demoted(n.name, t.notLeader(n.name))
	}
	return nil
}

func (ls *listening) promoted(namespace string, t Term) func() {
	return func() {
		if ls.Promoted != nil {
			ls.Promoted(namespace, t)
		}
	}
}

func (ls *listening) demoted(namespace string, reason error) func() {
	return func() {
		if ls.Demoted != nil {
			ls.Demoted(namespace, reason)
		}
	}
}
