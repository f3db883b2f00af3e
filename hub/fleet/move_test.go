package fleet

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
)

// The Clusters of a fleet move together: one that is neither paused nor gone to another hub tells that they do not.
func TestMoveOf(t *testing.T) {
	paused, moved, gone, well := spec{paused: true}, spec{moved: true}, spec{gone: true}, spec{}
	pausedAndGone := spec{paused: true, gone: true}
	for name, tc := range map[string]struct {
		specs []spec
		left  bool
		want  Move
	}{
		"all are paused":                        {[]spec{paused, paused}, false, Moving},
		"the first is being deleted":            {[]spec{paused, moved}, true, Moving},
		"the last is being deleted":             {[]spec{moved}, true, Moving},
		"one that was paused is gone":           {[]spec{paused, pausedAndGone}, false, Moving},
		"all are gone":                          {nil, true, MovedAway},
		"one is not paused":                     {[]spec{paused, well}, false, Stays},
		"one was deleted that was never paused": {[]spec{paused, gone}, false, Stays},
		"one came after the others had moved":   {[]spec{well}, true, Stays},
		"no Clusters: that decides nothing":     {nil, false, Stays},
	} {
		t.Run(name, func(t *testing.T) {
			if got := moveOf(tc.specs, tc.left); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// A Cluster that stays after all is deleted later like any other.
func TestClusterHasMovedIfItWasMovingWhenItWasLastSeen(t *testing.T) {
	type seen struct {
		uid   types.UID
		moves bool
	}
	for name, test := range map[string]struct {
		seen []seen
		want bool
	}{
		"it moves":                         {[]seen{{"1", false}, {"1", true}}, true},
		"it never moved":                   {[]seen{{"1", false}}, false},
		"its move was given up":            {[]seen{{"1", true}, {"1", false}}, false},
		"another one of its name has come": {[]seen{{"1", true}, {"2", false}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p, m := newTestProvider(clocktest.NewHand(clocktest.Start))
			for _, is := range test.seen {
				p.noteMove(m.key, is.uid, is.moves)
			}
			if left := p.hasLeft(m.key.Fleet); left != test.want || p.movedUID(m.key) == "1" != test.want {
				t.Errorf("it has left: %v, by its UID %q; want %v", left, p.movedUID(m.key), test.want)
			}
		})
	}
}
