package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
)

// watched is a watch that began at now, in a fleet where all is well.
type watched struct {
	*watch
	s *snapshot
}

func newWatched() watched {
	return watched{&watch{page: report.Report{Began: now}, terms: map[string][]*ledTerm{}, early: map[string]bool{}},
		well(leading("shop", "east"))}
}

// shown is the Lease of shop in a cluster that names a leader, of a term that began and was renewed so many seconds
// after the watch. D is 15 s and ε 1 s.
func leaseShown(cluster, leader string, epoch int64, began, renewed time.Duration) sight {
	return sight{cluster, lease.Content{Namespace: "shop", Cluster: lease.Identity(cluster, "default"), Skew: time.Second,
		Term: lease.Term{Holder: lease.Identity(leader, "default"), Epoch: epoch, AcquireTime: now.Add(began * time.Second),
			RenewTime: now.Add(renewed * time.Second), Duration: 15 * time.Second}}}
}

// poll is a poll so many seconds after the beginning, in which members show these Leases.
func (w watched) poll(at time.Duration, seen ...sight) {
	w.add(w.s, &verification{seen: seen}, nil, at*time.Second)
}

func (w watched) verdict(t *testing.T, at time.Duration, want string, kept bool) *report.Report {
	t.Helper()
	r := w.report(at * time.Second)
	if got, is := r.Verdict(); is != kept || !strings.Contains(got, want) {
		t.Errorf("kept %t: %s\nwant %s", is, got, want)
	}
	return r
}

func TestWatchOfAFailover(t *testing.T) {
	w := newWatched()
	w.poll(0, leaseShown("east", "east", 7, -3600, -3), leaseShown("west", "east", 7, -3600, -3600))
	w.poll(3, leaseShown("east", "east", 7, -3600, 2))
	w.add(w.s, &verification{Unread: []disagreement{{Cluster: "east"}}}, nil, 4*time.Second)
	w.add(w.s, &verification{Unread: []disagreement{{Cluster: "east"}}}, nil, 5*time.Second)
	w.poll(20, leaseShown("west", "west", 8, 19, 19))
	r := w.verdict(t, 21, "nobody could act for 2.00 s at worst, in shop, 1.00 s above the floor.", true)
	if want := (report.Fault{Span: report.Span{From: 4 * time.Second, To: 5 * time.Second},
		Text: "east cannot be read from here"}); !slices.Equal(r.Faults, []report.Fault{want}) {
		t.Errorf("faults %v", r.Faults)
	}
}

func TestWatchOfALeaderThatBeginsBeforeTheOldPromiseHasPassed(t *testing.T) {
	w := newWatched()
	w.poll(0, leaseShown("east", "east", 7, -3600, 0))
	w.poll(10, leaseShown("west", "west", 8, 9, 9))
	w.verdict(t, 11, "shop: west is 7.00 s too early after east", false)
}

func TestWatchOfReadersThatReleaseATerm(t *testing.T) {
	w := newWatched()
	w.s.policies[0].Spec.Handover = v1alpha1.HandoverRegisteredReaders
	w.poll(0, leaseShown("east", "east", 7, -3600, 0))
	w.poll(10, leaseShown("east", "west", 8, 9, 8), leaseShown("west", "west", 8, 9, 9))
	r := w.verdict(t, 11, "nobody could act for 1.00 s at worst, in shop.", true)
	if end := r.Namespaces[0].Rows[0].Promised[0].To; end != 15*time.Second {
		t.Errorf("promised until %s", end)
	}
}

func TestWatchWhileTheHubIsGone(t *testing.T) {
	w := newWatched()
	w.poll(0, leaseShown("east", "east", 7, -3600, 0))
	for at := range time.Duration(5) {
		v := &verification{seen: []sight{leaseShown("east", "east", 7, -3600, 0)}}
		if at > 2 {
			v.Disagreements = []disagreement{{"shop", "east", "it leads by the record, and its Lease has run out"}}
		}
		w.add(w.s, v, errors.New("no route"), (14+at)*time.Second)
	}
	r := w.verdict(t, 20, "shop in east: it leads by the record, and its Lease has run out, for 1s; and 1 more.", false)
	if len(r.Faults) != 1 || r.Faults[0].Length() != 4*time.Second {
		t.Errorf("faults %v", r.Faults)
	}
}

// A last poll that is cut off, while a member hangs in it, has found nothing: not that the Leases before it ran out.
func TestAWatchEndsWithItsLastReadings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, page := newWatched(), filepath.Join(t.TempDir(), "page")
		began, polls, out := time.Now(), 0, strings.Builder{}
		p := newPlugin(genericiooptions.IOStreams{Out: &out})
		err := p.watch(t.Context(), time.Minute, page, func(ctx context.Context) (*snapshot, *verification, error) {
			if polls++; polls > 1 {
				<-ctx.Done()
			}
			l := leaseShown("east", "east", 7, 0, 0)
			l.AcquireTime, l.RenewTime = began, began
			return w.s, &verification{seen: []sight{l}, at: began.Add(time.Second)}, nil
		})
		if err != nil || polls != 2 || !strings.Contains(out.String(), "No two clusters could act at once") {
			t.Errorf("%v after %d polls: %s", err, polls, out.String())
		}
	})
}

// What one poll alone has seen may be a change that goes on, unless two clusters lead.
func TestWatchOfADisagreement(t *testing.T) {
	for name, test := range map[string]struct {
		problem string
		kept    bool
	}{
		"a record before its Lease": {"it leads by the record, and its Lease names nobody", true},
		"two leaders":               {moreThanOne, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWatched()
			v := &verification{seen: []sight{leaseShown("east", "east", 7, -60, 0)},
				Disagreements: []disagreement{{"shop", "east", test.problem}}}
			w.add(w.s, v, nil, 0)
			w.poll(1, leaseShown("east", "east", 7, -60, 1))
			w.verdict(t, 2, "", test.kept)
		})
	}
}

// A member may say what it likes of times.
func TestWatchOfAbsurdTimes(t *testing.T) {
	w := newWatched()
	w.poll(5, leaseShown("east", "east", 7, 1e9, 1e9), leaseShown("west", "west", 1, -1e9, -1e9))
	r := w.verdict(t, 10, "No two clusters", true)
	if got := r.Namespaces[0].Rows[0].Could[0].From; got != 5*time.Second {
		t.Errorf("it could act from %s", got)
	}
}
