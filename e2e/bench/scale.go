package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/process"
)

// tellEvery is the time between two words on the progress.
const tellEvery = time.Minute

// measureScale has one hub lead many namespaces for a long while: what that takes, and whether any renewal is late.
func measureScale(ctx context.Context, b *bench) (err error) {
	namespaces := teams(b.sizes.scaled)
	o := harness.Options{Timings: harness.Default, Members: members(namespaces...)}
	for i := range b.sizes.more {
		few := namespaces[:min(10, len(namespaces))]
		o.Members = append(o.Members, harness.Member{Name: fmt.Sprint("more-", i), Priority: 1, Namespaces: few})
	}
	d, err := b.start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := awaitLed(ctx, d, len(namespaces)); err != nil {
		return err
	}
	b.say(fmt.Sprintf("%d namespaces are led; waiting %s for the beginning to be over", len(namespaces), 2*o.Timings.Duration))
	if err := process.Pass(ctx, 2*o.Timings.Duration); err != nil {
		return err
	}
	s := &scale{drill: d, followed: map[string]*ages{}}
	if s.view, err = d.Look(ctx); err != nil {
		return err
	}
	defer s.view.Close()
	for _, cluster := range clusters {
		s.followed[cluster] = newAges(2 * o.Timings.Renew)
	}
	u, err := s.watch(ctx, b)
	if err != nil {
		return errors.Join(err, d.Check()) // a hub that has ended cannot be looked at
	}
	if err := errors.Join(d.Check(), awaitLed(ctx, d, len(namespaces))); err != nil {
		return err
	}
	all, missed := s.sum()
	if enough := int(b.sizes.scaleFor/o.Timings.Renew) * len(namespaces) / 2; len(all) < enough {
		return fmt.Errorf("only %d renewals were seen, want %d at least", len(all), enough)
	}
	b.say(fmt.Sprintf("%d renewals: age before the renewal %.2f s at the median, p99.9 %.2f s, max %.2f s; %d missed", len(all),
		median(all).Seconds(), quantile(all, 0.999).Seconds(), quantile(all, 1).Seconds(), missed))
	b.figures[cpuCores1000], b.figures[rssMiB1000] = u.cores, u.rssMiB
	b.figures[renewalAgeP999], b.figures[missedRenewals] = quantile(all, 0.999).Seconds(), float64(missed)
	return nil
}

// scale follows the renewals in each member.
type scale struct {
	drill    *harness.Drill
	view     *harness.View
	followed map[string]*ages
}

// watch follows the renewals for the time of the sizes, and reports progress.
func (s *scale) watch(ctx context.Context, b *bench) (usage, error) {
	var u usage
	for left := b.sizes.scaleFor; left > 0; left -= tellEvery {
		part := min(left, tellEvery)
		now, err := sample(ctx, s.drill.Hubs()[0].PID(), part)
		if err != nil {
			return u, err
		}
		u.cores += now.cores * part.Seconds() / b.sizes.scaleFor.Seconds()
		u.rssMiB = max(u.rssMiB, now.rssMiB)
		for cluster, w := range s.view.Leases {
			s.followed[cluster].add(w.Take())
		}
		all, missed := s.sum()
		b.say(fmt.Sprintf("%s to go: the hub takes %.3f cores and %.0f MiB; %d renewals, %d missed", left-part, now.cores, now.rssMiB, len(all), missed))
	}
	end := harness.Now().Boot
	for _, a := range s.followed {
		a.finish(end)
	}
	return u, nil
}

// sum adds up the members.
func (s *scale) sum() (all []time.Duration, missed int) {
	for _, a := range s.followed {
		all = append(all, a.all...)
		missed += a.missed
	}
	return all, missed
}
