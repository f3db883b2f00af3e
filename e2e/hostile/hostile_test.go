package hostile

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/hostile/front"
)

// attack is what the hostile member does, and how the hub shows it.
type attack struct {
	act   front.Act
	shown reason.Reason // for the hostile member; empty: anything
	short bool          // it is played in every test
}

const (
	// attackLasts is how long an attack is played before an honest leader is lost besides, briefly how long it is played in
	// every test.
	attackLasts = 30 * time.Second
	briefly     = 4 * time.Second
)

// attacks by their names, which say what must not happen to the others.
var attacks = map[string]attack{
	"a watch shows new namespaces without end":            {act: endless("namespaces", true), shown: reason.SendsTooMuch, short: true},
	"a watch shows one namespace over and over":           {act: endless("namespaces", false)},
	"a watch shows new Leases without end":                {act: endless("leases", true), shown: reason.SendsTooMuch},
	"a list of 250 MB":                                    {act: largeList(250 << 20), shown: reason.SendsTooMuch, short: true},
	"a list of ten million empty objects":                 {act: bomb, shown: reason.SendsTooMuch, short: true},
	"an event of 4 GB is announced":                       {act: announced, shown: reason.SendsTooMuch},
	"every watch is answered 410":                         {act: onWatches(expired)},
	"every watch ends at once":                            {act: onWatches(func(http.ResponseWriter, *http.Request) {})},
	"every request is to be tried again in an hour":       {act: later},
	"every answer comes byte by byte":                     {act: slow},
	"every watch stands and says nothing":                 {act: onWatches(silent)},
	"every request is answered with the hub's own token":  {act: echo},
	"every answer is an error of 10 MB":                   {act: longError},
	"every header is as long as it may be, and then more": {act: longHeader},
}

func TestHonestMembersDoNotNotice(t *testing.T) {
	for name, a := range attacks {
		if *full || a.short {
			t.Run(name, func(t *testing.T) { stage.play(t, name, a) })
		}
	}
	if *report != "" {
		harness.Must(t, harness.WriteReport(*report, stage.figures))
	}
}

// play plays one attack.
func (s *scene) play(t *testing.T, name string, a attack) {
	s.restart(t)
	leader, err := s.leader(t.Context())
	harness.Must(t, err)
	v := s.LookFor(t)
	hubs := s.Hubs()
	u := watchUsage(t, hubs[len(hubs)-2:])
	s.front.Play(a.act)
	defer s.front.Play(nil)
	s.endure(t, a)
	var f figures
	f.RenewalDelayP99Seconds, f.Lapsed = s.delays(v, leader)
	if *full {
		f.FailoverOverFloorSeconds = s.loseLeader(t, leader).Seconds()
	}
	f.PeakRSSMiB, f.CPUCores = u.stop()
	s.figures[name] = f
	t.Logf("%+v, %d requests so far", f, s.front.Requests())
	for _, wrong := range f.judge() {
		t.Error(wrong)
	}
}

// endure lets an attack go on, and sees how the hub shows it.
func (s *scene) endure(t *testing.T, a attack) {
	t.Helper()
	lasts, shown := briefly, a.shown == ""
	if *full {
		lasts = attackLasts
	}
	look := func(ctx context.Context) error {
		c, err := s.Candidate(ctx, shop, far)
		if err != nil {
			return err
		}
		if shown = shown || c.Reason == a.shown; !shown {
			return fmt.Errorf("it is shown as %s: %s", c.Reason, c.Message)
		}
		return nil
	}
	harness.Must(t, s.during(t.Context(), lasts, func(ctx context.Context) { _ = look(ctx) }))
	s.Eventually(t, patience, fmt.Sprintf("the hostile member is shown as %s", a.shown), look)
}

// during looks at the processes and calls look every now and then.
func (s *scene) during(ctx context.Context, d time.Duration, look func(context.Context)) error {
	end := time.Now().Add(d)
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for time.Now().Before(end) {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.Check(); err != nil {
			return fmt.Errorf("a replica has ended under the attack: %w", err)
		}
		look(ctx)
	}
	return nil
}

// loseLeader cuts the leader off and returns how much later than D + ε another one leads.
func (s *scene) loseLeader(t *testing.T, leader string) time.Duration {
	t.Helper()
	began := time.Now()
	proxy := s.Fleet.Member(leader).Proxy()
	proxy.BlackHole()
	defer proxy.Heal()
	s.Eventually(t, patience, "another one leads", func(ctx context.Context) error {
		now, err := s.leader(ctx)
		if err == nil && now == leader {
			err = errors.New("the lost one still does")
		}
		return err
	})
	return max(0, time.Since(began)-s.Timings.Duration-s.Timings.Skew)
}
