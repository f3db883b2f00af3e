package tenure

import "fmt"

// RefuseIf has the lock neither win nor renew the election while useless returns an error, which says why stamps of this
// process would be worth nothing. The elector then gives up at its renew deadline, or goes on as a candidate that does not
// win. A release goes through. useless is asked before each such request and must not block. Call it before Lock is used.
func (t *Tenure) RefuseIf(useless func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.veto = useless
}

// vetoed is the error with which the lock refuses to win or to renew the election now.
func (t *Tenure) vetoed() error {
	t.mu.Lock()
	useless := t.veto
	t.mu.Unlock()
	if useless == nil {
		return nil
	}
	if err := useless(); err != nil {
		return fmt.Errorf("the election is left to another replica: %w", err)
	}
	return nil
}
