package proxy

import (
	"slices"
	"testing"
	"time"

	"github.com/leasecast/leasecast/e2e/must/musttest"
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
	musttest.Do(t, c.Close())
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

func TestARoundTripTakesTwiceTheDelayHoweverManyAreUnderWay(t *testing.T) {
	const delay = 200 * time.Millisecond
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
	if took := time.Since(begin); took < 2*delay || took > 40*delay {
		t.Errorf("50 requests took %s, with a delay of %s", took, delay)
	}
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
