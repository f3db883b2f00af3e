package publish

// Relinquish takes the mark of this hub off every copy in the member, for good: whatever is
// assigned afterwards changes nothing. The terms stay as they are. It reports whether all
// that is known of the member carries another mark or none; call it until it does.
//
// After it returns, no stamp is drawn any more. A copy without a mark is the word of this
// hub that it has done so, in the one place where another hub can take the word and make it
// its own by compare-and-swap.
func (p *Publisher) Relinquish() (done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	done = p.initial.Read
	for key, l := range p.syncers {
		if !l.relinquished {
			l.relinquished = true
			p.Queue.Add(key)
		}
		done = done && l.known.read && !l.marked()
	}
	p.relinquished = true
	return done
}

// marked reports whether the copy is known to be this hub's.
func (l *leaseSyncer) marked() bool {
	return l.known.lease != nil && l.known.sealed && l.known.content.Hub == l.self.hub
}

// noteMark says whose the copy is. While that is in doubt, what was known of it stays.
func (l *leaseSyncer) noteMark() {
	if !l.known.read {
		return
	}
	l.status.Marked = l.marked()
	l.status.Unmarked = l.known.lease != nil && l.known.sealed && l.known.content.Hub == ""
}

// relinquish takes the mark of this hub off the copy. The stamp stays that of the last renewal:
// this promises nothing.
func (l *leaseSyncer) relinquish(may bool) step {
	switch {
	case !may:
		return step{after: pauseSilent}
	case !l.known.read:
		return step{action: read}
	case l.marked():
		return l.write(l.known.content.Term)
	}
	return step{}
}
