package member

import "sync"

// journal logs changes in the order in which they came. Each change is logged before listeners are notified of it, so
// what listeners log follows its cause.
type journal struct {
	Listener            // logs the changes; without functions no change is logged
	writing  sync.Mutex // held while changes are logged; locked before terms.mu
	unsaid   []func()   // not logged yet; guarded by terms.mu
}

// note schedules the logging of a change. The caller holds mu.
func (t *terms) note(change func()) {
	t.journal.unsaid = append(t.journal.unsaid, change)
	t.calls++
	go func() {
		t.write()
		t.mu.Lock()
		defer t.mu.Unlock()
		t.called()
	}()
}

// write logs all changes noted so far.
func (t *terms) write() {
	t.journal.writing.Lock()
	defer t.journal.writing.Unlock()
	t.mu.Lock()
	changes := t.journal.unsaid
	t.journal.unsaid = nil
	t.mu.Unlock()
	for _, change := range changes {
		change()
	}
}

// began notes that a term has begun. The caller holds mu.
func (t *terms) began(namespace string, tm *term) {
	if promoted := t.journal.Promoted; promoted != nil {
		t.note(func() { promoted(namespace, Term{tm}) })
	}
}

// ceased notes that a term is over. The caller holds mu.
func (t *terms) ceased(namespace string, reason error) {
	if demoted := t.journal.Demoted; demoted != nil {
		t.note(func() { demoted(namespace, reason) })
	}
}
