package hubfailover

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// records reads all records.
func (p *pair) records(t *testing.T) map[string]*v1alpha1.NamespaceLeader {
	list := &v1alpha1.NamespaceLeaderList{}
	harness.Must(t, p.d.Hub.List(t.Context(), list, client.InNamespace(harness.FleetNamespace)))
	all := map[string]*v1alpha1.NamespaceLeader{}
	for i := range list.Items {
		all[list.Items[i].Name] = &list.Items[i]
	}
	if len(all) != len(leaders) {
		t.Fatalf("there are %d records, want %d", len(all), len(leaders))
	}
	return all
}

// TestLostRecordsAreFoundInTheLeases: a replica that takes over without records adopts the terms that the
// members show. Leaders, epochs and guestbooks notice nothing.
func TestLostRecordsAreFoundInTheLeases(t *testing.T) {
	writer := shared.settled(t)
	before := shared.records(t)
	v := look(t, shared)
	harness.Must(t, writer.Kill())
	lost := harness.Now().Boot
	shared.drop(writer)
	for _, r := range shared.records(t) {
		harness.Must(t, shared.d.Hub.Delete(t.Context(), r))
	}
	harness.Eventually(t, harness.Default.Duration+slack, "all terms are adopted", func(ctx context.Context) error {
		for namespace, was := range before {
			r, err := shared.d.Record(ctx, namespace)
			if err != nil {
				return err
			}
			if s := r.Spec; s.Reason != reason.Adopted {
				return fmt.Errorf("%s: leader %q, epoch %d, state %s, reason %s: %s", namespace, s.Leader, s.Epoch, s.State,
					s.Reason, r.Status.Message)
			} else if b := was.Spec; s.Leader != b.Leader || s.Epoch != b.Epoch || !s.AcquireTime.Equal(b.AcquireTime) ||
				s.LeaseDurationSeconds < b.LeaseDurationSeconds {
				return fmt.Errorf("%s: adopted is %s in epoch %d since %v for %d s, lost was %s in epoch %d since %v for %d s",
					namespace,
					s.Leader, s.Epoch, s.AcquireTime, s.LeaseDurationSeconds, b.Leader, b.Epoch, b.AcquireTime,
					b.LeaseDurationSeconds)
			}
		}
		return nil
	})
	t.Logf("all terms are adopted %.1f s after the kill", (harness.Now().Boot - lost).Seconds())
	var f figures
	f.takenOver(v, lost)
	t.Log(f.String())
}

// TestARecordOfABackupChangesNoLeader: a record that is created again from a backup, with another leader and a lower
// epoch, is restored while a replica leads by it. It costs nobody a term.
func TestARecordOfABackupChangesNoLeader(t *testing.T) {
	shared.settled(t)
	before := shared.records(t)[moved[0]]
	v := look(t, shared)
	older := &v1alpha1.NamespaceLeader{
		ObjectMeta: metav1.ObjectMeta{Namespace: before.Namespace, Name: before.Name, Labels: before.Labels},
		Spec:       before.Spec,
	}
	older.Spec.Leader, older.Spec.Epoch = "west", older.Spec.Epoch-3
	harness.Must(t, shared.d.Hub.Delete(t.Context(), before.DeepCopy()))
	harness.Must(t, shared.d.Hub.Create(t.Context(), older))
	at := harness.Now().Boot
	harness.Eventually(t, harness.Default.Duration+harness.Default.Skew+slack, "the record is restored",
		func(ctx context.Context) error {
			r, err := shared.d.Record(ctx, moved[0])
			if err != nil {
				return err
			}
			s, b := r.Spec, before.Spec
			return must.ErrorIf(s.Leader != b.Leader || s.Epoch != b.Epoch || s.State != b.State,
				"leader %q, epoch %d, state %s, reason %s, want leader %q, epoch %d, state %s",
				s.Leader, s.Epoch, s.State, s.Reason, b.Leader, b.Epoch, b.State)
		})
	t.Logf("restored within %.2f s", (harness.Now().Boot - at).Seconds())
	awaitRenewals(t, v, at)
	v.unbroken()
	v.undecided(moved[0])
}

// awaitRenewals returns when all leaders' Leases but that of the first namespace were renewed twice
// after the instant.
func awaitRenewals(t *testing.T, v *view, instant time.Duration) {
	harness.Eventually(t, harness.Default.Duration+slack, "everybody is renewed", func(context.Context) error {
		for key, seen := range v.Terms() {
			n := 0
			for _, s := range seen {
				if s.Stamp() > instant {
					n++
				}
			}
			if n < 2 && key.Namespace != moved[0] {
				return fmt.Errorf("%s: %d renewals", key, n)
			}
		}
		return nil
	})
}
