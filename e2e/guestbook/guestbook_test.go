package guestbook

import (
	"context"
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

const actEvery = 20 * time.Millisecond

// apart is how far two processes' readings of one clock can lie apart; see api/lease/clock.
const apart = 100 * time.Microsecond

// What was skipped in the follower is done on promotion, every object of it; what is
// done ends with the term, although the hub is silent and nothing notifies the process.
func TestGuestbookActsInItsTermAndOnlyThen(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	names := books(t, ns, 20)
	write(t, ns, them, 1, time.Minute)
	p := start(t, user(t, ns, ns), "east", ns, "-act-every="+actEvery.String())
	await(t, "the process follows", p.logged("This cluster does not lead"))

	late := &webappv1.Guestbook{Spec: webappv1.GuestbookSpec{Book: "written while nobody listened"}}
	late.Namespace, late.Name = ns, "late"
	harness.Must(t, admin.Create(t.Context(), late))
	harness.Must(t, harness.Stay(t.Context(), time.Second, "a follower does nothing", func(context.Context) error {
		if n := len(p.acts()); n > 0 {
			return fmt.Errorf("%d acts", n)
		}
		return nil
	}))

	began := clocks.Now().Boot
	deadline := write(t, ns, us, 2, 10*time.Second)
	await(t, "everything is done on promotion", p.acted(append(names, "late"), 2))
	await(t, "the term is over", func(context.Context) error {
		if left := deadline + time.Second - clocks.Now().Boot; left > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	all := p.acts()
	last := all[len(all)-1]
	for _, a := range all {
		// An act that was begun was allowed between its beginning and its end.
		if a.Begin < began-apart || a.Begin >= deadline+apart || a.Epoch != 2 {
			t.Errorf("act %+v lies outside the term of epoch 2, from %v to %v", a, began, deadline)
		}
		last.Begin = max(last.Begin, a.Begin)
	}
	if gap := deadline - last.Begin; gap > 3*time.Second {
		t.Errorf("the last act began %v before the deadline, although there is one every %v", gap, actEvery)
	}
	t.Logf("%d acts; the first began %v after the renewTime, the last %v before the deadline",
		len(all), all[0].Begin-began, deadline-last.Begin)

	write(t, ns, us, 3, time.Minute)
	await(t, "everything is done again in the next term", p.acted(append(names, "late"), 3))
	await(t, "and noted in the status", func(ctx context.Context) error {
		var list webappv1.GuestbookList
		must.Do(admin.List(ctx, &list, client.InNamespace(ns)))
		for _, g := range list.Items {
			if g.Status.Epoch != 3 || g.Status.Book != g.Spec.Book {
				return fmt.Errorf("status of %s is %+v", g.Name, g.Status)
			}
		}
		return nil
	})
}

// Of two replicas in the leading cluster the local election chooses one. When it
// goes, the other repeats everything in the same term. None acts in a follower.
func TestOneOfTwoReplicasActs(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	names := books(t, ns, 10)
	write(t, ns, them, 1, time.Hour)
	args := []string{"-act-every=" + actEvery.String(), "-leader-elect", "-leader-election-namespace=" + ns}
	cfg := user(t, ns, ns)
	first := start(t, cfg, "replica-1", ns, args...)
	await(t, "the first wins the local election", first.logged("Starting Controller"))
	second := start(t, cfg, "replica-2", ns, args...)
	await(t, "the second is warm", second.logged("This cluster does not lead"))

	write(t, ns, us, 2, time.Hour)
	await(t, "the elected replica does everything", first.acted(names, 2))
	if n := len(second.acts()); n > 0 {
		t.Errorf("the replica that was not elected did %d acts", n)
	}
	first.terminate() // and gives up the local election
	await(t, "the other one does everything anew", second.acted(names, 2))

	write(t, ns, them, 3, time.Hour)
	await(t, "and stops when its cluster does", second.logged("west.fleet leads in epoch 3"))
	told := clocks.Now().Boot + apart
	if err := harness.Stay(t.Context(), time.Second, "it has stopped", func(context.Context) error {
		for _, a := range second.acts() {
			if a.Begin > told && a.Result == "ok" { // what was under way may end, and what is refused begins nothing
				return fmt.Errorf("act %+v was begun after %v", a, told)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	for _, v := range harness.Judge(append(first.acts(), second.acts()...)) {
		for _, b := range v.Breaches {
			if b.Rule == harness.TwoAtOnce {
				t.Errorf("two replicas at once: %v", b)
			}
		}
	}
}
