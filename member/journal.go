package member

import "sync"

// journal has changes written down in the order in which they came. No listener hears of one before that, so what
// listeners write follows the reason for it.
type journal struct {
	Listener            // who writes; without functions nobody does
	writing  sync.Mutex // held by who writes, and locked before terms.mu
	unsaid   []func()   // guarded by terms.mu
}

// note has a change written down soon. Called under mu.
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

// write writes all changes down that came before.
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

// began notes that a term has begun. Called under mu.
func (t *terms) began(namespace string, tm *term) {
	if promoted := t.journal.Promoted; promoted != nil {
		t.note(func() { promoted(namespace, Term{tm}) })
	}
}

// ceased notes that a term is over. Called under mu.
func (t *terms) ceased(namespace string, reason error) {
	if demoted := t.journal.Demoted; demoted != nil {
		t.note(func() { demoted(namespace, reason) })
	}
}
