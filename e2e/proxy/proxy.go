package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// dialTimeout bounds one attempt to reach the target. A target on loopback accepts or refuses at once.
const dialTimeout = 10 * time.Second

// direction is one half of every connection.
type direction int

const (
	toMember direction = iota
	fromMember
	directions
)

// opposite is the half in which news about this half travels.
func (d direction) opposite() direction { return 1 - d }

// mode says what happens to the bytes of one direction.
type mode int

const (
	pass mode = iota
	hold
	cut
)

// rules are the faults in force. They are guarded by Proxy.mu.
type rules struct {
	target string
	delay  time.Duration
	modes  [directions]mode
	refuse bool
}

// Proxy forwards TCP connections from a loopback address to a target, through the faults set on it.
// Its methods may be called at any time, from any goroutine. Use [New] to make one.
type Proxy struct {
	listener net.Listener
	ctx      context.Context // ends with Close; ends dials in flight
	cancel   context.CancelFunc
	done     sync.WaitGroup

	mu     sync.Mutex
	rules  rules
	links  map[*link]struct{}
	closed bool
}

// New starts a proxy on a free port of 127.0.0.1 that forwards to target ("host:port"). The target
// is first dialled when a client connects. The caller must Close the proxy.
func New(target string) (*Proxy, error) {
	if _, _, err := net.SplitHostPort(target); err != nil {
		return nil, fmt.Errorf("proxy target %q is not host:port: %w", target, err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy for %s cannot listen on loopback: %w", target, err)
	}
	p := &Proxy{listener: listener, rules: rules{target: target}, links: map[*link]struct{}{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.done.Go(p.accept)
	return p, nil
}

// Addr is the "127.0.0.1:port" that clients connect to. It never changes.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Target is the address that new connections are forwarded to.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rules.target
}

// Delay makes every byte that arrives from now on wait for d before it travels on, in each
// direction: a round trip takes 2d longer. Bytes under way keep the delay they arrived with, and
// order is kept. Zero or less ends the delay.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.rules.delay = max(d, 0) }) }

// CutToMember drops everything that clients send. Everything that the target sends passes. What a hold kept
// before stays kept, for Release: so one request can arrive late while all that its client sent
// after it, such as its cancellation, is lost.
func (p *Proxy) CutToMember() { p.change(func() { p.cutLocked(toMember) }) }

// CutFromMember loses everything that the target sends; what clients send passes: the member
// acts on requests whose answers nobody sees. What a hold kept before stays kept, for Release.
func (p *Proxy) CutFromMember() { p.change(func() { p.cutLocked(fromMember) }) }

// BlackHole cuts both directions. New connections are accepted and never answered.
func (p *Proxy) BlackHole() {
	p.change(func() { p.cutLocked(toMember); p.cutLocked(fromMember) })
}

// Strand cuts both directions of the connections that are open, for as long as they last: both ends
// go on without a word, as behind a router that has forgotten them. New connections work.
func (p *Proxy) Strand() {
	p.change(func() {
		for l := range p.links {
			for _, pipe := range l.pipes {
				pipe.hole = true
			}
		}
	})
}

// Hold keeps everything, in both directions, until Release.
func (p *Proxy) Hold() {
	p.change(func() { p.rules.modes = [directions]mode{hold, hold} })
}

// HoldToMember keeps everything that clients send until Release. Everything that the target sends passes.
func (p *Proxy) HoldToMember() { p.change(func() { p.rules.modes[toMember] = hold }) }

// HoldFromMember keeps everything that the target sends until Release. Everything that clients send passes.
func (p *Proxy) HoldFromMember() { p.change(func() { p.rules.modes[fromMember] = hold }) }

// Release ends a hold and lets through what it kept, in order. Cuts, delay and refusal stay as
// they are. It does not wait until the receiver has taken the bytes: await [Stats] for that, and
// the effect of a request before a Heal that may reset its connection.
func (p *Proxy) Release() {
	p.change(func() {
		for d := range p.rules.modes {
			if p.rules.modes[d] == hold {
				p.rules.modes[d] = pass
			}
			for l := range p.links {
				l.pipes[d].release()
			}
		}
	})
}

// Reset resets every open connection and, until Heal, every new one as soon as it is accepted.
func (p *Proxy) Reset() {
	p.change(func() { p.rules.refuse = true })
	p.resetLinks(func(*link) bool { return true })
}

// Heal ends all faults. Connections that lost bytes to a cut, or whose bytes were held, are reset;
// the others go on. Bytes that were only delayed travel on at once.
func (p *Proxy) Heal() {
	// Choosing the broken connections and opening the gates is one step: no byte slips between.
	p.mu.Lock()
	broken := p.linksLocked((*link).hasHoleLocked)
	for _, l := range broken {
		l.endLocked()
	}
	p.rules = rules{target: p.rules.target}
	for l := range p.links {
		for _, pipe := range l.pipes {
			pipe.hurry()
		}
	}
	p.wakeLocked()
	p.mu.Unlock()
	for _, l := range broken {
		l.closeConns(true)
	}
}

// Retarget forwards new connections to another address and resets the open ones, which belong to
// the old target. Other faults stay in force.
func (p *Proxy) Retarget(addr string) error {
	if _, _, err := net.SplitHostPort(addr); err != nil {
		return fmt.Errorf("proxy target %q is not host:port: %w", addr, err)
	}
	p.change(func() { p.rules.target = addr })
	p.resetLinks(func(*link) bool { return true })
	return nil
}

// Stats are the numbers of a moment.
type Stats struct {
	// Connections counts the open client connections.
	Connections int
	// Lost counts the bytes of these connections that a cut has lost, to and from the member.
	LostToMember, LostFromMember int64
	// Kept counts the bytes that wait, for a delay or in a hold, to and from the member.
	KeptToMember, KeptFromMember int64
}

// Stats lets a drill await the effect of a fault, for example that a request is in the hold.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{Connections: len(p.links)}
	for l := range p.links {
		s.LostToMember += l.pipes[toMember].lost
		s.LostFromMember += l.pipes[fromMember].lost
		s.KeptToMember += l.pipes[toMember].kept
		s.KeptFromMember += l.pipes[fromMember].kept
	}
	return s
}

// Close stops listening, closes every connection and returns when no goroutine of the proxy is
// left. Later calls do nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	err := p.listener.Close()
	p.resetLinks(func(*link) bool { return true })
	p.done.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// change puts new rules in force and returns when no write that began under the old ones goes on.
func (p *Proxy) change(set func()) {
	p.mu.Lock()
	set()
	var writing []<-chan struct{}
	for l := range p.links {
		for d := range l.pipes {
			if w := l.interruptLocked(direction(d)); w != nil {
				writing = append(writing, w)
			}
		}
	}
	p.wakeLocked()
	p.mu.Unlock()
	for _, w := range writing {
		<-w
	}
}

func (p *Proxy) cutLocked(d direction) {
	if p.rules.modes[d] == hold {
		for l := range p.links {
			l.pipes[d].keepThroughCut()
		}
	}
	p.rules.modes[d] = cut
}

func (p *Proxy) wakeLocked() {
	for l := range p.links {
		for _, pipe := range l.pipes {
			pipe.wakeUp()
		}
	}
}

func (p *Proxy) linksLocked(which func(*link) bool) []*link {
	var links []*link
	for l := range p.links {
		if which(l) {
			links = append(links, l)
		}
	}
	return links
}

func (p *Proxy) resetLinks(which func(*link) bool) {
	p.mu.Lock()
	links := p.linksLocked(which)
	for _, l := range links {
		l.endLocked()
	}
	p.mu.Unlock()
	for _, l := range links {
		l.closeConns(true)
	}
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// Out of file descriptors, or a client that was gone before it was accepted: the next one may do.
			select {
			case <-p.ctx.Done():
				return
			case <-time.After(10 * time.Millisecond):
				continue
			}
		}
		p.mu.Lock()
		admitted := !p.closed && !p.rules.refuse
		if admitted {
			p.startLocked(conn.(*net.TCPConn))
		}
		p.mu.Unlock()
		if !admitted {
			closeConn(conn.(*net.TCPConn), true)
		}
	}
}
