package guestbook

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/member"
)

// registering returns the configuration of a user who works in a namespace and registers in it.
func registering(t *testing.T, ns string) *rest.Config {
	cfg := user(t, ns, ns)
	cfg.Wrap(member.CapWrites)
	allow(t, ns, "registration", ns, may(coordinationv1.GroupName, "leases", "get", "create", "update", "delete"))
	return cfg
}

// registrations lists them as the hub does.
func registrations(ctx context.Context, ns string) ([]coordinationv1.Lease, error) {
	var list coordinationv1.LeaseList
	err := admin.List(ctx, &list, client.InNamespace(ns), client.MatchingLabels{v1alpha1.ReaderLabel: "true"})
	return list.Items, err
}

// registration is the only one there.
func registration(ctx context.Context, ns string) (lease.Registration, error) {
	all, err := registrations(ctx, ns)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d registrations exist, want 1", len(all))
	}
	if err != nil {
		return lease.Registration{}, err
	}
	return wire.ReadRegistration(&all[0])
}

// A reader that was stopped for longer than its registration lasts acts only after it has registered again.
func TestAPausedReaderActsOnlyWithANewRegistration(t *testing.T) {
	t.Parallel()
	ns := harness.NewNamespace(t, admin)
	names := books(t, ns, 3)
	write(t, ns, us, 1, time.Hour)
	p := start(t, registering(t, ns), "east", ns, "-register="+ns, "-act-every="+actEvery.String())
	await(t, "it acts", p.acted(names, 1))
	before, err := registrations(t.Context(), ns)
	if err != nil || len(before) != 1 {
		t.Fatal(len(before), err)
	}
	musttest.Do(t, p.Pause())
	var last lease.Registration
	await(t, "its registration has run out", func(ctx context.Context) (err error) {
		if last, err = registration(ctx, ns); err == nil && harness.Now().Wall.Before(last.Until().Add(time.Second)) {
			err = fmt.Errorf("lasts until %v", last.Until())
		}
		return err
	})
	over := harness.Now().Boot
	musttest.Do(t, p.Resume())
	var renewed time.Time
	await(t, "it has registered anew", func(ctx context.Context) error {
		all := must.Get(registrations(ctx, ns))
		for _, l := range all {
			if r, err := wire.ReadRegistration(&l); err == nil && r.Identity != last.Identity {
				renewed = r.Confirmed
				return nil
			}
		}
		return errors.New("there is no other registration")
	})
	now := harness.Now()
	since := now.Boot - now.Wall.Sub(renewed) // its confirmation, on the clock of the act log
	await(t, "it acts again", func(context.Context) error {
		for _, a := range p.acts() {
			if a.Begin > since && a.Result == "ok" {
				return nil
			}
		}
		return errors.New("no act")
	})
	for _, a := range p.acts() {
		if a.Begin > over && a.Begin < since-apart && a.Result == "ok" {
			t.Errorf("act %+v was begun without a registration, which ran out before %v and was renewed at %v", a, over, since)
		}
	}
}
