package install

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	hublib "github.com/leasecast/leasecast/hub"
)

// rolled is the number of namespaces that are led during the update.
const rolled = 20

// upgradeFrom is the environment variable that names a checkout of the version to upgrade from (make upgrade). Without
// it, this version takes the place of itself.
const upgradeFrom = "UPGRADE_FROM"

// What the Deployment's strategy does: a new replica is ready before an old one must end. It finds the records,
// the seal and the guards of the old ones.
func TestARollingUpgradeEndsNoTerm(t *testing.T) {
	w := newWorld(t, "east")
	old := cmp.Or(os.Getenv(upgradeFrom), root(t))
	w.Timings = v1alpha1.Timings{
		LeaseDurationMilliseconds:  15_000,
		RenewIntervalMilliseconds:  5000,
		RequestTimeoutMilliseconds: 3000,
		MaxClockSkewMilliseconds:   1000,
	}
	w.makeIn(old, "deploy")
	w.makeIn(old, "build")
	program := filepath.Join(old, "bin", hubName)
	replicas := []*hub{w.startProgram(program), w.startProgram(program)}
	w.register("east")
	var names []string
	for i := range rolled {
		names = append(names, fmt.Sprintf("shop-%d", i))
		w.Namespace(names[i], "east")
	}
	w.Policy("shops", names...)
	epochs := map[string]int64{}
	for _, name := range names {
		epochs[name] = w.Leads("east", name, patience, "east")
	}
	east, err := client.NewWithWatch(w.Servers.Member("east").AdminConfig(), client.Options{Scheme: hublib.Scheme()})
	w.Must(err)
	copies := harness.Get(harness.Observe(t.Context(), east, &coordinationv1.LeaseList{}, &coordinationv1.Lease{},
		client.HasLabels{v1alpha1.ManagedLabel}))(w.T)
	defer copies.Stop()

	w.make("deploy")
	for range 2 {
		next := w.startHub()
		harness.Eventually(t, patience, "the new replica is ready", next.ready)
		w.Must(replicas[0].Stop())
		replicas = append(slices.Delete(replicas, 0, 1), next)
	}
	upgraded := harness.Now().Wall
	harness.Eventually(t, patience, "a new replica has renewed everything", func(context.Context) error {
		seen := harness.LedIn(copies.Seen())
		for _, name := range names {
			if led := seen[name]; len(led) == 0 || !led[len(led)-1].RenewTime.After(upgraded) {
				return errors.New(name)
			}
		}
		return nil
	})
	seen := harness.LedIn(copies.Seen())
	for _, name := range names {
		led := seen[name]
		if len(led) == 0 || led[0].Epoch != epochs[name] {
			t.Errorf("%s: %d sightings, epoch %d before", name, len(led), epochs[name])
			continue
		}
		if left, err := harness.Unbroken(led, harness.Now().Wall); err != nil || led[len(led)-1].Epoch != epochs[name] {
			t.Errorf("%s: epoch %d, was %d; %v", name, led[len(led)-1].Epoch, epochs[name], err)
		} else if left < 5*time.Second {
			t.Errorf("%s: %v before its end the term was renewed", name, left)
		}
	}
}
