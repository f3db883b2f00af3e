package fleet

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/skew"
)

// One cluster behind two names is one witness, and what has not answered is none.
func TestOffsetsAreOfEachClusterOnce(t *testing.T) {
	clock := clocktest.NewHand(clocktest.Start)
	p, east := newTestProvider(clock)
	add := func(name, uid string, answered bool) *member {
		m := east
		if name != east.key.Name {
			m = newMember(p.shared, Key{Fleet: east.key.Fleet, Name: name})
			p.add(m)
		}
		m.state.uid, m.state.ownsUID = uid, uid != "" && name != "twin"
		if now := clock.Now(); answered {
			m.skew.Observe(skew.Sample{
				Sent: now.Boot, Answered: now.Boot, Date: now.Wall.Add(time.Hour).Truncate(time.Second),
			}, now)
		}
		return m
	}
	add(east.key.Name, "uid-1", true)
	add("west", "uid-2", true)
	add("twin", "uid-2", true)
	add("silent", "uid-3", false)
	got := p.Offsets()
	_, first := got[east.key]
	_, second := got[Key{Fleet: east.key.Fleet, Name: "west"}]
	if len(got) != 2 || !first || !second {
		t.Fatalf("%v", got)
	}
	for key, i := range got {
		if i.Lo > time.Hour || i.Hi < time.Hour {
			t.Errorf("%v: %v", key, i)
		}
	}
	clock.Step(-24 * time.Hour) // the hub's own clock is set back
	if i := p.Offsets()[east.key]; i.Lo < 24*time.Hour {
		t.Errorf("a step of the hub's clock is not seen: %v", i)
	}
}
