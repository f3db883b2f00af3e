package controller

import (
	"math"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/tenure"
)

// A record that no hub can have written is as good as lost, and put right. What it says of an epoch that may have been
// given counts all the same: none may fall.
func TestARecordThatNoHubCanHaveWritten(t *testing.T) {
	now := lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	floor := lease.EpochFloor(now.Wall)
	for name, test := range map[string]struct {
		epoch  int64
		d      int32
		absurd bool
		want   int64
	}{
		"one as a hub writes it":             {floor, 15, false, floor},
		"one with the longest D of a policy": {floor, 3600, false, floor},
		"one with a longer D":                {floor, 3601, true, floor},
		"one with an epoch of later years":   {math.MaxInt64, 15, true, 0},
		"one with both":                      {math.MaxInt64, 3601, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Options{HubID: "this", Clock: fixedClock(now), Tenure: tenure.New(fixedClock(now), 6*time.Second)})
			o := &v1alpha1.NamespaceLeader{}
			o.Spec = v1alpha1.NamespaceLeaderSpec{State: v1alpha1.StateLeading, Leader: "east", Epoch: test.epoch, LeaseDurationSeconds: test.d}
			v := &view{key: shop, object: o, found: o.Spec.DeepCopy()}
			c.detectEdit(t.Context(), v, now)
			v.dropAbsurd(now.Wall)
			r := v.state.Record
			if v.absurd != test.absurd || v.edited != test.absurd || r.Lost() != test.absurd || (r.Leader == "") != test.absurd || r.Epoch != test.want {
				t.Errorf("absurd %v, edited %v, record %+v; want %v and epoch %d", v.absurd, v.edited, r, test.absurd, test.want)
			}
		})
	}
}
