package election

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func TestNextEpochIsAboveAllThatAreKnownAndAboveTheFloor(t *testing.T) {
	floor := lease.EpochFloor(noon)
	tests := map[string]struct{ highest, want int64 }{
		"nothing known":             {0, floor},
		"lower ones known":          {5, floor},
		"the one below the floor":   {floor - 1, floor},
		"the floor itself":          {floor, floor + 1},
		"one above the floor":       {floor + 1, floor + 2},
		"one far above the floor":   {floor + 1000, floor + 1001},
		"nothing, not even a first": {-1, floor},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := nextEpoch(noon, test.highest); got != test.want {
				t.Errorf("nextEpoch(%d) = %d, want %d", test.highest, got, test.want)
			}
		})
	}
}

func TestTheNextEpochIsPlausible(t *testing.T) {
	for above := range int64(10) {
		if next := nextEpoch(noon, lease.EpochFloor(noon)+above); !lease.PlausibleEpoch(noon, next) {
			t.Errorf("nextEpoch gives %d, which PlausibleEpoch refuses", next)
		}
	}
}
