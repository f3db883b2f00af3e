package publish

// The results of a request, as [Result] calls them.
const (
	ResultDone       = "done"       // it was carried out
	ResultConflict   = "conflict"   // not done: what was known of the object was out of date
	ResultRefused    = "refused"    // not done: the member said no
	ResultUnanswered = "unanswered" // nobody knows whether it was carried out
)

// Result says in one word what the error of a request says of it.
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

// Readers is how many registrations of readers are known of in the member.
func (p *Publisher) Readers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.acks.registrations)
}
