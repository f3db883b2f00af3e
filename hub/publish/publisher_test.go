package publish

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/assign"
)

func TestPublisher(t *testing.T) {
	playPublisher(t, `
a leader's Lease: renewed every r
	start; called all; lead a; after 0s; leads a; mark; after 60s; leads a; sent update 12..13
the last request was not answered: read before a renewal
	start; follow b; lead a; after 20s; link resets update; mark; await update; mark; lead b 21; after 0s; first get b
a dead link: nothing is promised
	start; lead a; after 20s; link swallows; after 1ms; remember a; after 10s; same-promise a
`)
}

// Requests that are in flight when the Publisher ends, end with it, and show nothing about the member.
func TestStop(t *testing.T) {
	const stopped = "; stop; failures; after 1ms; mark; lead late; after 10s; sent any 0\n"
	playPublisher(t, `
while Leases are written
	start; link swallows; lead-many 40; after 1s`+stopped+`
while Leases are read for the first time
	link swallows; start; after 500ms`+stopped+`
between two attempts to read them
	link resets; start; mark; after 500ms`+stopped+`
without a request in flight
	start`+stopped)
}

// What is reported for the member's health, and what the controller is called for.
func TestReports(t *testing.T) {
	playPublisher(t, `
reads and writes
	read-all; list-readers; follow a; work a; reports read read read write
an answer while the hub stops
	follow a; lease a; link stops; work a; reports read
a watch shows a Lease: called the first time
	lease a; show a; called a; show a; called
a status that changes before a request: not called before the answer
	follow a; work a; edit a epoch=27; show a; mark; link then delete called; work a; called a
a reader's registration is deleted: called
	register r; led; revoke; mark; reader-gone r; called ns
a reader's release is found by the next list: called
	register r; led; revoke; mark; register r released=20; after 200ms; called ns
a watch shows a Lease with the hub's label alone: not called
	start; mark; lease a unsealed hub= cluster=; show a; after 1s; called; found a no
a watch shows a Lease with the mark of a hub: called
	start; mark; lease a unsealed hub=hub cluster=; show a; after 1s; called a; found a unsealed
a watch shows a relinquished Lease whose seal cannot be checked: called
	start; mark; lease a unsealed hub= cluster=east; show a; after 1s; called a a; found a unsealed
`)
}

// What a Publisher reads at the start of a tenure, and what it returns of that.
func TestInitial(t *testing.T) {
	playPublisher(t, `
sealed Leases, and others with the hub's label
	lease sealed east 20 at 0; lease forged unsealed; initial unread; start; initial sealed;
	found forged unsealed
another hub's Lease: reported before any assignment, until it is deleted
	lease a by=another unsealed; start; status a Problem=OtherHub; hold a; after 1m; found a unsealed; sent get 0;
	deleted a; found a no; status a none
the member takes 14 s: the time doubles until that suffices
	link delays list 14s; start; after 1m; initial; timeouts 1 2 4 8 15
the reading is that from before the request
	after 100s; link delays list 500ms; read-all; initial-at 1m40s
no answer is a failure
	link resets; read-all; reports read-failed; initial unread
an answer while the hub stops: counts
	link stops; read-all; initial
`)
}

// The order is fixed, so that a seed of the simulation replays.
func TestSyncersOfASilentMemberGoOnInTheOrderInWhichTheyCame(t *testing.T) {
	w := newPublisherTest(t)
	w.silence.admit(keyOf("prober"), w.Clock.Now(), func(bool) bool { return true })
	want := []string{"d", "b", "a", "c", "f", "e"}
	for _, name := range append(want, want...) {
		w.silence.admit(keyOf(name), w.Clock.Now(), func(bool) bool {
			t.Errorf("%s decides beside the prober", name)
			return false
		})
	}
	w.silence.noteOutcome(false, w.Clock.Now(), nil)
	for _, name := range want {
		if key, _ := w.Queue.Get(); key != keyOf(name) {
			t.Errorf("%s goes on in the place of %s", key, name)
		}
	}
}

func TestWhatIsFoundInTheMember(t *testing.T) {
	playPublisher(t, `
not read yet
	follow a; remaining ours; found a no; written a
the own Lease
	lease a; show a; remaining ours; found a sealed; written a
an edited Lease
	lease a unsealed; show a; remaining ours; found a unsealed; written
another hub's
	lease a unsealed by=another; show a; remaining others; found a unsealed; written
another client's
	lease a stripped; show a; remaining; found a no; written
removed
	start; follow a; after 0s; absent a; after 0s; remaining; found a no; written
`)
}

func TestForget(t *testing.T) {
	playPublisher(t, `
a Lease found at the start: dropped from what was read at the start, and its syncer stays
	lease a; lease b; start; initial a b; forget a; initial b; syncers 2
no Lease, held: has no syncer
	start; hold a; syncers 0
a leader, held: renewed no more
	lease a; start; lead a; after 20s; hold a; mark; after 20s; sent update 0; found a sealed
no Lease, forgotten while its turn comes, and another Lease probes a silent member: has no syncer
	read-all; follow a; absent b; work a; work b; link resets; gone a; work a; work a; hold b; forget b;
	after 1s; mark; work b; sent get 0; syncers 1; called
no Lease, held after it was removed: forgotten
	start; follow a; after 0s; absent a; after 0s; hold a; after 0s; forget a; syncers 0
`)
	own := keyOf("a")
	for name, keep := range map[string]func(*publisherTest, *leaseSyncer){
		"it is the prober":           func(w *publisherTest, _ *leaseSyncer) { w.silence.prober = &own },
		"it is parked":               func(w *publisherTest, _ *leaseSyncer) { w.silence.isParked.Insert(own) },
		"it has a Lease to write":    func(_ *publisherTest, l *leaseSyncer) { l.want.Role = assign.Follow },
		"its Lease has to be read":   func(_ *publisherTest, l *leaseSyncer) { l.known.read = false },
		"it is of another namespace": func(_ *publisherTest, l *leaseSyncer) { l.key.Namespace = "c" },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(w *publisherTest) {
				l := w.syncer(own)
				l.want.Role, l.known.read = assign.Absent, true
				keep(w, l)
				w.syncers = syncers{}
				w.syncers.add(l)
				if w.Forget("a"); len(w.syncers) != 1 {
					w.t.Error("it does not stay")
				}
			})
		})
	}
}

// Rule 7: a record that the API server stores late, after the hub has deleted it, may have an older epoch. Its term has
// run out, so its leader gets a new one.
func TestARecordThatComesLateMayBeOlder(t *testing.T) {
	inBubble(t, func(w *publisherTest) {
		key := keyOf("a")
		l := w.syncer(key)
		l.want = assign.Assignment{Role: assign.Absent, Term: lease.Term{Epoch: 21}}
		w.Forget("a")
		w.Assign(key, assign.Assignment{Role: assign.Lead, Term: lease.Term{Epoch: 12, Duration: 6 * second}},
			ackTimings)
		w.Work(w.ctx, key)
		if !l.status.Lost {
			w.t.Errorf("the term is not lost: %+v", l.status)
		}
	})
}

// Rule 11: a hub that its Clusters leave removes its mark from all Leases.
func TestPublisherRelinquishes(t *testing.T) {
	playPublisher(t, `
no Lease: done at once, and none is created later
	start; relinquished yes; lead a; after 0s; missing a
one Lease of several has a mark: done once it is removed
	lease b by=; lease c by=; lease d by=; lease e by=; lease a; start; relinquished no; after 0s; relinquished yes;
	exists a; hub a none
the move is given up: the mark is back at once, and renewals go on
	start; lead a; after 20s; relinquished no; after 0s; relinquished yes; hub a none; resume; after 0s; hub a hub;
	after 20s; leads a; lead b; after 0s; leads b
the move is given up, and another hub has taken the Lease: left alone
	start; lead a; after 20s; relinquished no; after 0s; lease a by=another; show a; after 0s; resume; after 0s;
	hub a another
a Lease has to be read again: not done
	lease a by=; start; link swallows; gone a; relinquished no
a request without a policy: bounded by 15 s
	lease a; read-all; relinquished no; gone a; link swallows; mark; work a; took 15s
`)
}

// Rule 1: a renewal without a read before it is sent only to a member that has answered within 200 ms.
func TestRenewalWithoutRead(t *testing.T) {
	playPublisher(t, `
the member has never answered
	lease a; show a; lead a; mark; work a; first get a
answered 200 ms ago: sent
	lead a; work a; after 6s; read-all; after 200ms; mark; work a; first update a
answered 1 ns before that: read
	lead a; work a; after 6s; read-all; after 200000001ns; mark; work a; first get a
`)
}

// Rule 5: each Lease counts with the ε and the stop time that it was sent under. By both clocks, a renewal that is
// sent again promises no more than before.
func TestRenewalThatIsSentAgainCountsAsItIsSent(t *testing.T) {
	inBubble(t, func(w *publisherTest) {
		for _, step := range []string{
			"lead a", "work a", "after 6s", "link refuses update", "work a", "remember a", "after 2s",
		} {
			w.play(step)
		}
		timings := ackTimings
		timings.Stop = 30 * second
		w.assignLead("a", 20, timings)
		w.nextStep(keyOf("a"))
		want := w.promise
		want.Skew, want.Stop = timings.Skew, timings.Stop
		if got := w.promised("a"); got != want || want.Until.Sub(w.began) != 21*second {
			t.Errorf("promised %+v, want %+v", got, want)
		}
	})
}

// A silent member gets one request at a time. When it answers again, all Leases are renewed at once.
func TestSilentMember(t *testing.T) {
	const leads = "start; lead-many 60; after 20s; "
	playPublisher(t, `
no request arrives
	`+leads+`link swallows; mark; after 8s; sent any 1..20; link up; mark; after 3101ms; renewed 60
no request arrives, and the prober has nothing to send any more
	`+leads+`link swallows; mark; after 8s; sent any 1..20; stop-prober; link up; mark; after 3101ms; renewed 59
connections are refused, twice
	`+leads+`link resets; mark; after 8s; sent any 1..106; link up; mark; after 101ms; renewed 60;
	link resets; mark; after 8s; sent any 1..106; link up; mark; after 101ms; renewed 60
the prober of an earlier silence is gone
	start; lead a; after 20s; link swallows; after 8s; link up; after 4s; absent a; after 1s; forget a; syncers 0; lead b;
	after 20s; link swallows; after 8s; link up; after 4s; leads b
`)
}

// Every renewTime is in the promises before it is sent.
func TestPromiseIsRecordedBeforeItIsSent(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, func(w *publisherTest) {
			r, fates := newDice(seed), newDice(seed+1000)
			fate := func(ctx context.Context, req request) error {
				switch fates.roll(20) {
				case 0:
					return swallow(ctx, req)
				case 1:
					return errors.New("connection reset")
				}
				return nil
			}
			w.member.becomes(func(ctx context.Context, req request) error {
				if c := req.lease; c.Holder == "east.fleet" {
					p := w.promised(req.key.Namespace)
					if c.Deadline().After(p.Until) || p.Epoch != c.Epoch || c.RenewTime.Sub(w.began)+c.Duration > p.BootUntil {
						w.t.Errorf("seed %d: %s is sent %+v, but %+v was promised", seed, req.key, c, p)
					}
				}
				return fate(ctx, req)
			}, fate)
			w.play("start")
			w.play("lead-many 8")
			for range 30 {
				after(time.Duration(r.roll(3000)) * time.Millisecond)
				if ns := namespaces(8)[r.roll(8)]; r.roll(3) == 0 {
					w.assignLead(ns, 20+int64(time.Since(w.began)/second), testTimings)
				}
			}
		})
	}
}

// After StopRenewing, the member's promises are final, whatever is in flight.
func TestStopRenewingIsFinal(t *testing.T) {
	for seed := range uint64(50) {
		inBubble(t, func(w *publisherTest) {
			r, delays := newDice(seed), newDice(seed+1000)
			delay := delayed(func() time.Duration { return time.Duration(delays.roll(400)) * time.Millisecond })
			w.member.becomes(delay, delay)
			for _, step := range []string{"start", "lead a", "lead b"} {
				w.play(step)
			}
			after(time.Duration(r.roll(12000)) * time.Millisecond)
			w.StopRenewing("a")
			w.play("remember a")
			after(20 * second)
			w.play("same-promise a")
			if l := w.there("a"); l.Spec.RenewTime != nil && l.Spec.RenewTime.Add(15*second).After(w.promise.Until) {
				t.Errorf("seed %d: the Lease was renewed at %v, and promised until %v", seed, l.Spec.RenewTime, w.promise.Until)
			}
			w.leads("b")
		})
	}
}
