package proxy

import (
	"io"
	"slices"
	"syscall"
	"testing"
	"time"
)

// TestFaults states for every fault what the member and the client see of a request that is sent under it, and what
// happens to the request when the fault ends.
func TestFaults(t *testing.T) {
	lostTo := func(s Stats) int64 { return s.LostToMember }
	lostFrom := func(s Stats) int64 { return s.LostFromMember }
	keptTo := func(s Stats) int64 { return s.KeptToMember }
	for name, test := range map[string]struct {
		fault  func(*Proxy)
		caught func(Stats) int64 // not 0 when the fault has caught the request or its answer
		seen   bool              // the member sees the request under the fault
		end    func(*Proxy)
		late   bool // the client gets its answer after the end; otherwise its connection is reset
	}{
		"cut to member loses requests, and Heal resets":     {(*Proxy).CutToMember, lostTo, false, (*Proxy).Heal, false},
		"cut from member loses answers, and Heal resets":    {(*Proxy).CutFromMember, lostFrom, true, (*Proxy).Heal, false},
		"black hole loses requests, and Heal resets":        {(*Proxy).BlackHole, lostTo, false, (*Proxy).Heal, false},
		"hold to member lets requests go on Release":        {(*Proxy).HoldToMember, keptTo, false, (*Proxy).Release, true},
		"hold to member drops requests on Heal, and resets": {(*Proxy).HoldToMember, keptTo, false, (*Proxy).Heal, false},
		"a cut after a hold leaves what is kept to Heal, which resets": {
			(*Proxy).HoldToMember, keptTo, false, func(p *Proxy) { p.CutToMember(); p.Heal() }, false,
		},
	} {
		for _, open := range []string{"before", "under"} {
			t.Run(name+", on a connection made "+open+" the fault", func(t *testing.T) {
				m := startMember(t)
				p := startProxy(t, m.addr())
				var c *client
				if open == "before" {
					c = connectTo(t, p)
					c.ask("hello")
					test.fault(p)
				} else {
					test.fault(p)
					c = connectTo(t, p)
				}
				c.send("request")
				await(t, "the fault has caught something", func() bool { return test.caught(p.Stats()) > 0 })
				if got := slices.Contains(m.seen(), "request"); got != test.seen {
					t.Errorf("under the fault: want the member to see the request: %v, got %v", test.seen, got)
				}
				if c.hasInput() {
					t.Error("under the fault: the client was answered")
				}
				test.end(p)
				if test.late {
					c.expect("ok request")
				} else {
					c.expectReset()
				}
				if got, want := slices.Contains(m.seen(), "request"), test.seen || test.late; got != want {
					t.Errorf("after the fault: want the member to have seen the request: %v, got %v", want, got)
				}
				p.Heal()
				connectTo(t, p).ask("again")
			})
		}
	}
}

func TestReleaseAfterCutPassesOnlyWhatWasHeld(t *testing.T) {
	m := startMember(t)
	p := startProxy(t, m.addr())
	c := connectTo(t, p)
	p.HoldToMember()
	c.send("renewal")
	await(t, "the request is kept", func() bool { return p.Stats().KeptToMember > 0 })
	p.CutToMember()
	c.send("cancel")
	must(t, c.Close())
	await(t, "what followed is lost", func() bool { return p.Stats().LostToMember > 0 })
	p.Release()
	await(t, "the request arrives", func() bool { return len(m.seen()) > 0 })
	await(t, "nothing is kept any more", func() bool { return p.Stats().KeptToMember == 0 })
	m.expectSeen(t, "renewal")
	if m.ended() != 0 {
		t.Error("the member saw the end of a connection that was closed in a cut")
	}
	p.Heal()
	await(t, "Heal ends the broken connection", func() bool { return m.ended() == 1 })
}

func TestStrandedConnectionsStaySilentAndNewOnesWork(t *testing.T) {
	m := startMember(t)
	p := startProxy(t, m.addr())
	stranded := connectTo(t, p)
	stranded.ask("one")
	p.Strand()
	stranded.send("two")
	await(t, "the request is lost", func() bool { return p.Stats().LostToMember > 0 })
	connectTo(t, p).ask("three")
	if stranded.hasInput() {
		t.Error("the stranded client got something")
	}
	m.expectSeen(t, "one", "three")
	p.Heal()
	stranded.expectReset()
}

func TestNothingPassesAfterLostBytes(t *testing.T) {
	m := startMember(t)
	p := startProxy(t, m.addr())
	c := connectTo(t, p)
	c.ask("one")
	p.CutToMember()
	c.send("two")
	await(t, "the second request is lost", func() bool { return p.Stats().LostToMember > 0 })
	lost := p.Stats().LostToMember
	p.HoldToMember()
	p.Release()
	c.send("three")
	await(t, "the third request is lost too", func() bool { return p.Stats().LostToMember > lost })
	connectTo(t, p).ask("four")
	m.expectSeen(t, "one", "four")
}

func TestDelay(t *testing.T) {
	const delay = 200 * time.Millisecond
	t.Run("a round trip takes twice the delay, however many are under way", func(t *testing.T) {
		p := startProxy(t, startMember(t).addr())
		c := connectTo(t, p)
		c.ask("warm up")
		p.Delay(delay)
		begin := time.Now()
		for range 50 {
			c.send("request")
		}
		for range 50 {
			c.expect("ok request")
		}
		took := time.Since(begin)
		if took < 2*delay {
			t.Errorf("50 requests took %s, less than twice the delay of %s", took, delay)
		}
		if took > 40*delay {
			t.Errorf("50 requests took %s: the delay of %s was paid many times", took, delay)
		}
	})
	t.Run("a shorter delay does not let bytes overtake", func(t *testing.T) {
		m := startMember(t)
		p := startProxy(t, m.addr())
		c := connectTo(t, p)
		p.Delay(delay)
		c.send("first")
		await(t, "the first is under way, or there already", func() bool {
			return p.Stats().KeptToMember > 0 || len(m.seen()) > 0
		})
		p.Delay(0)
		c.send("second")
		c.expect("ok first")
		c.expect("ok second")
	})
	t.Run("Heal sends on what is under way", func(t *testing.T) {
		p := startProxy(t, startMember(t).addr())
		c := connectTo(t, p)
		p.Delay(time.Hour)
		c.send("request")
		await(t, "the request is under way", func() bool { return p.Stats().KeptToMember > 0 })
		p.Heal()
		c.expect("ok request")
	})
	t.Run("a cut loses what is under way", func(t *testing.T) {
		m := startMember(t)
		p := startProxy(t, m.addr())
		c := connectTo(t, p)
		p.Delay(time.Hour)
		c.send("request")
		await(t, "the request is under way", func() bool { return p.Stats().KeptToMember > 0 })
		p.CutToMember()
		await(t, "the request is lost", func() bool { return p.Stats().LostToMember > 0 })
		p.Heal()
		c.expectReset()
		m.expectSeen(t)
	})
}

func TestReset(t *testing.T) {
	p := startProxy(t, startMember(t).addr())
	c := connectTo(t, p)
	c.ask("before")
	p.Reset()
	c.expectReset()
	expectRefusal(t, p)
	if got := p.Stats().Connections; got != 0 {
		t.Errorf("want no open connection, got %d", got)
	}
	p.Heal()
	connectTo(t, p).ask("after")
}

func TestEnds(t *testing.T) {
	t.Run("the client's end of stream passes and leaves the way back open", func(t *testing.T) {
		m := startMember(t)
		c := connectTo(t, startProxy(t, m.addr()))
		c.send("last")
		must(t, c.CloseWrite())
		c.expect("ok last")
		await(t, "the member sees the end", func() bool { return m.ended() == 1 })
		c.expectEnd(io.EOF)
	})
	t.Run("an end waits in a hold behind the bytes before it", func(t *testing.T) {
		m := startMember(t)
		p := startProxy(t, m.addr())
		c := connectTo(t, p)
		p.HoldToMember()
		c.send("last")
		must(t, c.Close())
		await(t, "the request is kept", func() bool { return p.Stats().KeptToMember > 0 })
		if m.ended() != 0 || len(m.seen()) != 0 {
			t.Error("something passed the hold")
		}
		p.Release()
		await(t, "the member sees the end", func() bool { return m.ended() == 1 })
		m.expectSeen(t, "last")
	})
	t.Run("a target that is down resets the client", func(t *testing.T) {
		m := startMember(t)
		p := startProxy(t, m.addr())
		m.stop()
		expectRefusal(t, p)
	})
	t.Run("a target that is down is not noticed through a cut", func(t *testing.T) {
		m := startMember(t)
		p := startProxy(t, m.addr())
		m.stop()
		p.CutFromMember()
		c := connectTo(t, p)
		c.send("request")
		await(t, "the target was tried", func() bool { return deaf(p, toMember) })
		if c.hasInput() {
			t.Error("the client noticed")
		}
		p.Heal()
		c.expectReset()
	})
	t.Run("a target that goes away resets or ends the client's connection", func(t *testing.T) {
		m := startMember(t)
		c := connectTo(t, startProxy(t, m.addr()))
		c.ask("hello")
		m.stop()
		c.expectEnd(io.EOF, syscall.ECONNRESET)
	})
}

// deaf reports whether the receiver of a direction was found gone.
func deaf(p *Proxy, d direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.pipes[d].deaf {
			return true
		}
	}
	return false
}
