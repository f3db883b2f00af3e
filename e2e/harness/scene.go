package harness

import (
	"context"
	"errors"
	"time"

	"github.com/leasecast/leasecast/e2e/must"
)

// AwaitAct returns the first act that matches, as soon as it has begun.
func (d *Drill) AwaitAct(ctx context.Context, limit time.Duration, what string, match func(Act) bool) (first Act,
	err error) {
	err = d.Await(ctx, limit, what, func(context.Context) (err error) {
		first, err = FirstAct(d.Acts, match)
		return err
	})
	return first, err
}

// FirstAct is the first act in the logs that matches, or an error if there is none yet.
func FirstAct(logs func() ([]Act, error), match func(Act) bool) (first Act, err error) {
	acts, err := logs()
	if err != nil {
		return first, err
	}
	err = errors.New("no such act")
	for _, a := range acts {
		if match(a) && (err != nil || a.Begin < first.Begin) {
			first, err = a, nil
		}
	}
	return first, err
}

// AwaitEligible returns when the records of the namespaces report the cluster as eligible.
func (d *Drill) AwaitEligible(ctx context.Context, limit time.Duration, cluster string, namespaces ...string) error {
	return d.Await(ctx, limit, cluster+" is eligible", func(ctx context.Context) error {
		for _, namespace := range namespaces {
			must.Do(d.Eligible(ctx, namespace, cluster))
		}
		return nil
	})
}
