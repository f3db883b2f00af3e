package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// party is the process of one cluster: a candidate of the peer, or a reader of ours.
type party struct {
	*process.Process
	cluster string
	changes string // the file
}

// startParty starts this program as a process of its own in one of its modes. name tells its files from those of others.
func startParty(dir, name, cluster, mode string, c child) (*party, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.changes = filepath.Join(dir, name+".changes")
	run, err := process.Start(name, filepath.Join(dir, name+".log"), program, c.args(mode)...)
	if err != nil {
		return nil, err
	}
	return &party{Process: run, cluster: cluster, changes: c.changes}, nil
}

func stopParties(parties []*party) error {
	var errs []error
	for _, p := range parties {
		errs = append(errs, p.Stop())
	}
	return errors.Join(errs...)
}

// awaitRole returns when the process knows of every namespace whether it leads, and leads all or none.
func (p *party) awaitRole(ctx context.Context, namespaces []string, leads bool) error {
	what := p.Name() + " follows everywhere"
	if leads {
		what = p.Name() + " leads everywhere"
	}
	return harness.Await(ctx, leadLimit, what, func(context.Context) error {
		if err := p.Check(); err != nil {
			return err
		}
		changes, err := readChanges(p.changes)
		if err != nil {
			return err
		}
		last, others := latest(changes), []string{}
		for _, namespace := range namespaces {
			if c, known := last[namespace]; !known || c.Leads != leads {
				others = append(others, namespace)
			}
		}
		if len(others) > 0 {
			return fmt.Errorf("not so in %d of %d namespaces: %s", len(others), len(namespaces), shorten(others))
		}
		return nil
	})
}

// shorten names a few.
func shorten(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return strings.Join(names[:few], ", ") + " …"
}

// awaitSuccession returns how long after the fault each namespace had a leader among the survivors.
func awaitSuccession(ctx context.Context, survivors []*party, namespaces []string, fault time.Duration) ([]time.Duration, error) {
	var took []time.Duration
	err := harness.Await(ctx, failoverLimit, "every namespace has another leader", func(context.Context) error {
		var all []change
		for _, p := range survivors {
			if err := p.Check(); err != nil {
				return err
			}
			changes, err := readChanges(p.changes)
			if err != nil {
				return err
			}
			all = append(all, changes...)
		}
		var missing int
		if took, missing = successions(all, namespaces, fault); missing > 0 {
			return fmt.Errorf("%d of %d have none", missing, len(namespaces))
		}
		return nil
	})
	return took, err
}
