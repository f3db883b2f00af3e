package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/guestbook/acts"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/member"
)

// TestActLogReadsWhatAGuestbookWrites uses the guestbook's writer.
func TestActLogReadsWhatAGuestbookWrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "acts")
	log := NewActLog(path)
	if got, err := log.Acts(); err != nil || len(got) != 0 {
		t.Fatalf("a log that does not exist yet: %v, %v", got, err)
	}
	file, err := os.Create(path)
	musttest.Do(t, err)
	defer func() { _ = file.Close() }()
	writer := acts.NewLog("east", file)
	do := func(what, object string, result error) {
		t.Helper()
		if err := writer.Do(context.Background(), what, "shop", object, func() error {
			during, err := log.Acts()
			musttest.Do(t, err)
			if last := during[len(during)-1]; last.Object != object || last.End != Unfinished {
				t.Errorf("during the act: %+v, want one without an end", last)
			}
			return result
		}); !errors.Is(err, result) {
			t.Fatal(err)
		}
	}
	do("print", "first", nil)
	do("write", "second", errors.New("refused"))
	do("print", "third", fmt.Errorf("%w: late", member.ErrNotBegun))
	got, err := log.Acts()
	musttest.Do(t, err)
	want := []Act{
		{Cluster: "east", Namespace: "shop", Object: "first", What: "print", Result: acts.OK},
		{Cluster: "east", Namespace: "shop", Object: "second", What: "write", Result: "refused"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Act{}, "Begin", "End")); diff != "" {
		t.Errorf("acts (-want +got):\n%s", diff)
	}
	if got[0].End < got[0].Begin || got[1].Begin < got[0].End {
		t.Errorf("the acts are not one after the other: %+v", got)
	}
}

// act is an act in namespace shop, in milliseconds. A negative end is unknown.
func act(cluster string, epoch int64, begin, end time.Duration) Act {
	a := Act{Cluster: cluster, Namespace: "shop", Epoch: epoch, Begin: begin * time.Millisecond, End: Unfinished}
	if end >= 0 {
		a.End = end * time.Millisecond
	}
	return a
}

func TestJudge(t *testing.T) {
	type acts = []Act
	type rules = []Rule
	for name, c := range map[string]struct {
		acts     acts
		leaders  string
		breaches rules
	}{
		"acts of one cluster overlap each other": {
			acts{act("east", 1, 0, 10), act("east", 1, 5, 20), act("east", 1, 20, 21)}, "east", nil},
		"one cluster acts after the other": {
			acts{act("east", 1, 0, 10), act("west", 2, 11, 20), act("east", 3, 21, 30)}, "east west east", nil},
		"the logs are in another order": {
			acts{act("west", 2, 11, 20), act("east", 1, 0, 10)}, "east west", nil},
		"two clusters overlap": {
			acts{act("east", 1, 0, 10), act("west", 2, 9, 20)}, "east west", rules{TwoAtOnce}},
		"the ends of two clusters touch": {
			acts{act("east", 1, 0, 10), act("west", 2, 10, 20)}, "east west", rules{TwoAtOnce}},
		"an act lies within another cluster's": {
			acts{act("east", 1, 0, 100), act("west", 2, 50, 60)}, "east west", rules{TwoAtOnce}},
		"a long act overlaps, a shorter one of the same cluster came after it": {
			acts{act("east", 1, 0, 100), act("east", 1, 10, 20), act("west", 2, 50, 60)}, "east west", rules{TwoAtOnce}},
		"two acts overlap one of another cluster": {
			acts{act("east", 1, 0, 100), act("west", 2, 50, 60), act("west", 2, 70, 80), act("west", 2, 120, 130)},
			"east west", rules{TwoAtOnce, TwoAtOnce}},
		"an act has no known end, another cluster acts later": {
			acts{act("east", 1, 0, -1), act("west", 2, 5000, 5001)}, "east west", rules{TwoAtOnce}},
		"acts of two clusters begin at one instant": {
			acts{act("east", 1, 0, 10), act("west", 2, 0, 5)}, "west east", rules{TwoAtOnce, AfterSuccessor}},
		"the old leader acts between two acts of the new one": {
			acts{act("east", 1, 0, 10), act("west", 2, 20, 30), act("east", 1, 40, 50), act("west", 2, 60, 70)},
			"east west east west", rules{AfterSuccessor}},
		"the epoch falls within one cluster": {
			acts{act("east", 2, 0, 10), act("east", 1, 20, 30)}, "east", rules{AfterSuccessor}},
		"an act ends after the next term of its own cluster began": {
			acts{act("east", 1, 0, 50), act("east", 2, 20, 30)}, "east", nil},
		"two clusters act in one epoch": {
			acts{act("east", 1, 0, 10), act("west", 1, 20, 30)}, "east west", rules{OneEpochTwice}},
		"a third cluster overlaps one of two that overlap": {
			acts{act("east", 1, 0, 100), act("west", 2, 50, 60), act("south", 3, 90, 95)},
			"east west south", rules{TwoAtOnce, TwoAtOnce}},
	} {
		t.Run(name, func(t *testing.T) {
			verdicts := Judge(c.acts)
			if len(verdicts) != 1 || verdicts[0].Acts != len(c.acts) {
				t.Fatalf("want one verdict of %d acts, got %+v", len(c.acts), verdicts)
			}
			v := verdicts[0]
			if got := strings.Join(v.Leaders, " "); got != c.leaders {
				t.Errorf("leaders %s, want %s", got, c.leaders)
			}
			var got rules
			for _, b := range v.Breaches {
				got = append(got, b.Rule)
			}
			if diff := cmp.Diff(c.breaches, got); diff != "" {
				t.Errorf("breaches (-want +got):\n%s\n%v", diff, v.Breaches)
			}
		})
	}
}

func TestJudgeMeasuresTheGap(t *testing.T) {
	v := Judge([]Act{act("east", 1, 0, 30), act("east", 1, 10, 20), act("west", 7, 100, 101), act("west", 7, 200, 201)})[0]
	want := []Change{{From: "east", To: "west", Epoch: 7, Last: 30 * time.Millisecond, First: 100 * time.Millisecond}}
	if diff := cmp.Diff(want, v.Changes); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if gap := v.Changes[0].Gap(); gap != 70*time.Millisecond {
		t.Errorf("gap %v, want 70ms", gap)
	}
}

func TestFloor(t *testing.T) {
	const fault, s, ms = time.Minute, time.Second, time.Millisecond
	for name, c := range map[string]struct{ stamp, detection, want time.Duration }{
		"the fault follows a renewal at once: all of D and ε": {fault, 0, 3250 * ms},
		"the fault precedes a renewal: the rest of D and ε":   {fault - s, 0, 2250 * ms},
		"a renewal is under way at the fault: from that one":  {fault + 200*ms, 0, 3450 * ms},
		"the term ends before the detection: the detection":   {fault - s, 5 * s, 5 * s},
		"the term ended before the fault: the detection":      {fault - 10*s, 2 * s, 2 * s},
	} {
		t.Run(name, func(t *testing.T) {
			if got := Floor(Fast, fault, c.stamp, c.detection); got != c.want {
				t.Errorf("floor %v, want %v", got, c.want)
			}
		})
	}
}

func TestLastRenewTime(t *testing.T) {
	start := time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC) // boot reading 0
	const us, them = "east.default", "west.default"
	type leases []struct {
		seen, stamp time.Duration
		holder      string
		gone        bool
	}
	for name, c := range map[string]struct {
		leases leases
		want   time.Duration
		none   bool
	}{
		"several renewals: the last one":           {leases{{2, 1, us, false}, {5, 4, us, false}}, 4, false},
		"another holder later: the renewal before": {leases{{2, 1, us, false}, {5, 4, them, false}}, 1, false},
		"a renewal is seen late: its renewTime":    {leases{{30, 9, us, false}}, 9, false},
		"a renewal after the instant: that before": {leases{{2, 1, us, false}, {30, 11, us, false}}, 1, false},
		"the Lease is deleted: the renewal before": {leases{{2, 1, us, false}, {5, 4, us, true}}, 1, false},
		"another holder: none":                     {leases{{5, 4, them, false}}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var seen []Sighting[*coordinationv1.Lease]
			for _, c := range c.leases {
				l := &coordinationv1.Lease{}
				musttest.Do(t, wire.Write(lease.Content{
					Term: lease.Term{Holder: c.holder, Epoch: 1, RenewTime: start.Add(c.stamp * time.Second),
						Duration: 3 * time.Second},
					Namespace: "shop", Name: "leasecast", Cluster: us,
				}, "", l))
				at := lease.Reading{Boot: c.seen * time.Second, Wall: start.Add(c.seen * time.Second)}
				seen = append(seen, Sighting[*coordinationv1.Lease]{At: at, Object: l, Gone: c.gone})
			}
			got, ok := LastRenewTime(seen, "shop", 10*time.Second)
			if ok == c.none || got != c.want*time.Second {
				t.Errorf("last stamp %v, %v; want %v s, any: %v", got, ok, int64(c.want), !c.none)
			}
			if _, ok := LastRenewTime(seen, "ledger", 10*time.Second); ok {
				t.Error("a renewTime in another namespace counts")
			}
		})
	}
}
