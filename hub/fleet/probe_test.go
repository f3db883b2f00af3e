package fleet

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/health"
)

func TestWhoIsWrittenTo(t *testing.T) {
	fine := func() state {
		return state{spec: spec{pin: "u"}, target: &transport.Target{UID: "u"}, cluster: struct{ cluster.Cluster }{}}
	}
	for name, tc := range map[string]struct {
		change func(*state)
		right  bool
		want   bool
	}{
		"a pinned, connected member":       {func(*state) {}, true, true},
		"nobody, without the right":        {func(*state) {}, false, false},
		"not one that is not pinned yet":   {func(s *state) { s.spec.pin = "" }, true, false},
		"not one pinned to another":        {func(s *state) { s.spec.pin = "v" }, true, false},
		"not one that could not be listed": {func(s *state) { s.cluster = nil }, true, false},
		"not one that has moved":           {func(s *state) { s.spec.moved = true }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newTestMember(t)
			m.options.MayWrite = func() bool { return tc.right }
			s := fine()
			tc.change(&s)
			if got := newProber(m).mayProbeWrites(s, c.Now()); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestProbesAreSentWhenDue(t *testing.T) {
	const interval = 5 * time.Second
	for name, tc := range map[string]struct {
		tracks      func(c *clocktest.Hand) health.Tracks
		asked       time.Duration // ago
		read, write bool
	}{
		"nothing is known": {func(*clocktest.Hand) health.Tracks { return untested() }, probeFast, true, true},
		"all was answered just now": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, time.Second, time.Second)
		}, time.Second, false, false},
		"all was answered an interval ago": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, interval, interval)
		}, interval, true, true},
		"a renewal spares the write, a read spares nothing": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, time.Second, time.Second)
		}, interval, true, false},
		"what failed is tried again": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, time.Second, time.Second).
				Observe(health.Observation{Kind: health.Read, At: c.Now(), Reason: reason.Unreachable}).
				Observe(health.Observation{Kind: health.Write, At: c.Now(), Reason: reason.Unreachable})
		}, time.Second, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newTestMember(t)
			p := newProber(m)
			p.noteSent(health.Read, interval, c.Now())
			p.noteSent(health.Write, interval, clocktest.Start)
			c.Advance(tc.asked)
			s := state{demand: demand{interval: interval}, tracks: tc.tracks(c)}
			if got := p.isDue(s, health.Read, c.Now()); got != tc.read {
				t.Errorf("read: got %v, want %v", got, tc.read)
			}
			if got := p.isDue(s, health.Write, c.Now()); got != tc.write {
				t.Errorf("write: got %v, want %v", got, tc.write)
			}
		})
	}
}

// untested are the tracks of a member that no policy selects.
func untested() health.Tracks { return health.Tracks{}.Under(defaultDemand.timeouts) }

// answered is a member whose last read and write were sent that long ago.
func answered(c *clocktest.Hand, read, write time.Duration) health.Tracks {
	tracks := untested()
	for kind, ago := range map[health.Kind]time.Duration{health.Read: read, health.Write: write} {
		at := c.Now()
		at.Boot -= ago
		tracks = tracks.Observe(health.Observation{Kind: kind, At: at, OK: true})
	}
	return tracks
}

// within returns what comes within a time in which nothing probes.
func within[T any](t *testing.T, from <-chan T) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(10 * time.Second):
		t.Fatal("nothing comes")
	}
	return got
}
