package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// HubNamespace is where the hub runs, by config/.
	HubNamespace = "leasecast-system"
	// HubName is the name of the hub's service account and of its election, by config/.
	HubName = "leasecast-hub"
	// FleetNamespace is the namespace of the Clusters that config/fleet gives the hub access to.
	FleetNamespace = "default"

	// electionPatience bounds the wait for a hub to be elected. It first waits for a predecessor that died.
	electionPatience = 30 * time.Second
	// electionLost is what a hub logs before it begins again, as the same process.
	electionLost = "The election is lost: the hub begins again"
)

// installHub applies config/rbac and config/fleet, and writes a kubeconfig file for the hub's service account, through
// the proxy of the hub's server. The fleet has the CRDs.
func (d *Drill) installHub(ctx context.Context) {
	s := d.Fleet.Hub()
	must.Do(Apply(ctx, s, "rbac", "fleet"))
	config := must.Get(s.TokenConfig(ctx, HubNamespace, HubName))
	must.Do(fleet.WriteKubeconfig(d.hubKubeconfig(), HubName, s.ViaProxy(config)))
}

func (d *Drill) hubKubeconfig() string { return filepath.Join(d.dir, HubName+".kubeconfig") }

// Allow applies a folder of config in a member: fencing, follow or requires.
func (d *Drill) Allow(ctx context.Context, member, folder string) error {
	return Apply(ctx, d.Fleet.Member(member), folder)
}

// StartHub starts one more replica of the hub, and does not wait until it is elected. The flags override the drill's.
func (d *Drill) StartHub(flags ...string) (*process.Process, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := fmt.Sprintf("hub-%d", len(d.hubs)+1)
	p, err := process.Start(name, filepath.Join(d.dir, name+".log"), "env", append([]string{
		"GOGC=50", "GOMEMLIMIT=409MiB", // as in config/manager
		d.programs.Hub,
		"--kubeconfig=" + d.hubKubeconfig(),
		"--hub-namespace=" + HubNamespace,
		"--namespace=" + FleetNamespace,
		"--allow-local-addresses",
		"--metrics-address=0",
		"--probe-address=0",
	}, flags...)...)
	if err == nil {
		d.hubs = append(d.hubs, p)
	}
	return p, err
}

// BegunAgain counts in a hub's log how often it has lost its election and begun again.
func BegunAgain(log string) (int, error) {
	text, err := os.ReadFile(log)
	return strings.Count(string(text), electionLost), err
}

// awaitElected returns when a replica of the hub is elected.
func (d *Drill) awaitElected(ctx context.Context) error {
	return d.Await(ctx, electionPatience, "a hub process is elected", func(ctx context.Context) error {
		_, holder, err := d.Election(ctx, HubNamespace)
		if err == nil && holder == "" {
			err = errors.New("the election has no holder")
		}
		return err
	})
}

// Election reads the Lease of the election of the hubs in a namespace, and its holder.
func (s *Site) Election(ctx context.Context, namespace string) (l *coordinationv1.Lease, holder string, err error) {
	l = &coordinationv1.Lease{}
	err = s.Hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: HubName}, l)
	return l, strings.TrimSpace(ptr.Deref(l.Spec.HolderIdentity, "")), err
}

// RestartAfter is how long [Drill.Keep] waits before it starts a program again.
const RestartAfter = time.Second

// Keep restarts hub and guestbooks whenever they end, until ctx ends. It reports each end and each restart to progress.
// From then on [Drill.Check] reports restarts that failed, not ends. Call the returned function between the end of ctx
// and [Drill.Stop]: it waits until nothing is restarted anymore.
func (d *Drill) Keep(ctx context.Context, progress func(line string)) (wait func()) {
	keep := func(first *process.Process, again func() (*process.Process, error)) {
		d.keepers = append(d.keepers, process.Keep(ctx, first.Name(), first, func(int) (*process.Process, error) {
			p, err := again()
			if err == nil {
				progress(fmt.Sprintf("%s runs as process %d", p.Name(), p.PID()))
			}
			return p, err
		}, process.KeepOptions{Wait: RestartAfter, MayEnd: true, Ended: func(p *process.Process) {
			progress(fmt.Sprintf("%s has ended (%s), see %s; it starts again", p.Name(), p.How(), p.Log()))
		}}))
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	keep(d.hubs[len(d.hubs)-1], func() (*process.Process, error) { return d.StartHub() })
	for _, member := range slices.Sorted(maps.Keys(d.guestbooks)) {
		keep(d.guestbooks[member].Process, func() (*process.Process, error) { return d.restartGuestbook(member) })
	}
	keepers := slices.Clone(d.keepers)
	return func() {
		for _, k := range keepers {
			<-k.Done()
		}
	}
}

// restartGuestbook starts a guestbook in the place of one that has ended.
func (d *Drill) restartGuestbook(member string) (*process.Process, error) {
	return must.Return(func() *process.Process {
		next := *d.Guestbook(member)
		must.Do(next.Acts.Ended(Now().Boot))
		next.Process = must.Get(next.start())
		d.mu.Lock()
		defer d.mu.Unlock()
		d.guestbooks[member] = &next
		return next.Process
	})
}
