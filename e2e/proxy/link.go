package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"time"
)

// link is one client connection and, once bytes may travel, its connection to the target. Proxy.mu guards it. It is
// not held during a read, a write or a dial.
type link struct {
	proxy *Proxy
	to    [directions]*net.TCPConn // the receivers; the member is nil until it is dialled
	pipes [directions]pipe
	over  bool
}

// startLocked makes a link of an accepted connection.
func (p *Proxy) startLocked(client *net.TCPConn) {
	l := &link{proxy: p, to: [directions]*net.TCPConn{fromMember: client}}
	p.links[l] = struct{}{}
	p.running.Go(func() { l.read(toMember, client) })
	p.running.Go(func() { l.write(toMember) })
	p.running.Go(func() { l.write(fromMember) })
}

// read queues what the sender of a direction sends.
func (l *link) read(d direction, from *net.TCPConn) {
	p, buf := l.proxy, make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		c := chunk{data: slices.Clone(buf[:n])}
		switch {
		case errors.Is(err, io.EOF):
			c.end = closed
		case err != nil:
			c.end = reset
		}
		p.mu.Lock()
		for l.pipes[d].kept >= keepLimit && !l.over {
			p.changed.Wait()
		}
		l.pushLocked(d, c)
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (l *link) pushLocked(d direction, c chunk) {
	p, pipe := l.proxy, &l.pipes[d]
	c.due = time.Now().Add(p.rules.delay)
	pipe.queue = append(pipe.queue, c)
	pipe.kept += int64(len(c.data))
	p.changed.Broadcast()
	if p.rules.delay > 0 {
		time.AfterFunc(p.rules.delay, func() { p.change(func() {}) })
	}
}

// write is the only sender of a direction.
func (l *link) write(d direction) {
	p, pipe := l.proxy, &l.pipes[d]
	p.mu.Lock()
	defer p.mu.Unlock()
	for !l.over {
		mode := p.rules.modes[d]
		if (pipe.hole || pipe.deaf || mode == cut) && pipe.drop() {
			p.changed.Broadcast() // there is room
		}
		switch {
		case pipe.finished():
			if l.pipes[1-d].finished() {
				l.endLocked(false)
			}
			return
		case pipe.deaf, !pipe.passes(mode):
			p.changed.Wait()
		case l.to[d] == nil:
			l.dialLocked()
		case len(pipe.queue) == 0, time.Now().Before(pipe.queue[0].due):
			p.changed.Wait()
		default:
			l.sendLocked(d)
		}
	}
}

// dialLocked connects to the target and starts to read from it.
func (l *link) dialLocked() {
	p := l.proxy
	p.mu.Unlock()
	conn, err := net.DialTimeout("tcp", p.target, dialTimeout)
	p.mu.Lock()
	switch {
	case err != nil:
		l.receiverGoneLocked(toMember)
	case l.over:
		closeConn(conn.(*net.TCPConn), true)
	default:
		l.to[toMember] = conn.(*net.TCPConn)
		p.running.Go(func() { l.read(fromMember, conn.(*net.TCPConn)) })
	}
}

// sendLocked writes the first chunk of a pipe, or ends its stream.
func (l *link) sendLocked(d direction) {
	p, pipe, to := l.proxy, &l.pipes[d], l.to[d]
	head := pipe.queue[0]
	if head.end == reset {
		l.endLocked(true)
		return
	}
	_ = to.SetWriteDeadline(time.Time{}) // an error shows again in the write
	pipe.writing = true
	p.mu.Unlock()
	n, err := to.Write(head.data)
	if head.end == closed {
		err = to.CloseWrite()
	}
	p.mu.Lock()
	pipe.writing = false
	p.changed.Broadcast()
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.receiverGoneLocked(d)
	} else if !l.over {
		pipe.sent(n)
	}
}

// receiverGoneLocked records that the receiver of a direction is gone. The sender gets a reset in the opposite
// direction, under that one's rules.
func (l *link) receiverGoneLocked(d direction) {
	l.pipes[d].deaf = true
	switch back := &l.pipes[1-d]; {
	case !back.ended:
		l.pushLocked(1-d, chunk{end: reset})
	case !back.hole: // the sender has seen the end
		l.endLocked(true)
	}
}

// isBrokenLocked reports whether a fault has lost or is keeping something of this link.
func (l *link) isBrokenLocked() bool {
	for d, pipe := range l.pipes {
		if pipe.hole || len(pipe.queue) > 0 && (l.proxy.rules.modes[d] == hold || pipe.queue[0].fate != free) {
			return true
		}
	}
	return false
}

// endLocked closes both connections, which stops the readers and writers.
func (l *link) endLocked(abruptly bool) {
	if l.over {
		return
	}
	l.over = true
	delete(l.proxy.links, l)
	for _, conn := range l.to {
		if conn != nil {
			closeConn(conn, abruptly)
		}
	}
	l.proxy.changed.Broadcast()
}

// closeConn closes a connection, by a reset if abruptly.
func closeConn(c *net.TCPConn, abruptly bool) {
	if abruptly {
		_ = c.SetLinger(0) // fails only on a closed connection
	}
	_ = c.Close()
}
