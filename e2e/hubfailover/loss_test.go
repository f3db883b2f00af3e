package hubfailover

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// figures collects how long takeovers took.
type figures struct{ first, last, left []time.Duration }

func (f *figures) String() string {
	line := func(name string, ds []time.Duration) string {
		ds = slices.Sorted(slices.Values(ds))
		return fmt.Sprintf("%s median %.1f s, worst %.1f s", name, ds[len(ds)/2].Seconds(), ds[len(ds)-1].Seconds())
	}
	return fmt.Sprintf("%d takeovers: %s; %s; what was left of the term least renewed: %.1f s",
		len(f.first), line("first renewal", f.first), line("all renewed", f.last), slices.Min(f.left).Seconds())
}

// takenOver returns when every namespace was renewed by another replica than the one that was lost at the
// instant, and notes how long that took.
func (f *figures) takenOver(v *view, lost time.Duration) {
	var first map[string]time.Duration
	harness.Eventually(v.t, harness.Default.Duration+slack, "all namespaces are renewed by the other replica",
		func(context.Context) (err error) {
			first, err = v.stampedAfter(lost)
			return err
		})
	all := slices.Collect(maps.Values(first))
	f.first = append(f.first, slices.Min(all)-lost)
	f.last = append(f.last, slices.Max(all)-lost)
	f.left = append(f.left, v.unbroken())
	n := len(f.first) - 1
	v.t.Logf("takeover %d: first renewal after %.2f s, all after %.2f s, %.2f s were left",
		n+1, f.first[n].Seconds(), f.last[n].Seconds(), f.left[n].Seconds())
}

// TestAKilledWriterIsNotMissed: kill -9 of the replica that writes, at any time between two renewals, ends
// no term.
func TestAKilledWriterIsNotMissed(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	var f figures
	for range *kills {
		writer := stage.settled(t)
		v := look(t, stage)
		harness.After(t, harness.Now().Boot+time.Duration(random.Int64N(int64(harness.Default.Renew))))
		harness.Must(t, writer.Kill())
		lost := harness.Now().Boot
		stage.drop(writer)
		f.takenOver(v, lost)
		v.undecided()
		if t.Failed() {
			break
		}
	}
	t.Log(f.String())
}

// TestAWriterThatWakesWritesNothing: a replica is paused and resumed long after it has lost the election. No term
// ends meanwhile. It sends no write to any API server from then on.
func TestAWriterThatWakesWritesNothing(t *testing.T) {
	writer := stage.settled(t)
	v := look(t, stage)
	harness.Must(t, writer.Pause())
	lost := harness.Now().Boot
	asleepSince := time.Now()
	stage.drop(writer)
	var f figures
	f.takenOver(v, lost)
	v.undecided()
	t.Log(f.String())
	if len(writesOf(t, stage, writer, time.Time{})) == 0 {
		t.Fatalf("%s wrote nothing even while it was elected: writes are not told apart", writer.Name())
	}
	harness.After(t, lost+*asleep)
	if late := writesOf(t, stage, writer, asleepSince); len(late) > 0 {
		t.Fatalf("%s wrote while it slept: clocks or names are wrong: %v", writer.Name(), late)
	}

	woke := time.Now()
	harness.Must(t, writer.Resume())
	// It gives up and begins again as a standby; that is watched for two renewals of everybody.
	harness.After(t, harness.Now().Boot+2*harness.Default.Renew)
	for _, w := range writesOf(t, stage, writer, woke) {
		t.Errorf("written after waking: %s", w)
	}
	harness.Must(t, writer.Check())
	if begun := harness.Get(harness.BegunAgain(writer.Log()))(t); begun != 1 {
		t.Errorf("%s has begun again %d times, want once: it has lost the election", writer.Name(), begun)
	}
	if campaigns := strings.Count(read(t, writer.Log()), campaigning); campaigns != 2 {
		t.Errorf("%s was a candidate %d times, want twice: it has to stand by again", writer.Name(), campaigns)
	}
	harness.Must(t, writer.Kill())
	v.unbroken()
	v.undecided()
}

// TestAWriterThatLeavesInOrderIsFollowedAtOnce: SIGTERM releases the election, and the other replica
// takes it at once.
func TestAWriterThatLeavesInOrderIsFollowedAtOnce(t *testing.T) {
	writer := stage.settled(t)
	v := look(t, stage)
	renewed := stage.renewedNow(t)
	asked := harness.Now().Boot
	harness.Must(t, writer.Stop())
	ended, lost := time.Now(), harness.Now().Boot
	stage.drop(writer)
	var next *replica
	harness.Eventually(t, patience, "the other replica is elected", func(ctx context.Context) (err error) {
		next, err = stage.writer(ctx)
		return err
	})
	l, _, err := stage.d.Election(t.Context(), harness.HubNamespace)
	harness.Must(t, err)
	elected := harness.BootOf(l.Spec.AcquireTime.Time, harness.Now())
	t.Logf("%s ended after %.2f s; %s was elected %.2f s later", writer.Name(), (lost - asked).Seconds(), next.Name(),
		(elected - lost).Seconds())
	// client-go's elector looks every 1 to 2.2 seconds, and one that waits does so for h from the last renewal that it
	// saw.
	if waited := l.Spec.AcquireTime.Sub(renewed); waited >= h {
		t.Errorf("elected %v after the last renewal: the other replica waited for the one that had left", waited)
	}
	var f figures
	f.takenOver(v, lost)
	v.undecided()
	if len(writesOf(t, stage, writer, time.Time{})) == 0 {
		t.Errorf("%s wrote nothing even while it was elected: writes are not told apart", writer.Name())
	}
	if late := writesOf(t, stage, writer, ended); len(late) > 0 {
		t.Errorf("it wrote after it had ended: %v", late)
	}
	t.Log(f.String())
}

// loss is a way to lose records.
type loss struct {
	name string
	lose func(context.Context, client.Client, *v1alpha1.NamespaceLeader) error
}

func deleted(ctx context.Context, c client.Client, r *v1alpha1.NamespaceLeader) error {
	return c.Delete(ctx, r)
}

func emptied(ctx context.Context, c client.Client, r *v1alpha1.NamespaceLeader) error {
	r.Spec = v1alpha1.NamespaceLeaderSpec{}
	return c.Update(ctx, r)
}

// records reads all records.
func (p *pair) records(t *testing.T) map[string]*v1alpha1.NamespaceLeader {
	t.Helper()
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
	losses := []loss{{"deleted", deleted}, {"emptied", emptied}}
	if !*every {
		losses = losses[:1]
	}
	for _, l := range losses {
		t.Run(l.name, func(t *testing.T) {
			writer := stage.settled(t)
			before := stage.records(t)
			v := look(t, stage)
			harness.Must(t, writer.Kill())
			lost := harness.Now().Boot
			stage.drop(writer)
			for _, r := range stage.records(t) {
				harness.Must(t, l.lose(t.Context(), stage.d.Hub, r))
			}
			harness.Eventually(t, harness.Default.Duration+slack, "all terms are adopted", func(ctx context.Context) error {
				for namespace, was := range before {
					r := must.Get(stage.d.Record(ctx, namespace))
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
		})
	}
}

// edit is what somebody with the right to edit records does to that of the first namespace.
type edit struct {
	name string
	edit func(context.Context, client.Client, *v1alpha1.NamespaceLeader) error
	// costly: a replica that finds the record so cannot tell it from one that its predecessor left, and the
	// namespace goes to whom the record names, in a new term.
	costly bool
}

func edited(change func(*v1alpha1.NamespaceLeaderSpec)) func(context.Context, client.Client,
	*v1alpha1.NamespaceLeader) error {
	return func(ctx context.Context, c client.Client, r *v1alpha1.NamespaceLeader) error {
		change(&r.Spec)
		return c.Update(ctx, r)
	}
}

// edits begins with those that are for every run.
var edits = []edit{
	{name: "another leader and a lower epoch", edit: edited(func(s *v1alpha1.NamespaceLeaderSpec) {
		s.Leader, s.Epoch = "west", s.Epoch-3
	})},
	{name: "no record", edit: deleted},
	{name: "another leader", edit: edited(func(s *v1alpha1.NamespaceLeaderSpec) { s.Leader = "west" })},
	{name: "a lower epoch", edit: edited(func(s *v1alpha1.NamespaceLeaderSpec) { s.Epoch -= 3 })},
	{name: "a higher epoch", costly: true, edit: edited(func(s *v1alpha1.NamespaceLeaderSpec) { s.Epoch += 3 })},
	{name: "nobody leads", edit: edited(func(s *v1alpha1.NamespaceLeaderSpec) {
		s.State, s.Leader = v1alpha1.StateVacant, ""
	})},
	{name: "no status", edit: emptied},
}

// TestAnEditedRecordChangesNoLeader: what somebody writes into a record while a replica leads by it is put right. It
// costs nobody a term.
func TestAnEditedRecordChangesNoLeader(t *testing.T) {
	run := edits[:2]
	if *every {
		run = edits
	}
	for _, e := range run {
		t.Run(e.name, func(t *testing.T) {
			stage.settled(t)
			l, _, err := stage.d.Election(t.Context(), harness.HubNamespace)
			harness.Must(t, err)
			// Until then the hub may take the edit for a record of its predecessor, which it accepts. A candidate reads
			// the clock for its acquireTime before it waits for the end of the last leadership.
			harness.After(t, harness.BootOf(l.Spec.AcquireTime.Time, harness.Now())+2*h)
			before := stage.records(t)[moved[0]]
			v := look(t, stage)
			harness.Must(t, e.edit(t.Context(), stage.d.Hub, before.DeepCopy()))
			at := harness.Now().Boot
			harness.Eventually(t, harness.Default.Duration+harness.Default.Skew+slack, "the record is put right",
				func(ctx context.Context) error {
					r := must.Get(stage.d.Record(ctx, moved[0]))
					if s, b := r.Spec, before.Spec; s.Leader != b.Leader || s.Epoch != b.Epoch || s.State != b.State {
						return fmt.Errorf("leader %q, epoch %d, state %s, reason %s, want leader %q, epoch %d, state %s",
							s.Leader, s.Epoch, s.State, s.Reason, b.Leader, b.Epoch, b.State)
					}
					return nil
				})
			t.Logf("put right within %.2f s", (harness.Now().Boot - at).Seconds())
			awaitRenewals(t, v, at)
			v.unbroken()
			v.undecided(moved[0])
		})
	}
}

// TestARecordEditedBetweenTwoTenuresLetsNobodyActTwice: the replica that takes over finds a record that
// somebody has edited. The Leases tell it better, but for what is costly, which costs the namespace a term.
func TestARecordEditedBetweenTwoTenuresLetsNobodyActTwice(t *testing.T) {
	if !*every {
		return
	}
	for _, e := range edits {
		t.Run(e.name, func(t *testing.T) {
			writer := stage.settled(t)
			before := stage.records(t)[moved[0]]
			v := look(t, stage)
			harness.Must(t, writer.Kill())
			lost := harness.Now().Boot
			stage.drop(writer)
			harness.Must(t, e.edit(t.Context(), stage.d.Hub, before.DeepCopy()))
			awaitRenewals(t, v, lost+h)
			harness.Eventually(t, 2*harness.Default.Duration+slack, "somebody leads", func(ctx context.Context) error {
				if r := must.Get(stage.d.Record(ctx, moved[0])); r.Spec.State != v1alpha1.StateLeading {
					return errors.New(r.Status.Message)
				}
				return nil
			})
			v.unbroken(moved[0])
			r := harness.Get(stage.d.Record(t.Context(), moved[0]))(t)
			t.Logf("%s led in epoch %d; now %s leads in epoch %d (%s), %.1f s after the kill",
				before.Spec.Leader, before.Spec.Epoch, r.Spec.Leader, r.Spec.Epoch, r.Spec.Reason,
				(harness.Now().Boot - lost).Seconds())
			switch same := r.Spec.Leader == before.Spec.Leader && r.Spec.Epoch == before.Spec.Epoch; {
			case !same && !e.costly:
				t.Error("the term has changed, although its Lease is there")
			case !same && r.Spec.Epoch <= before.Spec.Epoch:
				t.Errorf("the new term has epoch %d, after %d", r.Spec.Epoch, before.Spec.Epoch)
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
