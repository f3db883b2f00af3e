package publish

// The results of a request, as [Result] returns them.
const (
	ResultDone       = "done"       // it was applied
	ResultConflict   = "conflict"   // not applied: the known object was out of date
	ResultRefused    = "refused"    // not applied: the member rejected it
	ResultUnanswered = "unanswered" // it is not known whether it was applied
)

// Result returns one word for the error of a request.
func Result(err error) string {
	switch outcomeOf(err) {
	case answered:
		return ResultDone
	case conflict:
		return ResultConflict
	case refused:
		return ResultRefused
	default:
		return ResultUnanswered
	}
}

// Readers returns how many registrations of readers the member is known to have.
func (p *Publisher) Readers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acks.registrations)
}
