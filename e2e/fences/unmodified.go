package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// patience bounds the wait for what comes beyond stop times.
	patience = 2 * time.Minute
	// lateAdmission is when electors that take their lock are admitted, after the hub has lost the leader. The term ends 2
	// to 3 s after that, and a fence may refuse them a second earlier.
	lateAdmission = 800 * time.Millisecond
	// stopped is how long an elector that has stopped has done nothing.
	stopped = time.Second
)

// clusters are the members. The first one leads first.
var clusters = []string{"east", "west", "south"}

// fault befalls the leader in a round, beside the loss of its link to the hub. In each of them its API server answers
// electors as late as it may.
type fault string

const (
	// whileRenewing: its electors renew their locks.
	whileRenewing fault = "the hub loses the leader, whose API server hangs while electors renew"
	// whileTaking: its electors are restarted, and take their locks shortly before the end of the term.
	whileTaking fault = "the hub loses the leader, whose API server hangs while electors take their locks"
)

// rounds are the faults, in order.
var rounds = []fault{whileTaking, whileRenewing, whileTaking, whileRenewing}

// result is out/drill-unmodified.json.
type result struct {
	// verdict is that of all programs together.
	verdict
	Programs map[string]verdict `json:"programs"`
	Rounds   int                `json:"rounds"`
	// Failovers counts those of each program.
	Failovers int `json:"failovers"`
	// AnsweredLate are the requests of electors whose answers the hanging API servers held back, for up to a minute.
	AnsweredLate late `json:"answeredLate"`
}

func (r result) String() string {
	return fmt.Sprintf("answered late: %v\n%d failovers of %d programs in %d rounds: "+
		"%d overlaps, of %.1f s at worst, and %d late writes among %d; "+
		"at worst nobody wrote for %.1f s, the closest two holders were %.1f s apart",
		r.AnsweredLate, r.Failovers, len(r.Programs), r.Rounds, r.Overlaps, r.WorstOverlapSeconds, r.Late, r.Writes,
		r.WorstGapSeconds, r.ClosestSeconds)
}

// failed is an error if a program worked where it must not, or if nothing was seen.
func (r result) failed() error {
	if len(r.Breaches) > 0 {
		return fmt.Errorf("%d breaches; the first: %s", len(r.Breaches), r.Breaches[0])
	}
	if l := r.AnsweredLate; r.Rounds >= len(rounds) && (l[acquisition] == 0 || l[renewal] == 0 || l[giveUp] == 0) {
		return fmt.Errorf("the answers that came late are %v: no API server hung", l)
	}
	for name, v := range r.Programs {
		if v.Writes == 0 || v.Changes == 0 || v.Holds == 0 {
			return fmt.Errorf("no %s wrote after another one, or no log shows its lock: nothing was seen", name)
		}
	}
	return nil
}

// testbed is a fleet with programs in each member.
type testbed struct {
	*harness.Drill
	say       func(string)
	rounds    int
	programs  []*program
	view      *harness.View
	instances []*instance
}

// fleet has a policy for each program, which fences its lock.
func (s *testbed) fleet() harness.Options {
	o := harness.Options{Timings: harness.Fast, Fences: map[string]*v1alpha1.Fencing{}}
	var namespaces []string
	for _, p := range s.programs {
		namespaces = append(namespaces, p.namespace)
		o.Fences[p.namespace] = &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{p.lock}}
	}
	o.Members = harness.Members(clusters, namespaces...)
	return o
}

// begin starts the programs, and returns when each of them writes.
func (s *testbed) begin(ctx context.Context, d *harness.Drill) {
	s.Drill, s.view = d, must.Get(d.Look(ctx))
	for _, p := range s.programs {
		for _, m := range clusters {
			must.Do(client.IgnoreAlreadyExists(d.Members[m].Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: p.lock.Namespace, Labels: map[string]string{v1alpha1.FencingLabel: v1alpha1.FencingAllowed},
			}})))
		}
	}
	for _, p := range s.programs { // before any of them takes its lock
		fenced := must.Get(s.AwaitFenced(ctx, p.namespace))
		if want := fmt.Sprintf("takes %v more, for the lock %s/%s", p.stop, p.lock.Namespace,
			p.lock.Name); !strings.Contains(fenced, want) {
			must.Fail("%s: its policy's condition FencesInForce is %q, want that it %s", p.name, fenced, want)
		}
	}
	for _, p := range s.programs {
		for _, m := range clusters {
			i := &instance{program: p, member: m, client: d.Members[m], stop: func() {}}
			s.instances = append(s.instances, i)
			i.start(ctx, d)
		}
		s.say(fmt.Sprintf("%s runs in %s, with the lock %s/%s, whose stop time is %v",
			p.name, strings.Join(clusters, ", "), p.lock.Namespace, p.lock.Name, p.stop))
	}
	s.awaitWrites(ctx, "", s.programs)
}

// close ends what begin has started.
func (s *testbed) close() error {
	var group errgroup.Group
	for _, i := range s.instances {
		group.Go(i.close)
	}
	err := group.Wait()
	if s.view != nil {
		s.view.Close()
	}
	return err
}

// awaitWrites returns when each of these programs is led by another cluster than that, and has written something there
// from now on. It waits for the slowest lock, twice, because a lock may have to be opened first.
func (s *testbed) awaitWrites(ctx context.Context, than string, programs []*program) {
	since := harness.Now().Boot
	slowest := slices.MaxFunc(programs, func(a, b *program) int { return int(a.stop - b.stop) }).stop
	must.Do(s.Await(ctx, 2*slowest+patience, "each program writes where its cluster leads",
		func(ctx context.Context) error {
			must.Do(s.check())
			for _, p := range programs {
				r := must.Get(s.Record(ctx, p.namespace))
				if r.Spec.Leader == "" || r.Spec.Leader == than {
					return fmt.Errorf("the leader of %s is %q, state %s", p.namespace, r.Spec.Leader, r.Spec.State)
				}
				if i := s.instance(p, r.Spec.Leader); !i.wrote(since) {
					return fmt.Errorf("%s has written nothing in %s", p.name, r.Spec.Leader)
				}
			}
			return nil
		}))
}

// instance is a program in a member.
func (s *testbed) instance(p *program, member string) *instance {
	return s.instances[slices.IndexFunc(s.instances, func(i *instance) bool {
		return i.program == p && i.member == member
	})]
}

// check returns an error if a program does not start, or cannot be watched.
func (s *testbed) check() error {
	var errs []error
	for _, i := range s.instances {
		errs = append(errs, i.check())
	}
	return errors.Join(errs...)
}

// judge judges all that was seen, each program by itself.
func (s *testbed) judge() map[string]verdict {
	promises := map[string][]promise{} // by namespace
	for place, led := range s.view.Terms() {
		member, _, _ := strings.Cut(place.Cluster, ".")
		for _, l := range led {
			promises[place.Namespace] = append(promises[place.Namespace],
				promise{member, l.Epoch, l.Stamp(), harness.BootOf(l.Deadline(), l.At)})
		}
	}
	must.Do(errors.Join(s.Check(), s.check()))
	all := map[string]verdict{}
	for _, p := range s.programs {
		var writes, holds []harness.Act
		for _, m := range clusters {
			w, h := s.instance(p, m).acts()
			writes, holds = append(writes, w...), append(holds, h...)
		}
		all[p.name] = judge(writes, holds, promises[p.namespace], p.stop)
	}
	return all
}

// play changes the leader some times, and judges what the programs did.
func (s *testbed) play(ctx context.Context, d *harness.Drill) report {
	defer func() { _ = s.close() }() // at worst they end with this program
	s.begin(ctx, d)
	r := result{AnsweredLate: late{acquisition: 0, renewal: 0, giveUp: 0}}
	for i := range s.rounds {
		f := rounds[i%len(rounds)]
		changed := s.failOver(ctx, f)
		r.Rounds, r.Failovers = r.Rounds+1, r.Failovers+changed
		r.Programs = s.judge()
		r.verdict = together(r.Programs)
		s.say(fmt.Sprintf("round %d: %s; %d programs failed over, %d writes so far, %d overlaps, %d late",
			i+1, f, changed, r.Writes, r.Overlaps, r.Late))
	}
	for _, i := range s.instances {
		if i.way != nil {
			i.way.addLate(r.AnsweredLate)
		}
	}
	return r
}

// failOver has the hub lose a leader, until all programs that it led write in another cluster. It returns how many they
// are.
func (s *testbed) failOver(ctx context.Context, f fault) (changed int) {
	from := must.Get(s.AwaitLeader(ctx, s.programs[0].namespace, ""))
	s.awaitWrites(ctx, "", s.programs)
	var led []*program
	var namespaces []string
	var electors []*instance
	for _, p := range s.programs {
		if must.Get(s.Record(ctx, p.namespace)).Spec.Leader != from {
			continue
		}
		led, namespaces = append(led, p), append(namespaces, p.namespace)
		if i := s.instance(p, from); i.way != nil {
			electors = append(electors, i)
		}
	}
	admit := make(chan struct{})
	for _, e := range electors {
		e.way.begin(admit)
		defer e.way.release()
	}
	if f == whileTaking {
		s.restart(ctx, electors)
	}
	s.lose(ctx, from, led, admit)
	s.awaitStopped(ctx, electors)
	must.Do(s.AwaitEligible(ctx, patience, from, namespaces...))
	return len(led)
}

// restart returns when all electors have asked for their locks again.
func (s *testbed) restart(ctx context.Context, electors []*instance) {
	var group errgroup.Group
	for _, e := range electors {
		group.Go(func() error { return e.restart(ctx) })
	}
	must.Do(group.Wait(), "restart electors")
	must.Do(s.Await(ctx, patience, "restarted electors ask for their locks", func(context.Context) error {
		for _, e := range electors {
			if e.way.waiting.Load() == 0 {
				return fmt.Errorf("%s does not ask for its lock", e.name)
			}
		}
		return nil
	}))
}

// lose has the hub lose a cluster, and returns when the programs write in another one.
func (s *testbed) lose(ctx context.Context, from string, led []*program, admit chan struct{}) {
	server := s.Fleet.Member(from)
	server.Proxy().BlackHole()
	defer server.Proxy().Heal()
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		defer close(admit)
		return process.Pass(groupCtx, lateAdmission)
	})
	group.Go(func() error { return must.Try(func() { s.awaitWrites(groupCtx, from, led) }) })
	must.Do(group.Wait())
}

// awaitStopped returns when no answer to electors is held back any more, and they have stopped.
func (s *testbed) awaitStopped(ctx context.Context, electors []*instance) {
	must.Do(s.Await(ctx, patience, "the electors have stopped", func(context.Context) error {
		for _, e := range electors {
			if e.way.held.Load() > 0 {
				return fmt.Errorf("%s waits for an answer", e.name)
			}
			if e.wrote(harness.Now().Boot - stopped) {
				return fmt.Errorf("%s still works", e.name)
			}
		}
		return nil
	}))
}

// promise is one version of the Lease of a cluster that leads: it lets the cluster lead from its renewTime until its
// deadline, on the boot clock.
type promise struct {
	member      string
	epoch       int64
	from, until time.Duration
}

// verdict is what the controllers did.
type verdict struct {
	Writes int `json:"writes"`
	// Holds is how often a lock was taken.
	Holds int `json:"holds"`
	// Changes is how often another cluster wrote than before.
	Changes int `json:"changes"`
	// Overlaps are the times when the controllers of two clusters worked at once, or that of an old leader once more
	// after that of its successor.
	Overlaps int `json:"overlaps"`
	// Late are the writes in a cluster that came before the first of its Leases, or later than the stop time after the
	// deadline of the last one.
	Late int `json:"late"`
	// WorstOverlapSeconds is the longest time for which processes in two clusters held the lock.
	WorstOverlapSeconds float64 `json:"worstOverlapSeconds"`
	// WorstGapSeconds is the longest time from the last write of a cluster to the first of the next one.
	WorstGapSeconds float64 `json:"worstGapSeconds"`
	// ClosestSeconds is the shortest time from the end of a process that held its lock until another cluster's is taken.
	ClosestSeconds float64 `json:"closestSeconds"`
	// Breaches tell of each overlap and each late write.
	Breaches []string `json:"breaches,omitempty"`
}

// together adds up what several programs did, each judged by itself.
func together(programs map[string]verdict) (all verdict) {
	first := true
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		v := programs[name]
		if first || v.ClosestSeconds < all.ClosestSeconds {
			all.ClosestSeconds = v.ClosestSeconds
		}
		first = false
		all.Writes, all.Holds, all.Changes = all.Writes+v.Writes, all.Holds+v.Holds, all.Changes+v.Changes
		all.Overlaps, all.Late = all.Overlaps+v.Overlaps, all.Late+v.Late
		all.WorstOverlapSeconds = max(all.WorstOverlapSeconds, v.WorstOverlapSeconds)
		all.WorstGapSeconds = max(all.WorstGapSeconds, v.WorstGapSeconds)
		for _, b := range v.Breaches {
			all.Breaches = append(all.Breaches, name+": "+b)
		}
	}
	return all
}

// judge judges what the controllers wrote, and when their processes held their locks. Every act lies somewhere between
// its Begin and its End; a process holds its lock all that time.
func judge(writes, holds []harness.Act, promises []promise, stop time.Duration) verdict {
	v := verdict{Writes: len(writes), Holds: len(holds)}
	writes, holds = slices.Clone(writes), slices.Clone(holds)
	for i := range writes {
		w := &writes[i]
		w.Epoch = epochAt(promises, w.Cluster, w.End)
		if !slices.ContainsFunc(promises, func(p promise) bool { return p.allows(*w, stop) }) {
			v.Late++
			v.Breaches = append(v.Breaches, fmt.Sprintf("%s wrote at %v, in no term and in no stop time of its own", w.Cluster,
				w.End))
		}
	}
	for i := range holds {
		holds[i].Epoch = epochAt(promises, holds[i].Cluster, holds[i].Begin)
	}
	for _, b := range harness.Breaches(harness.Judge(slices.Concat(writes, holds))) {
		v.Overlaps++
		v.Breaches = append(v.Breaches, b.String())
	}
	v.WorstOverlapSeconds = worstOverlap(holds).Seconds()
	slices.SortFunc(writes, func(a, b harness.Act) int { return cmp.Compare(a.End, b.End) })
	for i := 1; i < len(writes); i++ {
		if before, after := writes[i-1], writes[i]; before.Cluster != after.Cluster {
			v.Changes++
			v.WorstGapSeconds = max(v.WorstGapSeconds, (after.End - before.End).Seconds())
		}
	}
	var apart []float64
	for _, of := range harness.Judge(holds) {
		for _, c := range of.Changes {
			apart = append(apart, c.Gap().Seconds())
		}
	}
	if len(apart) > 0 {
		v.ClosestSeconds = slices.Min(apart)
	}
	return v
}

// worstOverlap is the longest time for which two clusters held the lock.
func worstOverlap(holds []harness.Act) (worst time.Duration) {
	for i, a := range holds {
		for _, b := range holds[:i] {
			if a.Cluster != b.Cluster {
				worst = max(worst, min(a.End, b.End)-max(a.Begin, b.Begin))
			}
		}
	}
	return worst
}

// allows reports whether a write may have come while the promise held, or in the stop time after it.
func (p promise) allows(w harness.Act, stop time.Duration) bool {
	return p.member == w.Cluster && p.from <= w.End && w.Begin <= p.until+stop
}

// epochAt is that of the last term of a cluster that had begun by then, 0 if there was none.
func epochAt(promises []promise, member string, at time.Duration) (epoch int64) {
	for _, p := range promises {
		if p.member == member && p.from <= at {
			epoch = max(epoch, p.epoch)
		}
	}
	return epoch
}
