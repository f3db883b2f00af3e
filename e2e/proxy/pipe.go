package proxy

import "time"

// keepLimit is what one pipe keeps before it stops reading from the sender.
const keepLimit = 1 << 20

// end is how a stream ended, if it did.
type end int

const (
	open end = iota
	closed
	reset
)

// fate is the decision of a hold about one chunk.
type fate int

const (
	free     fate = iota // the mode of its direction decides
	held                 // kept through a cut that followed the hold
	released             // let through by Release, whatever the mode
)

// chunk is a piece of a stream, or its end.
type chunk struct {
	data []byte
	end  end
	due  time.Time
	fate fate
}

// pipe carries one direction of one link. Proxy.mu guards it.
type pipe struct {
	queue   []chunk
	kept    int64 // bytes in the queue
	lost    int64
	hole    bool // a cut has lost bytes or the end of this stream: nothing may follow
	deaf    bool // the receiver is gone: what comes is dropped
	ended   bool // the end of the stream was passed on or lost
	writing bool
}

// finished reports whether nothing will pass anymore. A stream whose end was lost may have something to release.
func (p *pipe) finished() bool { return p.ended && len(p.queue) == 0 }

// passes reports whether the next chunk may pass under a mode.
func (p *pipe) passes(m mode) bool {
	if len(p.queue) > 0 && p.queue[0].fate != free {
		return p.queue[0].fate == released
	}
	return m == pass
}

// drop loses every chunk that no hold keeps, and reports whether there was one.
func (p *pipe) drop() bool {
	before := len(p.queue)
	var kept []chunk
	for _, c := range p.queue {
		if c.fate != free && !p.deaf {
			kept = append(kept, c)
			continue
		}
		if !p.deaf {
			p.hole = true
			p.lost += int64(len(c.data))
		}
		p.kept -= int64(len(c.data))
		p.ended = p.ended || c.end != open
	}
	p.queue = kept
	return len(kept) < before
}

// sent takes n written bytes off the queue.
func (p *pipe) sent(n int) {
	p.kept -= int64(n)
	head := &p.queue[0]
	if head.data = head.data[n:]; len(head.data) == 0 {
		p.ended = head.end != open
		p.queue = p.queue[1:]
	}
}

// mark changes the fate of the chunks that have this one.
func (p *pipe) mark(from, to fate) {
	for i := range p.queue {
		if p.queue[i].fate == from {
			p.queue[i].fate = to
		}
	}
}
