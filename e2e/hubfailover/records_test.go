package hubfailover

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// change is what the API server lets an administrator do to a record. older is what a backup has of it.
type change struct {
	name string
	do   func(ctx context.Context, c client.Client, is, older *v1alpha1.NamespaceLeader) error
}

func deleted(ctx context.Context, c client.Client, is, _ *v1alpha1.NamespaceLeader) error {
	return c.Delete(ctx, is)
}

func createdAgain(ctx context.Context, c client.Client, is, older *v1alpha1.NamespaceLeader) error {
	if err := c.Delete(ctx, is); err != nil {
		return err
	}
	return c.Create(ctx, &v1alpha1.NamespaceLeader{
		ObjectMeta: metav1.ObjectMeta{Namespace: older.Namespace, Name: older.Name, Labels: older.Labels}, Spec: older.Spec,
	})
}

func labelled(ctx context.Context, c client.Client, is, _ *v1alpha1.NamespaceLeader) error {
	is.Labels["team"] = "shop"
	return c.Update(ctx, is)
}

var changes = []change{{"created again, with another leader and a lower epoch", createdAgain}, {"deleted", deleted},
	{"labelled", labelled}}

// older is a record of a term of west before the present one.
func older(is *v1alpha1.NamespaceLeader) *v1alpha1.NamespaceLeader {
	o := is.DeepCopy()
	o.Spec.Leader, o.Spec.Epoch = "west", o.Spec.Epoch-3
	return o
}

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
	writer := stage.settled(t)
	before := stage.records(t)
	v := look(t, stage)
	harness.Must(t, writer.Kill())
	lost := harness.Now().Boot
	stage.drop(writer)
	for _, r := range stage.records(t) {
		harness.Must(t, stage.d.Hub.Delete(t.Context(), r))
	}
	harness.Eventually(t, harness.Default.Duration+slack, "all terms are adopted", func(ctx context.Context) error {
		for namespace, was := range before {
			r, err := stage.d.Record(ctx, namespace)
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

// TestARecordOfABackupChangesNoLeader: a record that is deleted or created again, while a replica leads by it, is
// restored. It costs nobody a term.
func TestARecordOfABackupChangesNoLeader(t *testing.T) {
	for _, e := range changes {
		t.Run(e.name, func(t *testing.T) {
			stage.settled(t)
			before := stage.records(t)[moved[0]]
			v := look(t, stage)
			harness.Must(t, e.do(t.Context(), stage.d.Hub, before.DeepCopy(), older(before)))
			at := harness.Now().Boot
			harness.Eventually(t, harness.Default.Duration+harness.Default.Skew+slack, "the record is restored",
				func(ctx context.Context) error {
					r, err := stage.d.Record(ctx, moved[0])
					if err != nil {
						return err
					}
					if s, b := r.Spec, before.Spec; s.Leader != b.Leader || s.Epoch != b.Epoch || s.State != b.State {
						return fmt.Errorf("leader %q, epoch %d, state %s, reason %s, want leader %q, epoch %d, state %s",
							s.Leader, s.Epoch, s.State, s.Reason, b.Leader, b.Epoch, b.State)
					}
					return nil
				})
			t.Logf("restored within %.2f s", (harness.Now().Boot - at).Seconds())
			awaitRenewals(t, v, at)
			v.unbroken()
			v.undecided(moved[0])
		})
	}
}

// TestARecordOfABackupLetsNobodyActTwice: the replica that takes over finds a record of a backup, or none. The Leases
// tell it better.
func TestARecordOfABackupLetsNobodyActTwice(t *testing.T) {
	if !*every {
		return
	}
	for _, e := range changes {
		t.Run(e.name, func(t *testing.T) {
			writer := stage.settled(t)
			before := stage.records(t)[moved[0]]
			v := look(t, stage)
			harness.Must(t, writer.Kill())
			lost := harness.Now().Boot
			stage.drop(writer)
			harness.Must(t, e.do(t.Context(), stage.d.Hub, before.DeepCopy(), older(before)))
			awaitRenewals(t, v, lost+h)
			harness.Eventually(t, 2*harness.Default.Duration+slack, "somebody leads", func(ctx context.Context) error {
				r, err := stage.d.Record(ctx, moved[0])
				if err == nil && r.Spec.State != v1alpha1.StateLeading {
					err = errors.New(r.Status.Message)
				}
				return err
			})
			v.unbroken(moved[0])
			r := harness.Get(stage.d.Record(t.Context(), moved[0]))(t)
			t.Logf("%s led in epoch %d; now %s leads in epoch %d (%s), %.1f s after the kill",
				before.Spec.Leader, before.Spec.Epoch, r.Spec.Leader, r.Spec.Epoch, r.Spec.Reason,
				(harness.Now().Boot - lost).Seconds())
			if r.Spec.Leader != before.Spec.Leader || r.Spec.Epoch != before.Spec.Epoch {
				t.Error("the term has changed, although its Lease is there")
			}
			stage.restore(t)
		})
	}
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

// restore brings the first namespace back to east: a raised priority is an edit that moves it.
func (p *pair) restore(t *testing.T) {
	p.raised++
	harness.Must(t, p.d.SetPriority(t.Context(), "east", 100+p.raised))
	p.led(t, patience)
}
