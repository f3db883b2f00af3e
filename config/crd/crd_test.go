package crd_test

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

func TestRecordIsCheckedWhenItIsWritten(t *testing.T) {
	const (
		falls      = "the epoch of a record never falls"
		incomplete = "a record that is Leading has leader, epoch, leaseDurationSeconds and leaseName"
		led        = "a record that is Vacant has no leader"
	)
	type record = v1alpha1.NamespaceLeader
	in := func(s v1alpha1.RecordState) func(*record) {
		return func(o *record) { o.Spec.State, o.Spec.Leader = s, "" }
	}
	tests := map[string]struct {
		change func(*record)
		want   string
	}{
		"as it is":        {func(*record) {}, admitted},
		"an epoch before": {func(o *record) { o.Spec.Epoch-- }, falls},
		"no epoch":        {func(o *record) { o.Spec.State, o.Spec.Epoch = v1alpha1.StateEnding, 0 }, falls},
		"no epoch that no Lease can have": {
			func(o *record) { o.Spec.Epoch = 1 << 31 }, "less than or equal to 2147483647",
		},
		"nobody leads":              {in(v1alpha1.StateVacant), admitted},
		"a leader that nobody is":   {func(o *record) { o.Spec.State = v1alpha1.StateVacant }, led},
		"a term that ends":          {func(o *record) { o.Spec.State = v1alpha1.StateEnding }, admitted},
		"retired":                   {in(v1alpha1.StateRetired), admitted},
		"Leading, without a leader": {func(o *record) { o.Spec.Leader = "" }, incomplete},
		"Leading, without a D":      {func(o *record) { o.Spec.LeaseDurationSeconds = 0 }, incomplete},
		"Leading, without a Lease":  {func(o *record) { o.Spec.LeaseName = "" }, incomplete},
		"the longest history": {func(o *record) {
			o.Status.History = slices.Repeat([]v1alpha1.Change{{Time: metav1.NowMicro()}}, v1alpha1.MaxHistory)
		}, admitted},
	}
	c := newClient(t)
	mustBe(t, c.Create(t.Context(), object(t, "NamespaceLeader", "")), "spec: Required value")
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			record := &record{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "test-"}, Spec: leading()}
			musttest.Do(t, c.Create(t.Context(), record))
			test.change(record)
			status := record.Status
			err := c.Update(t.Context(), record)
			if err == nil {
				record.Status = status
				err = c.Status().Update(t.Context(), record)
			}
			mustBe(t, err, test.want)
		})
	}
}

// leading is the record of a term of east.
func leading() v1alpha1.NamespaceLeaderSpec {
	since := metav1.NewMicroTime(time.Now().Add(-90 * time.Second))
	return v1alpha1.NamespaceLeaderSpec{
		Leader: "east", State: v1alpha1.StateLeading, Epoch: 7, Reason: reason.Elected, Next: "west", Since: &since,
		LeaseDurationSeconds: 15, LeaseName: v1alpha1.DefaultLeaseName, Policy: "shop",
	}
}
