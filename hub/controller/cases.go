package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/decide"
)

// ErrStandby means that this replica decides nothing for a fleet, so that it knows of no promise.
var ErrStandby = errors.New("this replica of the hub does not decide for the fleet")

// casesAtOnce bounds the cases that are held for whoever asks.
const casesAtOnce = 100

// Cases has all recorded namespaces of a fleet decided on, and yields what these decisions rest on, each as the JSON of
// a [decide.Case]. It leaves out namespaces on which nothing is decided. Where a decision cannot be made now, it ends
// with ctx. Only one may call it at a time.
func (c *Controller) Cases(ctx context.Context, fleetName string, yield func(json.RawMessage) error) error {
	if !c.Serves(fleetName) {
		return fmt.Errorf("%w %q", ErrStandby, fleetName)
	}
	records, err := c.ledger.Cached(ctx, fleetName)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(records, casesAtOnce) {
		if err := c.yieldCases(ctx, some, yield); err != nil {
			return err
		}
	}
	return nil
}

func (c *Controller) yieldCases(
	ctx context.Context, records []v1alpha1.NamespaceLeader, yield func(json.RawMessage) error,
) error {
	answers := make(chan json.RawMessage, len(records))
	c.cases.ask(records, answers)
	defer c.cases.ask(nil, nil)
	for i := range records {
		c.recordQueue.add(types.NamespacedName{Namespace: records[i].Namespace, Name: records[i].Name})
	}
	for range records {
		select {
		case is := <-answers:
			if is == nil {
				continue
			}
			if err := yield(is); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// caseRequests are the namespaces whose next decision is asked for. The decisions themselves answer, because nothing
// else may read the memory of a namespace.
type caseRequests struct {
	mu      sync.Mutex
	of      map[types.NamespacedName]bool
	answers chan<- json.RawMessage // has room for all of them
}

// ask replaces what is asked for.
func (r *caseRequests) ask(records []v1alpha1.NamespaceLeader, answers chan<- json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.of, r.answers = map[types.NamespacedName]bool{}, answers
	for i := range records {
		r.of[types.NamespacedName{Namespace: records[i].Namespace, Name: records[i].Name}] = true
	}
}

// answer hands over the case of a decision, if it is asked for. Where no policy owns the namespace, there is none.
func (r *caseRequests) answer(v *decide.Snapshot, is decide.Case) {
	r.mu.Lock()
	asked, answers := r.of[v.Key], r.answers
	delete(r.of, v.Key)
	r.mu.Unlock()
	if !asked {
		return
	}
	var text json.RawMessage
	if is.Policy != nil {
		text, _ = json.Marshal(is) // numbers, texts and instants always marshal
	}
	answers <- text // there is room
}
