package proxy

import (
	"time"
)

// keepLimit is what one pipe keeps before it stops reading from the sender.
const keepLimit = 1 << 20

// end says how a stream ended, if it did.
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

// pipe carries one direction of one link. All but the channels wake and room is guarded by Proxy.mu.
type pipe struct {
	wake chan struct{} // capacity 1: something has changed for the writer
	room chan struct{} // capacity 1: the reader may go on

	queue   []chunk
	kept    int64
	lost    int64
	hole    bool          // a cut has lost bytes or the end of this stream
	deaf    bool          // the far side takes no more: what comes is dropped
	ended   bool          // the end of the stream has been dealt with
	writing chan struct{} // not nil while a write is under way; closed when it is over
}

func newPipe() *pipe {
	return &pipe{wake: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

func (p *pipe) wakeUp() { signal(p.wake) }

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// verb is what the writer of a pipe must do next.
type verb int

const (
	idle    verb = iota // sleep until woken, or until the time given
	connect             // dial the target
	write               // send the first chunk
	stop                // nothing will ever pass again
)

// next decides what the writer does under a mode, after it has dropped what the mode loses.
// connected says whether there is somebody to write to.
func (p *pipe) next(m mode, connected bool, now time.Time) (verb, time.Duration) {
	// Behind a hole nothing may follow, even when the cut is over: the receiver would take it for
	// the continuation of what came before.
	if p.deaf || p.hole || m == cut {
		p.drop()
	}
	if p.finished() {
		return stop, 0
	}
	passes := m == pass
	if len(p.queue) > 0 {
		switch p.queue[0].fate {
		case released:
			passes = true
		case held:
			passes = false
		}
	}
	switch {
	case !passes || p.deaf:
		return idle, 0
	case !connected:
		return connect, 0
	case len(p.queue) == 0:
		return idle, 0
	case p.queue[0].due.After(now):
		return idle, p.queue[0].due.Sub(now)
	}
	return write, 0
}

// finished says that nothing will pass any more. A stream whose end was lost in a cut may still
// have something to release.
func (p *pipe) finished() bool { return p.ended && len(p.queue) == 0 }

// drop loses every chunk that no hold keeps.
func (p *pipe) drop() {
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
	p.makeRoom()
}

// sent takes n written bytes off the queue.
func (p *pipe) sent(n int) {
	p.kept -= int64(n)
	head := &p.queue[0]
	head.data = head.data[n:]
	if len(head.data) > 0 {
		return
	}
	p.ended = head.end != open
	p.queue = p.queue[1:]
	p.makeRoom()
}

func (p *pipe) makeRoom() {
	if p.kept < keepLimit {
		signal(p.room)
	}
}

// keepThroughCut marks what a hold keeps, so that the cut that follows the hold does not lose it.
func (p *pipe) keepThroughCut() {
	for i := range p.queue {
		p.queue[i].fate = held
	}
}

// release lets the kept chunks through.
func (p *pipe) release() {
	for i := range p.queue {
		if p.queue[i].fate == held {
			p.queue[i].fate = released
		}
	}
	p.wakeUp()
}

// hurry ends the delay of the chunks under way.
func (p *pipe) hurry() {
	for i := range p.queue {
		p.queue[i].due = time.Time{}
	}
}
