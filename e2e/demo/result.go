package main

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
)

// wantLeaders is who must act, in this order, in every namespace.
var wantLeaders = []string{"east", "west", "south"}

// result is what was measured. Of the namespaces the slowest counts.
type result struct {
	FailedOver, HandedOver bool
	// Failover is the time from the fault to the first act of the next leader, Floor its lower bound;
	// Handover that from the edit of the label to the first act of the next leader.
	Failover, Floor, Handover time.Duration
}

func resultFile() string { return filepath.Join(outDir, "demo.json") }

// file is out/demo.json. What did not happen is null.
type file struct {
	Failover *float64 `json:"failover.seconds"`
	Floor    *float64 `json:"failover.floorSeconds"`
	Handover *float64 `json:"handover.seconds"`
	// Overlaps counts all that harness.Judge finds wrong.
	Overlaps int `json:"overlaps"`
	// Leaders are the clusters that acted, in order: in every namespace or, if they differ, in one where it is
	// not as it should be.
	Leaders []string `json:"leaders"`
}

// report puts the result in the form of the file.
func report(r result, verdicts []harness.Verdict) file {
	f := file{Overlaps: len(harness.Breaches(verdicts)), Leaders: []string{}}
	seconds := func(d time.Duration) *float64 {
		s := math.Round(d.Seconds()*1000) / 1000
		return &s
	}
	if r.FailedOver {
		f.Failover, f.Floor = seconds(r.Failover), seconds(r.Floor)
	}
	if r.HandedOver {
		f.Handover = seconds(r.Handover)
	}
	for _, v := range verdicts {
		if f.Leaders = v.Leaders; !slices.Equal(v.Leaders, wantLeaders) {
			break
		}
	}
	return f
}

// write writes the file.
func (f file) write() error { return harness.WriteReport(resultFile(), f) }

// flaws says what in the result makes the demo fail: what the guestbooks did, whatever the scenes
// thought of it.
func flaws(r result, verdicts []harness.Verdict) error {
	var errs []error
	for _, b := range harness.Breaches(verdicts) {
		errs = append(errs, errors.New(b.String()))
	}
	if !r.FailedOver {
		errs = append(errs, errors.New("there was no failover"))
	}
	if r.Failover < r.Floor {
		errs = append(errs, fmt.Errorf("failover took %s, less than the %s for which east may still have acted", r.Failover, r.Floor))
	}
	if !r.HandedOver {
		errs = append(errs, errors.New("there was no handover"))
	}
	for _, namespace := range namespaces {
		var leaders []string
		for _, v := range verdicts {
			if v.Namespace == namespace {
				leaders = v.Leaders
			}
		}
		if !slices.Equal(leaders, wantLeaders) {
			errs = append(errs, fmt.Errorf("%s: the clusters acted in the order %v, want %v", namespace, leaders, wantLeaders))
		}
	}
	return errors.Join(errs...)
}
