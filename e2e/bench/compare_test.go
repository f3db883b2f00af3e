package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/lines"
)

func TestOnlyRequestsOfTheComparedCountAndOnlyThoseOfTheWindow(t *testing.T) {
	from := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	to := from.Add(time.Minute)
	for name, c := range map[string]struct {
		request fleet.Request
		want    int
	}{
		"the hub's":                   {fleet.Request{Received: from, User: "leasecast-fleet-admin", Agent: "leasecast-hub/x"}, 1},
		"who does not say what it is": {fleet.Request{Received: from}, 1},
		"one that was refused":        {fleet.Request{Received: from, Agent: candidateArg, Code: 409}, 1},
		"a reader's watch":            {fleet.Request{Received: from, Agent: readerArg + "/leasecast-member", Verb: "watch"}, 1},
		"just before the end":         {fleet.Request{Received: to.Add(-1), Agent: candidateArg}, 1},
		"at the end":                  {fleet.Request{Received: to, Agent: candidateArg}, 0},
		"before the beginning":        {fleet.Request{Received: from.Add(-1), Agent: candidateArg}, 0},
		"the API server's own":        {fleet.Request{Received: from, User: "system:apiserver", Agent: "kube-apiserver/v1"}, 0},
		"the controller manager's":    {fleet.Request{Received: from, Agent: "kube-controller-manager/v1"}, 0},
		"the benchmark's":             {fleet.Request{Received: from, Agent: rest.DefaultKubernetesUserAgent()}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if got := within([]fleet.Request{c.request}, from, to); len(got) != c.want {
				t.Errorf("%d count, want %d", len(got), c.want)
			}
		})
	}
	got := inKinds([]fleet.Request{
		{Verb: "update", URI: "/apis/coordination.k8s.io/v1/namespaces/shop/leases/leasecast?timeout=3s"},
		{Verb: "get", URI: "/api/v1/namespaces/kube-system"},
		{Verb: "list", URI: "/apis/coordination.k8s.io/v1/leases?limit=500"},
		{Verb: "get", URI: "/readyz"},
		{Verb: "update", URI: "/apis/coordination.k8s.io/v1/namespaces/ledger/leases/leasecast"},
	})
	if want := "2 update leases, 1 get /readyz, 1 get namespaces, 1 list leases"; got != want {
		t.Errorf("in words %q, want %q", got, want)
	}
}

func TestChangesSurviveTheFileAndAKilledWriter(t *testing.T) {
	var out bytes.Buffer
	w := &changeWriter{out: lines.NewWriter(&out)}
	before := harness.Now().Boot
	w.tell("shop", true)
	w.tell("ledger", false)
	whole := out.String()
	file := filepath.Join(t.TempDir(), "changes")
	if got, err := readChanges(file); err != nil || len(got) != 0 {
		t.Errorf("before the first change: %v, %v", got, err)
	}
	harness.Must(t, os.WriteFile(file, []byte(whole+whole[:20]), 0o600))
	got, err := readChanges(file)
	harness.Must(t, err)
	want := []change{{Namespace: "shop", Leads: true}, {Namespace: "ledger"}}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(change{}, "At")); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
	if len(got) > 0 && got[0].At < before {
		t.Errorf("told at %s, before it was, at %s", got[0].At, before)
	}
	harness.Must(t, os.WriteFile(file, []byte("nonsense\n"), 0o600))
	if _, err := readChanges(file); err == nil {
		t.Error("what is no change is taken for one")
	}
	if w := (&changeWriter{out: lines.NewWriter(failing{})}); w.failure() != nil {
		t.Error("a writer has failed before its first line")
	} else if w.tell("shop", true); w.failure() == nil {
		t.Error("a change that could not be written is not reported")
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("the disk is full") }

func TestSuccessionsAreTheFirstAfterTheFault(t *testing.T) {
	const fault = 100 * time.Second
	changes := []change{
		{"early", true, fault - 1}, {"early", false, fault + 1}, // led before, and lost it
		{"same", true, fault},
		{"once", true, fault + 15},
		{"twice", true, fault + 17}, {"twice", true, fault + 16},
		{"foreign", true, fault + 1},
	}
	for name, c := range map[string]struct {
		namespaces []string
		took       []time.Duration
		missing    int
	}{
		"one that began":                   {namespaces: []string{"once"}, took: []time.Duration{15}},
		"the earlier one of two":           {namespaces: []string{"twice"}, took: []time.Duration{16}},
		"leading before the fault is none": {namespaces: []string{"early"}, missing: 1},
		"leading at its instant is none":   {namespaces: []string{"same"}, missing: 1},
		"one of which nothing was heard":   {namespaces: []string{"silent", "once"}, took: []time.Duration{15}, missing: 1},
		"namespaces that nobody asked for": {},
	} {
		t.Run(name, func(t *testing.T) {
			took, missing := successions(changes, c.namespaces, fault)
			if diff := cmp.Diff(c.took, took, cmpopts.EquateEmpty()); diff != "" || missing != c.missing {
				t.Errorf("%d missing, want %d (-want +got):\n%s", missing, c.missing, diff)
			}
		})
	}
}

func TestAgesOfLeasesBeforeTheirRenewal(t *testing.T) {
	const limit = 10 * time.Second
	type sight struct {
		stamped, seen time.Duration // in seconds
		epoch         int64         // 0: the end of the term
	}
	for name, c := range map[string]struct {
		sights []sight
		end    time.Duration
		ages   []time.Duration
		missed int
	}{
		"a Lease is as old as it is when the next is seen":   {sights: []sight{{0, 1, 7}, {5, 6, 7}, {10, 10, 7}}, end: 12, ages: []time.Duration{6, 5}},
		"the first one replaces nothing":                     {sights: []sight{{0, 1, 7}}, end: 5},
		"a renewal after just the limit is not missed":       {sights: []sight{{0, 0, 7}, {10, 10, 7}}, end: 11, ages: []time.Duration{10}},
		"a punctual renewal that is seen late is not missed": {sights: []sight{{0, 0, 7}, {10, 12, 7}}, end: 13, ages: []time.Duration{12}},
		"a renewTime after the limit is missed":              {sights: []sight{{0, 0, 7}, {11, 11, 7}}, end: 12, ages: []time.Duration{11}, missed: 1},
		"a renewal that never comes is missed":               {sights: []sight{{0, 0, 7}}, end: 11, ages: []time.Duration{11}, missed: 1},
		"an edit that leaves the renewTime is no renewal":    {sights: []sight{{0, 0, 7}, {0, 3, 7}, {5, 5, 7}}, end: 6, ages: []time.Duration{5}},
		"another epoch ends the term":                        {sights: []sight{{0, 0, 7}, {2, 2, 8}, {5, 5, 8}}, end: 6, ages: []time.Duration{3}, missed: 1},
		"a term that ends is missed once":                    {sights: []sight{{0, 0, 7}, {0, 2, 0}, {0, 3, 0}}, end: 60, missed: 1},
		"what never led is not missed":                       {sights: []sight{{0, 2, 0}}, end: 60},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAges(limit)
			for _, s := range c.sights {
				if s.epoch == 0 {
					a.end("shop")
					continue
				}
				a.renewed("shop", standing{s.stamped * time.Second, s.epoch}, s.seen*time.Second)
			}
			a.finish(c.end * time.Second)
			var got []time.Duration
			for _, age := range a.all {
				got = append(got, age/time.Second)
			}
			if diff := cmp.Diff(c.ages, got, cmpopts.EquateEmpty()); diff != "" || a.missed != c.missed {
				t.Errorf("%d missed, want %d; ages (-want +got):\n%s", a.missed, c.missed, diff)
			}
		})
	}
}

func TestAgesAreTakenFromWhatAWatchShows(t *testing.T) {
	wall := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	sight := func(holder string, stamped, seen time.Duration, gone bool) harness.Sighting[*coordinationv1.Lease] {
		t.Helper()
		object := &coordinationv1.Lease{}
		c := lease.Content{
			Term:      lease.Term{Holder: holder, Epoch: 7, AcquireTime: wall, RenewTime: wall.Add(stamped), Duration: 15 * time.Second},
			Namespace: "shop", Name: "leasecast", Cluster: "east.prod", ClusterUID: "uid", Hub: "hub",
		}
		harness.Must(t, wire.Write(c, "", object))
		at := lease.Reading{Wall: wall.Add(seen), Boot: time.Hour + seen}
		return harness.Sighting[*coordinationv1.Lease]{At: at, Object: object, Gone: gone}
	}
	leads := []harness.Sighting[*coordinationv1.Lease]{
		sight("east.prod", 0, time.Second, false), sight("east.prod", 5*time.Second, 6*time.Second, false),
	}
	for name, c := range map[string]struct {
		then   harness.Sighting[*coordinationv1.Lease]
		missed int
	}{
		"a renewal":            {sight("east.prod", 10*time.Second, 10*time.Second, false), 0},
		"another leader":       {sight("west.prod", 10*time.Second, 10*time.Second, false), 1},
		"a Lease that is gone": {sight("east.prod", 5*time.Second, 10*time.Second, true), 1},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAges(10 * time.Second)
			a.add(leads[:1])
			a.add(leads[1:])
			a.add([]harness.Sighting[*coordinationv1.Lease]{c.then})
			if len(a.all) == 0 || a.all[0] != 6*time.Second || a.missed != c.missed {
				t.Errorf("ages %v, %d missed; want 6s first, %d missed", a.all, a.missed, c.missed)
			}
		})
	}
}

func TestFiguresOfBothSidesGiveTheRatio(t *testing.T) {
	both, err := choose([]string{peerName, oursName})
	harness.Must(t, err)
	if keys := keysOf(both); keys[len(keys)-1] != requestsRatio {
		t.Errorf("the last of %v is not the ratio", keys)
	}
	for _, alone := range both {
		for _, key := range keysOf([]measurement{alone, alone}) {
			if key == requestsRatio {
				t.Errorf("%s alone gives a ratio", alone.name)
			}
		}
	}
	f := figures{peerRequests: 200, oursRequests: 50}
	if f.compare(); f[requestsRatio] != 0.25 {
		t.Errorf("ratio %v, want 0.25", f[requestsRatio])
	}
	for name, f := range map[string]figures{"peer": {peerRequests: 200}, "ours": {oursRequests: 50}, "neither": {}} {
		if f.compare(); len(f) > 1 {
			t.Errorf("%s alone gives %v", name, f)
		}
	}
}

func TestCommandLine(t *testing.T) {
	s, chosen, err := parse([]string{"-scale.for=90s", "-compare.faults=5", "scale"})
	if err != nil || s.scaleFor != 90*time.Second || s.faults != 5 || s.compared != 200 || len(chosen) != 1 || chosen[0].name != "scale" {
		t.Errorf("sizes %+v, %d measurements, %v", s, len(chosen), err)
	}
	if _, chosen, err := parse(nil); err != nil || len(chosen) != len(measurements) {
		t.Errorf("without arguments: %d measurements, %v; want all", len(chosen), err)
	}
	for _, args := range [][]string{{"-compare.namespaces=0"}, {"-scale.for=1s"}, {"nothing"}} {
		if _, _, err := parse(args); err == nil {
			t.Errorf("%v is understood", args)
		}
	}
	want := child{kubeconfig: "k", identity: "i", lease: "l", namespaces: "a,b", changes: "c"}
	if got, err := parseChild(want.args(candidateArg)); err != nil || got != want {
		t.Errorf("a child gets %+v, %v; want %+v", got, err, want)
	}
}
