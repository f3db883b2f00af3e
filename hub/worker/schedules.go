package worker

import (
	"context"
	"errors"
	"maps"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// wakeTries is how often the worker tries to wake the CronJobs of a term, once per fenceLook.
	wakeTries = 20
	// wakeAgain is the delay between the first and the second waking.
	wakeAgain = 3 * time.Second
	// wakeTimeout bounds one try.
	wakeTimeout = 5 * time.Second
)

// wakeSchedules wakes the fenced CronJobs of each namespace once a term of the member has begun there, until ctx
// ends.
//
// The CronJob controller of a follower backs off more and more, because its Jobs are rejected. An update of a
// CronJob wakes it at once. But its Job for a tick before the term would be rejected again. So the hub sets the
// CronJob's status so that everything before the term counts as scheduled. Then the controller resets its back-off,
// and returns for the next tick. The hub writes only the status, so its right to do that is no right to run
// anything.
//
// An API server may not have seen the Lease of the term yet. If there was a tick in the term already, it rejects
// the Job, and the controller backs off as before. So the CronJobs are woken twice, by another status each time.
func (w *Worker) wakeSchedules(ctx context.Context) {
	wakings := map[fencedTerm]waking{}
	for ; ctx.Err() == nil; pause(ctx, fenceLook) {
		if w.leaving() || !w.Hub.Serves(w.Member.Fleet) {
			continue
		}
		terms, err := w.fencedTerms(ctx, wakes)
		if err != nil {
			continue
		}
		w.wakeTerms(ctx, terms, wakings)
	}
}

// wakeTerms wakes the CronJobs of each term where that is due, and forgets the terms that are over.
func (w *Worker) wakeTerms(ctx context.Context, terms map[fencedTerm]guard.Fence, wakings map[fencedTerm]waking) {
	maps.DeleteFunc(wakings, func(t fencedTerm, _ waking) bool { return !has(terms, t) })
	for t, f := range terms {
		wakings[t] = w.wakeTerm(ctx, t, f.Schedules(), wakings[t])
	}
}

// waking is the progress of waking a term's CronJobs.
type waking struct {
	times int           // how often all of them were woken
	tries int           // failed attempts since then
	next  time.Duration // boot reading of the next try
}

// wakeTerm wakes the CronJobs of a term if that is due, and returns the progress.
func (w *Worker) wakeTerm(ctx context.Context, t fencedTerm, of *metav1.LabelSelector, is waking) waking {
	now := w.Clock.Now().Boot
	if is.times == 2 || is.tries == wakeTries || now < is.next {
		return is
	}
	// A status has whole seconds. upTo is the last one before the term, so that a tick at its very beginning is not
	// lost.
	upTo := time.UnixMicro(t.began - 1).Truncate(time.Second)
	if is.times == 0 {
		upTo = upTo.Add(-time.Second) // so that the second waking changes the status
	}
	err := w.wakeCronJobs(ctx, t.namespace, of, upTo)
	if err == nil {
		return waking{times: is.times + 1, next: now + wakeAgain}
	}
	if is.tries++; apierrors.IsForbidden(err) || errors.Is(err, transport.ErrTooLarge) {
		is.tries = wakeTries
	}
	if is.tries == wakeTries {
		w.Log.Info("The CronJobs are not woken: their first Jobs of this term may be late", "namespace", t.namespace,
			"err", transport.Shorten(bare(err)))
	}
	return is
}

// wakes reports whether a fence rejects Jobs.
func wakes(f guard.Fence) bool { return !f.Warns() && f.Schedules() != nil }
