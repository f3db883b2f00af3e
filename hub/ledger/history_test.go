package ledger

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/election"
)

func TestHistoryHasTheNewestChanges(t *testing.T) {
	at := metav1.NewMicroTime(start.Wall)
	for name, test := range map[string]struct {
		change func(*election.Record)
		want   bool
	}{
		"no change":      {func(*election.Record) {}, false},
		"another reason": {func(r *election.Record) { r.Reason = reason.Resumed }, false},
		"another leader": {func(r *election.Record) { r.Leader = "west" }, true},
		"another state":  {func(r *election.Record) { r.State = election.Ending }, true},
		"another epoch":  {func(r *election.Record) { r.Epoch = 21 }, true},
	} {
		now := eastLeads(20)
		now.Since = at.Time
		test.change(&now)
		got := History(now, History(eastLeads(20), nil))
		want := v1alpha1.Change{
			Time: at, Leader: now.Leader, Epoch: now.Epoch, State: v1alpha1.RecordState(now.State), Reason: now.Reason,
		}
		if (len(got) == 2) != test.want || test.want && got[0] != want {
			t.Errorf("%s: %+v, want the newest change first: %v", name, got, test.want)
		}
	}
	var past []v1alpha1.Change
	for epoch := int64(1); epoch <= v1alpha1.MaxHistory+3; epoch++ {
		past = History(eastLeads(epoch), past)
		if n := len(past); n != int(min(epoch, v1alpha1.MaxHistory)) || past[0].Epoch != epoch {
			t.Fatalf("after %d changes %d are kept, the newest of epoch %d", epoch, n, past[0].Epoch)
		}
	}
}
