package publish

// Relinquish removes this hub's mark from every Lease in the member. Until Resume, assignments change nothing. The
// terms stay as they are. It returns true once every known Lease of the member carries another mark or no mark. Call it
// until it does.
//
// After it returns, nothing is renewed. A Lease without a mark shows another hub that this one has
// relinquished it. The other hub takes the Lease by compare-and-swap.
func (p *Publisher) Relinquish() (done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done = p.initial.Read
	for l := range p.syncers.all() {
		if !l.relinquished {
			l.relinquished = true
			p.Queue.Add(l.key)
		}
		done = done && l.known.read && !l.known.marked
	}
	p.relinquished = true
	return done
}

// Resume ends Relinquish, where a move is given up or the Clusters are back. Each Lease without a mark is taken by
// compare-and-swap. One that another hub has taken in the meantime stays as it is.
func (p *Publisher) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.relinquished {
		return
	}
	p.relinquished = false
	for l := range p.syncers.all() {
		l.relinquished = false
		p.Queue.Add(l.key)
	}
}

// relinquish removes this hub's mark from the Lease. The renewTime stays, so this promises nothing.
func (l *leaseSyncer) relinquish(may bool) step {
	switch {
	case !may:
		return step{after: pauseSilent}
	case !l.known.read:
		return step{action: read}
	case l.known.marked:
		return l.write(l.known.content.Term)
	}
	return step{}
}
