package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// clusters are the members. The first one leads first.
var clusters = []string{"east", "west", "south"}

// patience bounds the wait for what comes beyond stop times.
const patience = 2 * time.Minute

// stageOptions describe the fleet. It has a policy for each program, which fences its lock.
func stageOptions(dir string, say func(string), programs ...*program) harness.Options {
	o := harness.Options{Timings: harness.Fast, Dir: dir, Progress: say, Fences: map[string]*v1alpha1.Fencing{}}
	var namespaces []string
	for _, p := range programs {
		namespaces = append(namespaces, p.namespace)
		o.Fences[p.namespace] = &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{p.lock}}
	}
	for i, name := range clusters {
		o.Members = append(o.Members, harness.Member{Name: name, Priority: 100 - i, Namespaces: namespaces})
	}
	return o
}

// stage is a fleet with programs in each member.
type stage struct {
	*harness.Drill
	say       func(string)
	view      *harness.View
	programs  []*program
	instances []instance
}

// begin starts the programs, and returns when each of them writes.
func begin(ctx context.Context, d *harness.Drill, say func(string), programs ...*program) (s *stage, err error) {
	s = &stage{Drill: d, say: say, programs: programs}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.view, err = d.Look(ctx); err != nil {
		return nil, err
	}
	for _, m := range clusters {
		for _, p := range programs {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: p.lock.Namespace, Labels: map[string]string{v1alpha1.FencingLabel: v1alpha1.FencingAllowed},
			}}
			if err := d.Members[m].Create(ctx, ns); client.IgnoreAlreadyExists(err) != nil {
				return nil, fmt.Errorf("the namespace of the lock in %s: %w", m, err)
			}
		}
	}
	for _, p := range programs { // before any of them takes its lock
		fenced, err := s.AwaitFenced(ctx, p.namespace)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.name, err)
		}
		if want := fmt.Sprintf("takes %v more, for the lock %s/%s", p.stop, p.lock.Namespace,
			p.lock.Name); !strings.Contains(fenced, want) {
			return nil, fmt.Errorf("%s: its policy's condition Fenced is %q, want that it %s", p.name, fenced, want)
		}
	}
	for _, p := range programs {
		for _, m := range clusters {
			i, err := p.start(ctx, d, p, m)
			if err != nil {
				return nil, err
			}
			s.instances = append(s.instances, i)
		}
		say(fmt.Sprintf("%s runs in %s, with the lock %s/%s, whose stop time is %v",
			p.name, strings.Join(clusters, ", "), p.lock.Namespace, p.lock.Name, p.stop))
	}
	return s, s.awaitWrites(ctx, "", programs)
}

// close ends what begin has started.
func (s *stage) close() error {
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

// slowest is the largest stop time of these programs.
func slowest(programs []*program) (stop time.Duration) {
	for _, p := range programs {
		stop = max(stop, p.stop)
	}
	return stop
}

// awaitWrites returns when each of these programs is led by another cluster than that, and has written something there
// from now on. It waits for the slowest lock, twice, because a lock may have to be opened first.
func (s *stage) awaitWrites(ctx context.Context, than string, programs []*program) error {
	since := harness.Now().Boot
	return s.Await(ctx, 2*slowest(programs)+patience, "each program writes where its cluster leads",
		func(ctx context.Context) error {
			if err := s.check(); err != nil {
				return err
			}
			for _, p := range programs {
				r, err := s.Record(ctx, p.namespace)
				if err != nil {
					return err
				}
				if r.Spec.Leader == "" || r.Spec.Leader == than {
					return fmt.Errorf("the leader of %s is %q, state %s", p.namespace, r.Spec.Leader, r.Spec.State)
				}
				if i := s.instance(p, r.Spec.Leader); !i.wrote(since) {
					return fmt.Errorf("%s has written nothing in %s", p.name, r.Spec.Leader)
				}
			}
			return nil
		})
}

// instance is a program in a member.
func (s *stage) instance(p *program, member string) instance {
	return s.instances[slices.IndexFunc(s.instances, func(i instance) bool { return i.of() == p && i.in() == member })]
}

// controllers are the real programs of a member.
func (s *stage) controllers(member string) (all []*controller) {
	for _, i := range s.instances {
		if c, is := i.(*controller); is && c.member == member {
			all = append(all, c)
		}
	}
	return all
}

// check returns an error if a program does not start, or cannot be watched.
func (s *stage) check() error {
	var errs []error
	for _, i := range s.instances {
		errs = append(errs, i.check())
	}
	return errors.Join(errs...)
}

// judge judges all that was seen, each program by itself.
func (s *stage) judge() (map[string]verdict, error) {
	all, promises, errs := map[string]verdict{}, s.promises(), []error{s.Check(), s.check()}
	for _, p := range s.programs {
		var writes, holds []harness.Act
		for _, i := range s.instances {
			if i.of() != p {
				continue
			}
			w, h, err := i.acts()
			writes, holds = append(writes, w...), append(holds, h...)
			errs = append(errs, err)
		}
		all[p.name] = judge(writes, holds, promises[p.namespace], p.stop)
	}
	return all, errors.Join(errs...)
}

// promises are those that were seen, by namespace.
func (s *stage) promises() map[string][]promise {
	all := map[string][]promise{}
	for place, led := range s.view.Terms() {
		member, _, _ := strings.Cut(place.Cluster, ".")
		for _, l := range led {
			all[place.Namespace] = append(all[place.Namespace],
				promise{member, l.Epoch, harness.BootOf(l.RenewTime, l.At), harness.BootOf(l.Deadline(), l.At)})
		}
	}
	return all
}
