package controller

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/tenure"
)

// setup is a manager that keeps what it is given, and refuses one of it.
type setup struct {
	mcmanager.Manager
	local   *setupLocal
	added   []mcmanager.Runnable
	refuses int // the number of what is refused, from 1 on
}

func (m *setup) GetLocalManager() manager.Manager { return m.local }

func (m *setup) Add(r mcmanager.Runnable) error {
	m.added = append(m.added, r)
	if len(m.added) == m.refuses {
		return errRefused
	}
	return nil
}

type setupLocal struct {
	manager.Manager
	api     client.Client
	added   []manager.Runnable
	refuses bool
}

func (m *setupLocal) GetClient() client.Client                     { return m.api }
func (m *setupLocal) GetAPIReader() client.Reader                  { return m.api }
func (m *setupLocal) GetCache() cache.Cache                        { return &informertest.FakeInformers{} }
func (m *setupLocal) GetLogger() logr.Logger                       { return logr.Discard() }
func (m *setupLocal) GetControllerOptions() config.Controller      { return config.Controller{} }
func (m *setupLocal) GetEventRecorder(string) events.EventRecorder { return silent{} }

func (m *setupLocal) Add(r manager.Runnable) error {
	m.added = append(m.added, r)
	if m.refuses {
		return errRefused
	}
	return nil
}

// atOnce is how many requests a controller works on at once.
func atOnce(r mcmanager.Runnable) int {
	inner := reflect.ValueOf(r).Elem().FieldByName("TypedController")
	return int(inner.Elem().Elem().FieldByName("MaxConcurrentReconciles").Int())
}

func TestWhatAManagerRuns(t *testing.T) {
	for refused, want := range []error{nil, errRefused, errRefused, errRefused, errRefused} {
		c := New(Options{Fleet: fleet.New(fleet.Options{}), Tenure: tenure.New(fixedClock(musterStart), 6*time.Second),
			Clock: fixedClock(musterStart)})
		m := &setup{local: &setupLocal{api: hubOf(t, c), refuses: refused == 4}, refuses: refused}
		c.Client, c.Live, c.events = nil, nil, nil
		if err := c.SetupWithManager(m); !errors.Is(err, want) {
			t.Fatalf("with the runnable %d refused: %v, want %v", refused, err, want)
		}
		if want != nil {
			continue
		}
		if c.Client == nil || c.Live == nil || c.events == nil {
			t.Error("what it reaches the hub's API server by is missing")
		}
		if len(m.added) != 3 || m.added[2] != mcmanager.Runnable(c) ||
			!slices.Contains(m.local.added, manager.Runnable(c.hubClock)) {
			t.Fatalf("added are %v and %v", m.added, m.local.added)
		}
		if records, policies := atOnce(m.added[0]), atOnce(m.added[1]); records != 16 || policies != 1 {
			t.Errorf("%d records and %d policies at once: what members are probed with is set by one at a time", records,
				policies)
		}
	}
}

// By such a clock nobody could lead: another replica is to have the election.
func TestAReplicaWithAWrongClockDoesNotCampaign(t *testing.T) {
	for name, test := range map[string]struct {
		by    time.Duration
		takes bool
	}{"a clock that is right": {0, true}, "one that all clusters contradict": {time.Hour, false}} {
		c := watching(t, aheadBy(test.by), timings("p", 15, time.Second))
		c.Fleet = fleet.New(fleet.Options{})
		sees, api := c.source, c.Client
		if err := c.SetupWithManager(&setup{local: &setupLocal{api: api}}); err != nil {
			t.Fatal(err)
		}
		c.source = sees
		if err := c.hubClock.learn(t.Context()); err != nil {
			t.Fatal(err)
		}
		lock := c.Tenure.Lock(oneElection{said: resourcelock.LeaderElectionRecord{}})
		_, _, _ = lock.Get(t.Context())
		err := lock.Update(context.Background(), resourcelock.LeaderElectionRecord{HolderIdentity: "me",
			RenewTime: metav1.NewTime(musterStart.Wall)})
		if (err == nil) != test.takes {
			t.Errorf("%s: %v", name, err)
		}
	}
}
