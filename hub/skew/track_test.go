package skew_test

import (
	"strings"
	"testing"
	"time"

	"github.com/leasecast/leasecast/hub/skew"
)

const eps = second

// Each case ends by asking for the verdict under an ε of a second.
func TestVerdict(t *testing.T) {
	for name, tc := range map[string]struct {
		happens func(w *world)
		want    skew.State
	}{
		"nothing was answered yet": {func(*world) {}, skew.Unknown},
		"one answer is not enough to tell": {
			func(w *world) { w.pass(900 * ms); w.offset = 400 * ms; w.answer(5*ms, 5*ms) }, skew.Unknown},
		"a good clock": {
			func(w *world) { w.probes(5*second, 30*second) }, skew.Within},
		"a clock that is off by ε, as two good clocks can be": {
			func(w *world) { w.offset = eps - 10*ms; w.probes(5*second, 300*second) }, skew.Within},
		"the same on the other side": {
			func(w *world) { w.offset = -eps + 10*ms; w.probes(5*second, 300*second) }, skew.Within},
		"a clock that is further ahead": {
			func(w *world) { w.offset = eps + 60*ms; w.probes(5*second, 60*second) }, skew.Beyond},
		"a clock that is further behind": {
			func(w *world) { w.offset = -eps - 60*ms; w.probes(5*second, 60*second) }, skew.Beyond},
		"far off, at once": {
			func(w *world) { w.offset = 4 * second; w.answers(2) }, skew.Beyond},
		"but not by one answer, which may be somebody else's": {
			func(w *world) { w.probes(5*second, 30*second); w.offset = 4 * second; w.answers(1) }, skew.Within},
		"nor by two that others come between": {
			func(w *world) {
				for range 5 {
					w.answers(3)
					w.offset = 4 * second
					w.answers(1)
					w.offset = 0
				}
			}, skew.Within},
		"a clock that is stepped": {
			func(w *world) { w.probes(5*second, 30*second); w.offset = -4 * second; w.answers(2) }, skew.Beyond},
		"the hub's clock is stepped": {
			func(w *world) { w.probes(5*second, 30*second); w.stepH = 4 * second; w.answers(2) }, skew.Beyond},
		"it is put right, just now": {
			func(w *world) { w.offset = 4 * second; w.answers(2); w.offset = 0; w.probes(second, skew.Calm-second) }, skew.Beyond},
		"it is put right, for a while": {
			func(w *world) {
				w.offset = 4 * second
				w.answers(2)
				w.offset = 0
				w.probes(second, skew.Calm+5*second)
			}, skew.Within},
		"it is put right, but barely": {
			func(w *world) {
				w.offset = 4 * second
				w.answers(2)
				w.offset = eps * 8 / 10
				w.probes(second, 300*second)
			}, skew.Beyond},
		"it is wrong again before it is let off": {
			func(w *world) {
				w.offset = 4 * second
				w.answers(2)
				w.offset = 0
				w.probes(second, skew.Calm-second)
				w.offset = 4 * second
				w.answers(2)
				w.offset = 0
				w.probes(second, skew.Calm-second)
			}, skew.Beyond},
		"it is put right, and the way is too long to prove it": {
			func(w *world) {
				w.offset = 10 * second
				w.answers(2)
				w.offset = 0
				for range 60 {
					w.pass(second + w.between(0, second))
					w.answer(900*ms, 900*ms)
				}
			}, skew.Within},
		"another cluster is behind the name": {
			func(w *world) { w.offset = 4 * second; w.answers(2); w.track.Reset() }, skew.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			w.track.Judge(w.hub(), []time.Duration{eps})
			tc.happens(w)
			if got := w.verdict(eps); got.State != tc.want {
				off, _ := w.track.Server(w.hub())
				t.Errorf("verdict %+v, want state %v; the truth is %v, measured %+v", got, tc.want, w.truth(), off)
			}
		})
	}
}

// A verdict against a member is never wrong, and one for it is not wrong for long: whatever the
// offset, the delays and the moments of the answers.
func TestNobodyIsAccusedWrongly(t *testing.T) {
	for seed := range uint64(2000) {
		w := newWorld(seed)
		w.offset = w.between(-eps, eps)
		w.rate = (2*w.Float64() - 1) * 500e-6
		w.track.Judge(w.hub(), []time.Duration{eps, 250 * ms})
		for range 60 {
			w.pass(w.between(0, 2*second))
			if w.truth().Abs() > eps-10*ms {
				w.rate = 0
			}
			w.answer(w.between(0, 300*ms), w.between(0, 300*ms))
			if v := w.verdict(eps); v.State == skew.Beyond {
				t.Fatalf("seed %d: %v, but the truth is %v", seed, v, w.truth())
			}
		}
	}
}

func TestWhoIsBeyondIsFound(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		w.offset = eps + 110*ms + w.between(0, 5*second)
		if w.IntN(2) == 0 {
			w.offset = -w.offset
		}
		w.track.Judge(w.hub(), []time.Duration{eps})
		w.probes(second, 15*second)
		v := w.verdict(eps)
		if v.State != skew.Beyond || w.truth() < v.Offset.Lo || w.truth() > v.Offset.Hi {
			t.Errorf("seed %d: %+v, the truth is %v", seed, v, w.truth())
		}
		if behind := v.Behind(); w.truth() < 0 && behind < -w.truth() || w.truth() > 0 && behind != 0 {
			t.Errorf("seed %d: behind by %v, the truth is %v", seed, behind, w.truth())
		}
	}
}

// A clock that wanders about ε is accused and let off seldom: not by noise.
func TestAClockAtTheLimitDoesNotFlap(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(seed)
		w.track.Judge(w.hub(), []time.Duration{eps})
		changes, last := 0, skew.Unknown
		for range 1000 {
			w.offset = eps + w.between(-100*ms, 100*ms)
			w.probes(second, second)
			if now := w.verdict(eps).State; now != last {
				changes, last = changes+1, now
			}
		}
		if changes > 2 {
			t.Errorf("seed %d: %d changes of the verdict", seed, changes)
		}
	}
}

func TestEachPolicyHasItsOwnVerdict(t *testing.T) {
	w := newWorld(1)
	w.track.Judge(w.hub(), []time.Duration{250 * ms, second})
	w.offset = 500 * ms
	w.probes(second, 10*second)
	if got := w.verdict(250 * ms).State; got != skew.Beyond {
		t.Errorf("under 250 ms: %v", got)
	}
	if got := w.verdict(second).State; got != skew.Within {
		t.Errorf("under 1 s: %v", got)
	}
	if got := w.verdict(2 * second).State; got != skew.Unknown {
		t.Errorf("under an ε that nobody asked for: %v", got)
	}
	if v, e := w.track.Worst(); v.State != skew.Beyond || e != 250*ms {
		t.Errorf("worst: %+v under %v", v, e)
	}
	w.track.Judge(w.hub(), []time.Duration{second, 400 * ms}) // measured well enough to tell at once
	if got := w.track.States(); got[0] != skew.Within || got[1] != skew.Beyond {
		t.Errorf("after a change of policies: %v", got)
	}
	if got := w.verdict(250 * ms).State; got != skew.Unknown {
		t.Errorf("under an ε that nobody asks for any more: %v", got)
	}
}

func TestVerdictInWords(t *testing.T) {
	for name, tc := range map[string]struct {
		v    skew.Verdict
		want string
	}{
		"ahead":    {skew.Verdict{State: skew.Beyond, Clock: "the API server", Offset: skew.Interval{Lo: 1951 * ms, Hi: 2044 * ms}}, "the clock of the API server is 1.95s to 2.04s ahead of the hub's"},
		"behind":   {skew.Verdict{State: skew.Beyond, Clock: "host a", Offset: skew.Interval{Lo: -5 * second, Hi: -2 * second}}, "the clock of host a is 2s to 5s behind the hub's"},
		"at least": {skew.Verdict{State: skew.Beyond, Clock: "host a", Offset: skew.Interval{Lo: 5 * second, Hi: century}}, "the clock of host a is at least 5s ahead of the hub's"},
		"fine":     {skew.Verdict{State: skew.Within}, "no clock is known to be off"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := tc.v.String(); got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

// host is a machine that renews a Lease every 10 s.
type host struct {
	name   string
	offset time.Duration // against the API server's clock
	delay  func() time.Duration
	last   skew.Renewal
}

// renew has the API server admit a renewal of each host.
func (w *world) renew(hosts ...*host) {
	for _, h := range hosts {
		stamp := w.shows().Add(h.offset).Truncate(time.Microsecond)
		w.pass(h.delay())
		h.last = skew.Renewal{Name: h.name, RenewTime: stamp, Admitted: w.shows().Truncate(second)}
	}
}

// census has the track take in a list of hosts every 30 s, for that many, with answers between.
func (w *world) census(lists int, hosts ...*host) {
	for range lists {
		for range 3 {
			w.pass(w.between(0, 10*second))
			w.renew(hosts...)
			w.answers(1)
		}
		w.pass(w.between(0, 10*second))
		var rs []skew.Renewal
		for _, h := range hosts {
			rs = append(rs, h.last)
		}
		w.track.Hosts(rs, w.hub())
	}
	w.answers(2)
}

func TestVerdictOnHosts(t *testing.T) {
	quick := func() time.Duration { return 10 * ms }
	for name, tc := range map[string]struct {
		happens func(w *world)
		want    skew.State
		clock   string
	}{
		"good clocks": {
			func(w *world) { w.census(20, &host{name: "a", delay: quick}, &host{name: "b", delay: quick}) }, skew.Within, ""},
		"one is ahead, by the first list": {
			func(w *world) {
				w.census(1, &host{name: "a", delay: quick}, &host{name: "b", delay: quick, offset: eps + 1100*ms})
			}, skew.Beyond, "host b"},
		"one is behind": {
			func(w *world) {
				w.census(6, &host{name: "a", delay: quick}, &host{name: "b", delay: quick, offset: -eps - 1700*ms})
			}, skew.Beyond, "host b"},
		"one is behind, or its first renewals took long": {
			func(w *world) { w.census(3, &host{name: "b", delay: quick, offset: -eps - 1700*ms}) }, skew.Within, ""},
		"renewals that take long, but one in four": {
			func(w *world) {
				n := 0
				slow := func() time.Duration {
					if n++; n%12 < 3 { // of each list only the last of three is seen
						return 20 * ms
					}
					return 7 * second
				}
				w.census(20, &host{name: "a", delay: slow})
			}, skew.Within, ""},
		"one that is gone has no clock": {
			func(w *world) {
				b := &host{name: "b", delay: quick, offset: 5 * second}
				w.census(2, b)
				for range 70 {
					w.pass(10 * second)
					w.answers(2)
				}
				w.census(1, &host{name: "a", delay: quick})
				for range 10 {
					w.pass(10 * second)
					w.answers(2)
				}
			}, skew.Within, ""},
		"one that has long been gone when it is seen first": {
			func(w *world) {
				b := &host{name: "b", delay: quick, offset: 50 * second}
				w.renew(b)
				w.pass(time.Hour)
				w.answers(5)
				w.track.Hosts([]skew.Renewal{b.last}, w.hub())
				w.answers(2)
			}, skew.Within, ""},
		"one that does not say when it was admitted": {
			func(w *world) {
				w.answers(10)
				w.track.Hosts([]skew.Renewal{{Name: "a", RenewTime: w.shows().Add(time.Hour)}}, w.hub())
				w.answers(2)
			}, skew.Within, ""},
		"renewals that take their time, and an edge that tells least": {
			func(w *world) {
				a := &host{name: "a", delay: func() time.Duration { return 450 * ms }, offset: -eps + 10*ms}
				for range 8 {
					w.pass(30*second + 600*ms - time.Duration(w.shows().Nanosecond())) // admitted at .05
					w.renew(a)
					w.track.Hosts([]skew.Renewal{a.last}, w.hub())
					w.answers(2)
				}
			}, skew.Within, ""},
		"it is put right": {
			func(w *world) {
				a := &host{name: "a", delay: quick, offset: 5 * second}
				w.census(4, a)
				a.offset = 0
				w.census(10, a)
			}, skew.Within, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(7)
			w.track.Judge(w.hub(), []time.Duration{eps})
			w.probes(second, 10*second)
			tc.happens(w)
			if got := w.verdict(eps); got.State != tc.want || got.Clock != tc.clock {
				t.Errorf("%+v, want state %v of %q", got, tc.want, tc.clock)
			}
		})
	}
}

// Neither delays nor the moments of renewals and lists accuse a host that is within ε, even if the
// API server that admits its renewals is another one, with another clock within ε.
func TestNoHostIsAccusedWrongly(t *testing.T) {
	for seed := range uint64(300) {
		w := newWorld(seed)
		w.track.Judge(w.hub(), []time.Duration{eps})
		server := w.between(-eps/2, eps/2) // of the truth
		w.offset = server
		w.probes(second, 8*second)
		hosts := []*host{}
		for _, name := range []string{"a", "b"} {
			hosts = append(hosts, &host{name: name, offset: w.between(-eps/2, eps/2) - server, delay: func() time.Duration { return w.between(0, 400*ms) }})
		}
		w.census(12, hosts...)
		if v := w.verdict(eps); v.State == skew.Beyond {
			t.Fatalf("seed %d: %v; the API server is off by %v, hosts %v and %v", seed, v, server, hosts[0].offset+server, hosts[1].offset+server)
		}
	}
}

// apiServers has the track take in consistent lists of what API servers renew every 10 s.
func (w *world) apiServers(lists int, clocks map[string]time.Duration) {
	stamps := map[string]time.Time{}
	for range lists {
		for range 3 {
			w.pass(10 * second)
			for name, offset := range clocks {
				stamps[name] = w.shows().Add(offset).Truncate(time.Microsecond)
			}
			w.answers(1)
		}
		sent := w.hub()
		w.pass(5 * ms)
		var rs []skew.Renewal
		for name := range clocks {
			rs = append(rs, skew.Renewal{Name: name, RenewTime: stamps[name]})
		}
		w.track.Servers(rs, sent, w.hub())
	}
	w.answers(2)
}

func TestVerdictOnOtherAPIServers(t *testing.T) {
	for name, tc := range map[string]struct {
		clocks map[string]time.Duration
		want   skew.State
		clock  string
	}{
		"good clocks":          {map[string]time.Duration{"apiserver-a": 0, "apiserver-b": 400 * ms}, skew.Within, ""},
		"one is ahead":         {map[string]time.Duration{"apiserver-a": 0, "apiserver-b": 15 * second}, skew.Beyond, "API server apiserver-b"},
		"one is a minute late": {map[string]time.Duration{"apiserver-a": 0, "apiserver-b": -time.Minute}, skew.Beyond, "API server apiserver-b"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(7)
			w.track.Judge(w.hub(), []time.Duration{eps})
			w.probes(second, 10*second)
			w.apiServers(8, tc.clocks)
			if got := w.verdict(eps); got.State != tc.want || got.Clock != tc.clock {
				t.Errorf("%+v, want state %v of %q", got, tc.want, tc.clock)
			}
		})
	}
}

// An API server that renews seldom, and whose renewals are seen only by the next list.
func TestASlowAPIServerIsNotAccused(t *testing.T) {
	w := newWorld(7)
	w.track.Judge(w.hub(), []time.Duration{eps})
	w.probes(second, 10*second)
	stamp := w.shows()
	for range 10 {
		shown := stamp
		w.pass(25 * second)
		stamp = w.shows()
		w.pass(5 * second)
		sent := w.hub()
		w.pass(5 * ms)
		w.track.Servers([]skew.Renewal{{Name: "apiserver-a", RenewTime: shown}}, sent, w.hub())
		w.answers(2)
	}
	if got := w.verdict(eps); got.State != skew.Within {
		t.Errorf("%+v", got)
	}
}

// The second in which a host's renewal was admitted is that of some API server.
func TestSeveralAPIServersMayDifferByEpsilon(t *testing.T) {
	judged := func(several bool) skew.Verdict {
		w := newWorld(3)
		w.track.Judge(w.hub(), []time.Duration{eps})
		w.probes(second, 10*second)
		if several {
			w.apiServers(1, map[string]time.Duration{"apiserver-a": 0, "apiserver-b": 0})
		}
		w.census(8, &host{name: "a", offset: eps + 600*ms, delay: func() time.Duration { return 0 }})
		return w.verdict(eps)
	}
	if got := judged(false); got.State != skew.Beyond || !strings.Contains(got.String(), "host a is ") {
		t.Errorf("with one API server: %+v", got)
	}
	if got := judged(true); got.State != skew.Within {
		t.Errorf("with two: %+v", got)
	}
}
