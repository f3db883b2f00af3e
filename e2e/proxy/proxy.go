package proxy

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"
)

// dialTimeout bounds one attempt to reach the target. A target on loopback accepts or refuses at once.
const dialTimeout = 10 * time.Second

// direction is one half of every connection. The opposite of d is 1-d.
type direction int

const (
	toMember direction = iota
	fromMember
	directions
)

// mode is what happens to the bytes of one direction.
type mode int

const (
	pass mode = iota
	hold
	cut
)

// rules are the faults in force.
type rules struct {
	delay  time.Duration
	modes  [directions]mode
	refuse bool
}

// Proxy forwards TCP connections from a loopback address to a target, through the faults set on it. Its methods may be
// called at any time, from any goroutine. Use [New] to make one.
type Proxy struct {
	listener net.Listener
	target   string
	running  sync.WaitGroup

	mu      sync.Mutex
	changed sync.Cond // on mu: the rules, or a link
	rules   rules
	links   map[*link]struct{}
}

// New starts a proxy on a free port of 127.0.0.1 that forwards to target ("host:port"). It dials the target when a
// client connects. The caller must Close the proxy.
func New(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("proxy for %s cannot listen on loopback: %w", target, err)
	}
	p := &Proxy{listener: listener, target: target, links: map[*link]struct{}{}}
	p.changed.L = &p.mu
	p.running.Go(p.accept)
	return p, nil
}

// Addr is the "127.0.0.1:port" that clients connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Delay makes every byte that arrives from now on wait for d, in each direction: a round trip takes 2d longer. Bytes
// under way keep the delay they arrived with. Zero ends the delay.
func (p *Proxy) Delay(d time.Duration) { p.change(func() { p.rules.delay = d }) }

// CutToMember loses everything that clients send. What a hold kept before stays kept, for Release: so one request can
// arrive late while all that followed it, such as its cancellation, is lost.
func (p *Proxy) CutToMember() { p.change(func() { p.cutLocked(toMember) }) }

// CutFromMember loses everything that the target sends: it serves requests whose answers are lost.
func (p *Proxy) CutFromMember() { p.change(func() { p.cutLocked(fromMember) }) }

// BlackHole cuts both directions. New connections are accepted and never answered.
func (p *Proxy) BlackHole() { p.change(func() { p.cutLocked(toMember); p.cutLocked(fromMember) }) }

// Strand cuts both directions of the open connections, for as long as they last: both ends go on in silence, as behind
// a router that has forgotten them. New connections work.
func (p *Proxy) Strand() {
	p.change(func() {
		for l := range p.links {
			l.pipes[toMember].hole, l.pipes[fromMember].hole = true, true
		}
	})
}

// HoldToMember keeps everything that clients send until Release.
func (p *Proxy) HoldToMember() { p.change(func() { p.rules.modes[toMember] = hold }) }

// Release ends a hold and lets through what it kept, in order. Cuts, delay and refusal stay. It does not wait
// until the receiver has read the bytes: await [Stats] for that. Await the effect of a request before a Heal, which may
// reset its connection.
func (p *Proxy) Release() {
	p.change(func() {
		if p.rules.modes[toMember] == hold {
			p.rules.modes[toMember] = pass
		}
		for l := range p.links {
			l.pipes[toMember].mark(held, released)
		}
	})
}

// Reset resets every open connection and, until Heal, every new one as soon as it is accepted.
func (p *Proxy) Reset() {
	p.change(func() {
		p.rules.refuse = true
		for l := range p.links {
			l.endLocked(true)
		}
	})
}

// Heal ends all faults. Connections that lost bytes to a cut, or whose bytes were held, are reset. Bytes that were only
// delayed travel on at once.
func (p *Proxy) Heal() {
	p.change(func() {
		for l := range p.links {
			if l.isBrokenLocked() {
				l.endLocked(true)
			}
			for d := range l.pipes {
				for i := range l.pipes[d].queue {
					l.pipes[d].queue[i].due = time.Time{}
				}
			}
		}
		p.rules = rules{}
	})
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

// Stats lets a drill await the effect of a fault, for example that a request is held.
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

// Close stops listening, resets every connection and returns when no goroutine of the proxy is left. Call it once.
func (p *Proxy) Close() error {
	err := p.listener.Close()
	p.Reset()
	p.running.Wait()
	return err
}

// change puts new rules in force and returns when no write that began under the old ones goes on.
func (p *Proxy) change(set func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	set()
	p.changed.Broadcast()
	for _, l := range slices.Collect(maps.Keys(p.links)) {
		for d := range l.pipes {
			pipe := &l.pipes[d]
			for pipe.writing && (pipe.hole || p.rules.modes[d] != pass) {
				_ = l.to[d].SetWriteDeadline(time.Unix(1, 0)) // an error means that the write has ended
				p.changed.Wait()
			}
		}
	}
}

func (p *Proxy) cutLocked(d direction) {
	if p.rules.modes[d] == hold {
		for l := range p.links {
			l.pipes[d].mark(free, held)
		}
	}
	p.rules.modes[d] = cut
}

func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.mu.Lock()
		if p.rules.refuse {
			closeConn(conn.(*net.TCPConn), true)
		} else {
			p.startLocked(conn.(*net.TCPConn))
		}
		p.mu.Unlock()
	}
}
