package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/hub"
)

// Second is a second management cluster beside that of the drill, with a hub installed and
// nothing to do for it. One goroutine may use it.
type Second struct {
	*process.Process // the hub
	Fleet            *fleet.Fleet

	drill      *Drill
	client     client.WithWatch
	dir        string
	kubeconfig string
	processes  []*process.Process
}

// StartSecond starts a second management cluster and returns when its hub process has been
// elected. It stops with the drill. ctx bounds the start only; after an error nothing is left
// running.
func (d *Drill) StartSecond(ctx context.Context) (s *Second, err error) {
	f, err := fleet.Start(ctx, fleet.Options{})
	if err != nil {
		return nil, err
	}
	s = &Second{Fleet: f, drill: d, dir: filepath.Join(d.dir, "second")}
	if err := s.populate(ctx); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seconds = append(d.seconds, s)
	return s, nil
}

func (s *Second) populate(ctx context.Context) error {
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return fmt.Errorf("folder of the second hub: %w", err)
	}
	var err error
	if s.client, err = client.NewWithWatch(s.Fleet.Hub().AdminConfig(), client.Options{Scheme: hub.Scheme()}); err != nil {
		return fmt.Errorf("client of the second hub: %w", err)
	}
	if s.kubeconfig, err = installHub(ctx, s.drill.programs, s.client, s.Fleet.Hub(), s.dir); err != nil {
		return fmt.Errorf("install the second hub: %w", err)
	}
	if err := s.StartHub(); err != nil {
		return err
	}
	return Await(ctx, electionPatience, "the second hub is elected", func(ctx context.Context) error {
		return errors.Join(s.Check(), elected(ctx, s.client))
	})
}

// StartHub starts a hub process in the place of one that has ended.
func (s *Second) StartHub() (err error) {
	s.Process, err = startHub(fmt.Sprintf("second-hub-%d", len(s.processes)+1), s.dir, s.drill.programs, s.kubeconfig)
	if err == nil {
		s.processes = append(s.processes, s.Process)
	}
	return err
}

// Client is the administrator's client of the second management cluster.
func (s *Second) Client() client.WithWatch { return s.client }

// Record reads the record of a namespace.
func (s *Second) Record(ctx context.Context, namespace string) (*v1alpha1.NamespaceLeader, error) {
	r := &v1alpha1.NamespaceLeader{}
	return r, s.client.Get(ctx, client.ObjectKey{Namespace: FleetNamespace, Name: namespace}, r)
}

// stop ends the processes and the management cluster, and returns when all is gone.
func (s *Second) stop() error {
	group := errgroup.Group{}
	for _, p := range s.processes {
		group.Go(p.Stop)
	}
	return errors.Join(group.Wait(), s.Fleet.Stop())
}
