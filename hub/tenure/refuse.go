package tenure

import "fmt"

// RefuseIf makes the lock refuse to win or renew the election while veto returns an error. veto says why
// Leases of this process would be of no use. The elector then gives up at its renew deadline, or goes on as a
// candidate that does not win. A release is not refused. veto is called before each such request and must not
// block. Call RefuseIf before Lock is used.
func (t *Tenure) RefuseIf(veto func() error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.veto = veto
}

// vetoed is the error with which the lock refuses to win or renew the election now.
func (t *Tenure) vetoed() error {
	t.mu.Lock()
	veto := t.veto
	t.mu.Unlock()
	if veto == nil {
		return nil
	}
	if err := veto(); err != nil {
		return fmt.Errorf("the election is left to another replica: %w", err)
	}
	return nil
}
