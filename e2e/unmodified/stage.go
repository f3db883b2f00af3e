package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

// namespace is what the clusters lead.
const namespace = "shop"

// clusters are the members. The first one leads first.
var clusters = []string{"east", "west", "south"}

// stopTime is how long the holder of a lock may go on after the term: its renew deadline, a request of half of that, and its retry
// period.
const stopTime = 7 * time.Second

// stageOptions describe the fleet, which fences the locks of these programs.
func stageOptions(dir string, say func(string), programs ...*program) harness.Options {
	o := harness.Options{Timings: harness.Fast, Dir: dir, Progress: say, Fencing: &v1alpha1.Fencing{}}
	for _, p := range programs {
		o.Fencing.LeaderElectionLocks = append(o.Fencing.LeaderElectionLocks, p.lock)
	}
	for i, name := range clusters {
		o.Members = append(o.Members, harness.Member{Name: name, Priority: 100 - i, Namespaces: []string{namespace}})
	}
	return o
}

// stage is a fleet with programs in each member.
type stage struct {
	*harness.Drill
	say         func(string)
	fenced      string // what the policy says of the fences
	view        *harness.View
	programs    []*program
	controllers []*controller
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
			if err := d.Members[m].Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.lock.Namespace}}); err != nil {
				return nil, fmt.Errorf("the namespace of the lock in %s: %w", m, err)
			}
		}
	}
	if s.fenced, err = s.AwaitFenced(ctx); err != nil { // before that any of them takes its lock
		return nil, err
	}
	for _, p := range programs {
		for _, m := range clusters {
			c, err := startController(ctx, d, p, m)
			if err != nil {
				return nil, err
			}
			s.controllers = append(s.controllers, c)
		}
		say(fmt.Sprintf("the real %s runs in %s, with the lock %s/%s", p.name, strings.Join(clusters, ", "), p.lock.Namespace, p.lock.Name))
	}
	leader, err := s.AwaitLeader(ctx, namespace, "")
	if err != nil {
		return nil, err
	}
	return s, s.awaitWrite(ctx, leader)
}

// close ends what begin has started.
func (s *stage) close() error {
	var group errgroup.Group
	for _, c := range s.controllers {
		group.Go(c.close)
	}
	err := group.Wait()
	if s.view != nil {
		s.view.Close()
	}
	return err
}

// awaitWrite returns when each program has written something in a member from now on.
func (s *stage) awaitWrite(ctx context.Context, member string) error {
	since := harness.Now().Boot
	return s.Await(ctx, time.Minute, "the controllers of "+member+" write", func(context.Context) error {
		for _, c := range s.controllers {
			if err := c.check(); err != nil {
				return err
			}
			if c.member == member && !c.wrote(since) {
				return fmt.Errorf("%s has written nothing", c.name)
			}
		}
		return nil
	})
}

// judge judges all that was seen, each program by itself.
func (s *stage) judge() (map[string]verdict, error) {
	all, promises, errs := map[string]verdict{}, s.promises(), []error{s.Check()}
	for _, p := range s.programs {
		var writes, holds []harness.Act
		for _, c := range s.controllers {
			if c.program != p {
				continue
			}
			w, h, err := c.acts()
			writes, holds = append(writes, w...), append(holds, h...)
			errs = append(errs, err, c.check())
		}
		all[p.name] = judge(writes, holds, promises, stopTime)
	}
	return all, errors.Join(errs...)
}

// promises are those that were seen.
func (s *stage) promises() (all []promise) {
	for place, led := range s.view.Terms() {
		member, _, _ := strings.Cut(place.Cluster, ".")
		for _, l := range led {
			all = append(all, promise{member, l.Epoch, harness.BootOf(l.RenewTime, l.At), harness.BootOf(l.Deadline(), l.At)})
		}
	}
	return all
}
