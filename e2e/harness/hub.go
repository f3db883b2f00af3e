package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// HubNamespace is where the hub runs, by config/.
	HubNamespace = "leasecast-system"
	// HubName is the name of the hub's service account and of its election, by config/.
	HubName = "leasecast-hub"
	// FleetNamespace is the namespace of the Clusters that config/fleet gives the hub access to.
	FleetNamespace = "default"
)

// electionPatience bounds the wait for a hub process to be elected: client-go's elector looks every
// second, and a predecessor that died is waited for.
const electionPatience = 30 * time.Second

// installHub applies config/crd, config/rbac and config/fleet, and writes a kubeconfig file for the
// hub's service account. It leads through the proxy of the hub's server.
func installHub(ctx context.Context, p Programs, c client.Client, s *fleet.Server, dir string) (kubeconfig string,
	err error) {
	for _, folder := range []string{"crd", "rbac", "fleet"} {
		objects, err := p.kustomization(ctx, folder)
		if err != nil {
			return "", err
		}
		if err := apply(ctx, c, objects); err != nil {
			return "", fmt.Errorf("config/%s: %w", folder, err)
		}
	}
	config, err := s.TokenConfig(ctx, HubNamespace, HubName)
	if err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(dir, HubName+".kubeconfig")
	return kubeconfig, fleet.WriteKubeconfig(kubeconfig, HubName, s.ViaProxy(config))
}

// AllowFencing applies config/fencing in a member.
func (d *Drill) AllowFencing(ctx context.Context, member string) error {
	objects, err := d.programs.kustomization(ctx, "fencing")
	if err == nil {
		err = apply(ctx, d.Members[member], objects)
	}
	if err != nil {
		return fmt.Errorf("config/fencing in %s: %w", member, err)
	}
	return nil
}

// StartHub starts one more replica of the hub. It does not wait for anything: see
// [Drill.AwaitElected]. Flags that are given count more than those that the drill gives it.
func (d *Drill) StartHub(flags ...string) (*process.Process, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p, err := startHub(fmt.Sprintf("hub-%d", len(d.hubs)+1), d.dir, d.programs, d.hubKubeconfig, flags...)
	if err != nil {
		return nil, err
	}
	d.hubs = append(d.hubs, p)
	return p, nil
}

// startHub starts a hub process.
func startHub(name, dir string, programs Programs, kubeconfig string, flags ...string) (*process.Process, error) {
	return process.Start(name, filepath.Join(dir, name+".log"), programs.Hub, append([]string{
		"--kubeconfig=" + kubeconfig,
		"--hub-namespace=" + HubNamespace,
		"--namespace=" + FleetNamespace,
		"--allow-local-addresses",
		"--metrics-address=0",
		"--probe-address=0",
	}, flags...)...)
}

// beginsAgain is what a hub logs before it begins again in place, as the same process, because it has lost its
// election.
const beginsAgain = "The election is lost: the hub begins again"

// BegunAgain counts in a hub's log how often it has lost its election and begun again.
func BegunAgain(log string) (int, error) {
	text, err := os.ReadFile(log)
	return strings.Count(string(text), beginsAgain), err
}

// AwaitElected returns when one of the hub's replicas has been elected.
func (d *Drill) AwaitElected(ctx context.Context) error {
	return d.Await(ctx, electionPatience, "a hub process is elected", func(ctx context.Context) error {
		_, holder, err := d.Election(ctx, HubNamespace)
		if err == nil && holder == "" {
			err = errors.New("nobody holds the election")
		}
		return err
	})
}

// Election reads the Lease of the election of the hubs in a namespace, and who holds it.
func (s *Site) Election(ctx context.Context, namespace string) (l *coordinationv1.Lease, holder string, err error) {
	l = &coordinationv1.Lease{}
	err = s.Hub.Get(ctx, client.ObjectKey{Namespace: namespace, Name: HubName}, l)
	return l, strings.TrimSpace(ptr.Deref(l.Spec.HolderIdentity, "")), err
}
