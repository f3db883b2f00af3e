package tenure

import "fmt"

// RefuseIf makes the lock reject requests to win or renew the election while veto returns an error. veto explains
// why Leases of this process would be useless. The elector then gives up at its renew deadline, or goes on as a
// contender that does not win. A release is not rejected. veto is called before each such request and must not
// block. Call RefuseIf before Lock is used.
func (t *Tenure) RefuseIf(veto func() error) { t.veto = veto }

// vetoed returns the error with which the lock now rejects requests to win or renew the election, or nil.
func (t *Tenure) vetoed() error {
	if t.veto == nil {
		return nil
	}
	if err := t.veto(); err != nil {
		return fmt.Errorf("the election is left to another replica: %w", err)
	}
	return nil
}
