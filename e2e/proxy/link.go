package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

// link is one client connection and, once bytes may travel, its connection to the target. Fields
// but done are guarded by Proxy.mu, which is never held during a read, a write or a dial.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	done   chan struct{} // closed when the link has ended

	member *net.TCPConn // nil until dialled
	pipes  [directions]*pipe
	over   bool
}

// startLocked makes a link of an accepted connection.
func (p *Proxy) startLocked(client *net.TCPConn) {
	l := &link{proxy: p, client: client, done: make(chan struct{})}
	for d := range l.pipes {
		l.pipes[d] = newPipe()
	}
	p.links[l] = struct{}{}
	p.done.Go(func() { l.read(toMember, client) })
	p.done.Go(func() { l.write(toMember) })
	p.done.Go(func() { l.write(fromMember) })
}

// read moves what one side sends into the pipe of its direction.
func (l *link) read(d direction, from *net.TCPConn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		last := open
		switch {
		case errors.Is(err, io.EOF):
			last = closed
		case err != nil:
			last = reset
		}
		full := l.offer(d, slices.Clone(buf[:n]), last)
		if last != open {
			return
		}
		if full {
			select {
			case <-l.pipes[d].room:
			case <-l.done:
				return
			}
		}
	}
}

// offer queues data, and the end of the stream behind it, and says whether the pipe is full.
func (l *link) offer(d direction, data []byte, last end) (full bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	pipe := l.pipes[d]
	due := time.Now().Add(l.proxy.rules.delay)
	if len(data) > 0 {
		pipe.queue = append(pipe.queue, chunk{data: data, due: due})
		pipe.kept += int64(len(data))
	}
	if last != open {
		pipe.queue = append(pipe.queue, chunk{end: last, due: due})
	}
	pipe.wakeUp()
	full = pipe.kept >= keepLimit
	if full {
		// A signal from before the pipe was full says nothing about now.
		select {
		case <-pipe.room:
		default:
		}
	}
	return full
}

// write is the only sender of a direction.
func (l *link) write(d direction) {
	pipe := l.pipes[d]
	for {
		verb, wait, head, to := l.decide(d)
		switch verb {
		case stop:
			l.finish()
			return
		case connect:
			l.dial()
		case write:
			l.send(d, head, to)
		case idle:
			var timer <-chan time.Time
			if wait > 0 {
				timer = time.After(wait)
			}
			select {
			case <-pipe.wake:
			case <-timer:
			case <-l.done:
			}
		}
	}
}

// decide takes the next step of a direction's writer, and enters a write in the books before
// it begins, so that a fault can wait for it to end.
func (l *link) decide(d direction) (verb, time.Duration, chunk, *net.TCPConn) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.over {
		return stop, 0, chunk{}, nil
	}
	pipe, to := l.pipes[d], l.receiver(d)
	verb, wait := pipe.next(l.proxy.rules.modes[d], to != nil, time.Now())
	if verb != write {
		return verb, wait, chunk{}, nil
	}
	pipe.writing = make(chan struct{})
	_ = to.SetWriteDeadline(time.Time{}) // an error shows again in the write
	return write, 0, pipe.queue[0], to
}

func (l *link) receiver(d direction) *net.TCPConn {
	if d == toMember {
		return l.member
	}
	return l.client
}

// send writes the first chunk of a pipe, or ends its stream.
func (l *link) send(d direction, head chunk, to *net.TCPConn) {
	var n int
	var err error
	switch head.end {
	case open:
		n, err = to.Write(head.data)
	case closed:
		err = to.CloseWrite()
	case reset:
		l.proxy.resetLinks(func(other *link) bool { return other == l })
	}
	refused := err != nil && !errors.Is(err, os.ErrDeadlineExceeded)
	l.proxy.mu.Lock()
	pipe := l.pipes[d]
	close(pipe.writing)
	pipe.writing = nil
	if !l.over && !refused {
		pipe.sent(n)
	}
	l.proxy.mu.Unlock()
	if refused {
		l.receiverGone(d)
	}
}

// receiverGone notes that the receiver of a direction is gone. The sender learns it by the opposite
// direction, under that one's rules.
func (l *link) receiverGone(d direction) {
	l.proxy.mu.Lock()
	l.pipes[d].deaf = true
	back := l.pipes[d.opposite()]
	nobodyToTell := back.ended && !back.hole
	if !back.ended {
		back.queue = append(back.queue, chunk{end: reset, due: time.Now().Add(l.proxy.rules.delay)})
		back.wakeUp()
	}
	l.proxy.mu.Unlock()
	if nobodyToTell {
		l.proxy.resetLinks(func(other *link) bool { return other == l })
	}
}

// finish closes the link when both of its streams have ended.
func (l *link) finish() {
	l.proxy.mu.Lock()
	last := !l.over && l.pipes[toMember].finished() && l.pipes[fromMember].finished()
	if last {
		l.endLocked()
	}
	l.proxy.mu.Unlock()
	if last {
		l.closeConns(false)
	}
}

// dial connects to the target and starts to read from it.
func (l *link) dial() {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(l.proxy.ctx, "tcp", l.proxy.Target())
	if err != nil {
		l.receiverGone(toMember)
		return
	}
	l.proxy.mu.Lock()
	over, member := l.over, conn.(*net.TCPConn)
	if !over {
		l.member = member
		l.proxy.done.Go(func() { l.read(fromMember, member) })
	}
	l.proxy.mu.Unlock()
	if over {
		closeConn(member, true)
	}
}

// interruptLocked breaks off a write that the rules no longer allow. The channel that it
// returns, if any, is closed when the write is over.
func (l *link) interruptLocked(d direction) <-chan struct{} {
	pipe := l.pipes[d]
	if pipe.writing == nil || l.proxy.rules.modes[d] == pass && !pipe.hole {
		return nil
	}
	_ = l.receiver(d).SetWriteDeadline(time.Unix(1, 0)) // an error means that the write has ended
	return pipe.writing
}

// hasHoleLocked says whether a fault has lost or is keeping something of this link.
func (l *link) hasHoleLocked() bool {
	for d, pipe := range l.pipes {
		if pipe.hole || len(pipe.queue) > 0 && (l.proxy.rules.modes[d] == hold || pipe.queue[0].fate != free) {
			return true
		}
	}
	return false
}

// endLocked takes the link out of the proxy and stops its writers. closeConns must follow, without the lock.
func (l *link) endLocked() {
	if l.over {
		return
	}
	l.over = true
	delete(l.proxy.links, l)
	close(l.done)
}

// closeConns closes both connections, which also stops the readers. The link must have ended.
func (l *link) closeConns(abruptly bool) {
	closeConn(l.client, abruptly)
	if l.member != nil { // written before the link ended, never after
		closeConn(l.member, abruptly)
	}
}

// closeConn closes a connection; abruptly means by a reset, as of a host that knows nothing of it.
func closeConn(c *net.TCPConn, abruptly bool) {
	if abruptly {
		_ = c.SetLinger(0) // fails only on a closed connection
	}
	_ = c.Close()
}
