package member

import "slices"

// Listener is told when this cluster begins and stops to lead. Nil functions are
// not called.
type Listener struct {
	// Promoted is called when this cluster has begun to lead the namespace.
	Promoted func(namespace string, t Term)
	// Demoted is called when it no longer does: reason wraps ErrLost and says why. By
	// then checks say no and the contexts of the term have been cancelled. For a
	// namespace that was not led when the listener first heard of it, it is called
	// once with a reason that wraps ErrNotLeader.
	Demoted func(namespace string, reason error)
}

// Listen is that of Member.
func (t *terms) Listen(l Listener) (remove func()) { return t.listen("", l) }

// listening is one listener and what it has been told. Guarded by terms.mu.
type listening struct {
	Listener
	only    string // the only namespace it hears of, if not empty
	told    map[*nsState]*told
	removed bool
}

// told is what a listener knows about one namespace.
type told struct {
	any  bool  // it has been called
	term *term // it believes that this term goes on
	acts *term // it may do something in this term, because it has not returned from Demoted
	busy bool  // a goroutine is calling it
}

// heard notes that a listener has returned from Demoted, or will not be called.
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

// announce has all listeners told whether the namespace is led here now.
func (t *terms) announce(n *nsState) {
	for _, ls := range t.listeners {
		t.tell(ls, n)
	}
}

// tell starts a goroutine that tells one listener, unless there is nothing to say
// or one is at it already: that one looks again after every call.
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

// call tells one listener all there is to say about one namespace.
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

// called takes note that a call has returned. Called under mu.
func (t *terms) called() {
	if t.calls--; t.calls == 0 {
		t.idle.Broadcast()
	}
}

// next returns the next call to make, nil if there is none.
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
