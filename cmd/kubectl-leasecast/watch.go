package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/cmd/kubectl-leasecast/report"
)

const (
	// pollEvery is how often verify --watch reads all Leases.
	pollEvery = time.Second
	// pollTimeout bounds each of its requests, so that one server that is lost does not hide the others.
	pollTimeout = 3 * time.Second
)

// sight is a Lease that a member has shown.
type sight struct {
	cluster string
	lease.Content
}

// ledTerm is a term, as the Leases in its cluster have shown it. Instants count from the beginning of the watch.
type ledTerm struct {
	cluster                string
	epoch                  int64
	from, deadline, safely time.Duration // safely: the latest deadline, and ε
	end                    time.Duration // when its readers must have stopped
}

// watch is what verify --watch has seen so far.
type watch struct {
	page  report.Report
	last  time.Duration         // the latest poll
	terms map[string][]*ledTerm // by namespace, in the order of their epochs
	early map[string]bool       // a term there may end before its deadline, and no promise is broken
	wrong []report.Fault
}

// watchLeases polls for a time, or until the context ends, and keeps the page up to date.
func (p *plugin) watchLeases(
	ctx context.Context, length time.Duration, file string, kubeconfigs map[string]string,
) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM) // the page has all that was seen until then
	defer stop()
	*p.flags.Timeout = pollTimeout.String()
	look, err := p.look(kubeconfigs, pollTimeout)
	if err != nil {
		return err
	}
	return p.watch(ctx, length, file, look)
}

func (p *plugin) watch(
	ctx context.Context, length time.Duration, file string,
	look func(context.Context) (*snapshot, *verification, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	w := &watch{page: report.Report{Began: p.now()}, terms: map[string][]*ledTerm{}, early: map[string]bool{}}
	p.table().line("Watching every Lease of the fleet, once a second. The page is %s. Ctrl-C ends this.", file)
	for {
		s, v, err := look(ctx)
		if s == nil {
			return err
		}
		if ctx.Err() == nil { // otherwise the poll was cut off
			w.add(s, v, err, v.at.Sub(w.page.Began))
		}
		r := w.report(w.last) // what came after the readings is not known
		if err := r.WriteFile(file); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			sentence, kept := r.Verdict()
			p.table().line("%s", sentence)
			if !kept {
				return errAttention
			}
			return nil
		case <-time.After(pollEvery):
		}
	}
}

// add takes in what a poll has found. The error says why the management cluster could not be read.
func (w *watch) add(s *snapshot, v *verification, unread error, at time.Duration) {
	note := func(all *[]report.Fault, text string) {
		for i := range *all {
			if f := &(*all)[i]; f.Text == text && f.To == w.last {
				f.To = at
				return
			}
		}
		*all = append(*all, report.Fault{Span: report.Span{From: at, To: at}, Text: text})
	}
	if unread != nil {
		note(&w.page.Faults, "the management cluster cannot be read from here")
	} else if s.hub.unknown == "" && !s.hub.alive(s.at) {
		note(&w.page.Faults, "no replica of the hub renews its election")
	}
	for _, d := range v.Unread {
		note(&w.page.Faults, d.Cluster+" cannot be read from here")
	}
	for _, d := range v.Disagreements {
		note(&w.wrong, fmt.Sprintf("%s in %s: %s", d.Namespace, d.Cluster, d.Problem))
	}
	for i := range s.records {
		r := &s.records[i]
		if _, known := w.terms[r.Name]; !known && r.Spec.State != v1alpha1.StateRetired {
			w.terms[r.Name] = nil
		}
		policy := s.policy(r.Spec.Policy)
		w.early[r.Name] = w.early[r.Name] || policy != nil && policy.Spec.Handover == v1alpha1.HandoverRegisteredReaders ||
			slices.ContainsFunc(r.Status.Candidates, func(c v1alpha1.Candidate) bool { return c.Reason == reason.Fenced })
	}
	for _, l := range v.seen {
		w.see(l, at)
	}
	w.page.Title, w.last = "Leasecast, fleet "+s.fleet, at
}

// see takes in a Lease. What a member says of times before the watch, or in the future, does not count.
func (w *watch) see(l sight, at time.Duration) {
	since := func(t time.Time) time.Duration { return max(0, t.Sub(w.page.Began)) }
	var last *ledTerm
	for _, t := range w.terms[l.Namespace] {
		if t.cluster == l.cluster {
			last = t
		}
	}
	deadline := since(l.Deadline())
	switch {
	case l.LeadsHere() && deadline > 0:
		if last == nil || last.epoch != l.Epoch {
			last = &ledTerm{cluster: l.cluster, epoch: l.Epoch, from: min(at, since(l.AcquireTime))}
			w.terms[l.Namespace] = append(w.terms[l.Namespace], last)
			slices.SortStableFunc(w.terms[l.Namespace], func(a, b *ledTerm) int { return cmp.Compare(a.epoch, b.epoch) })
		}
		last.deadline, last.end, last.safely = deadline, deadline, deadline+l.Skew
	case last != nil && l.Epoch > last.epoch:
		last.end = min(last.end, at, max(last.from, since(l.RenewTime))) // it was replaced then
	}
}

// report is what was seen until an instant.
func (w *watch) report(now time.Duration) *report.Report {
	r := w.page
	r.Length = now
	r.Source = fmt.Sprintf("All Leases were read every %s, so a gap may be shown longer by that. Who acted is not known.",
		pollEvery)
	for _, f := range w.wrong {
		if f.Length() > 0 || strings.HasSuffix(f.Text, moreThanOne) { // anything else may be a change that goes on
			r.Problems = append(r.Problems, fmt.Sprintf("%s, for %s", f.Text, f.Length().Round(pollEvery)))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.terms)) {
		r.Namespaces = append(r.Namespaces, report.Namespace{Name: name, Rows: rows(w.terms[name])})
	}
	r.FindGaps(pollEvery)
	for _, n := range r.Namespaces {
		for i := range n.Gaps {
			g := &n.Gaps[i]
			for _, t := range w.terms[n.Name] {
				if t.cluster == g.Before && t.from <= g.From && g.After != "" && g.After != g.Before && !w.early[n.Name] {
					g.Earliest = t.safely
				}
			}
		}
	}
	return &r
}

// rows are the clusters that led. Where the next term has begun, the one before is over: whether it was promised for
// longer is the matter of the gap's floor.
func rows(terms []*ledTerm) (all []report.Row) {
	for i, t := range terms {
		end := t.end
		if i+1 < len(terms) {
			end = max(t.from, min(end, terms[i+1].from))
		}
		at := slices.IndexFunc(all, func(r report.Row) bool { return r.Cluster == t.cluster })
		if at < 0 {
			at = len(all)
			all = append(all, report.Row{Cluster: t.cluster})
		}
		all[at].Could = append(all[at].Could, report.Span{From: t.from, To: end})
		all[at].Promised = append(all[at].Promised, report.Span{From: t.from, To: t.deadline})
	}
	return all
}
