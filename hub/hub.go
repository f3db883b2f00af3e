package hub

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	utilclock "k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	mcmanager "sigs.k8s.io/multicluster-runtime/pkg/manager"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/clock"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/controller"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/follow"
	"github.com/leasecast/leasecast/hub/ledger"
	"github.com/leasecast/leasecast/hub/metrics"
	"github.com/leasecast/leasecast/hub/seal"
	"github.com/leasecast/leasecast/hub/tenure"
	"github.com/leasecast/leasecast/member/pings"
)

// ElectionName is the name of the Lease in the hub's own namespace by which its
// replicas elect the one that writes.
const ElectionName = "leasecast-hub"

// The hub's own election: duration h, renew deadline, retry period. Package tenure computes until when this
// replica may write.
const (
	electionDuration = 6 * time.Second
	renewDeadline    = 4 * time.Second
	retryPeriod      = time.Second
)

// userAgent is the prefix of a replica's user agent in audit logs. Its identity in the election follows.
const userAgent = "leasecast-hub/"

// Options configure a hub.
type Options struct {
	// Namespace is where the hub runs and holds its election. A member namespace of the
	// same name is never managed. It is part of the hub's mark: a hub in another namespace
	// is another one, and does nothing for a fleet that this one serves. Required.
	Namespace string
	// FleetNamespaces are the namespaces whose Clusters are served. Empty means all. In either case each of them takes
	// the right to use its Secrets; where that is missing, policies say so.
	FleetNamespaces []string
	// LocalAddresses lets the hub dial loopback and link-local addresses, which kubeconfigs may name. Whoever may write
	// kubeconfigs then reaches what listens on the hub's machine.
	LocalAddresses bool
	// MetricsAddress and ProbeAddress are host:port; "0" turns the one off. Metrics are served by HTTPS, to
	// clients that may get the URL /metrics by RBAC.
	MetricsAddress, ProbeAddress string
	// MetricsCertDir holds tls.crt and tls.key for that. Empty: each start signs a certificate of its own.
	MetricsCertDir string
	// Metrics is the registry of this hub's metrics while it runs. Nil: they are not collected.
	Metrics prometheus.Registerer
	// Version is the version of the program, for the metrics.
	Version string
	// Verbosity serves the verbosity of the log at the metrics port, and sets it by PUT. Nil: it cannot be set.
	Verbosity http.HandlerFunc
}

// Scheme knows every type that the hub reads or writes on the management cluster.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientgoscheme.AddToScheme(s))
	utilruntime.Must(clusterv1.AddToScheme(s))
	utilruntime.Must(v1alpha1.AddToScheme(s))
	return s
}

// NewManager returns a manager that runs a hub on the management cluster of cfg. It waits for the API server there
// until ctx ends. Start the manager; when Start returns, end the process: its tenure is over. See [LostElection].
func NewManager(ctx context.Context, cfg *rest.Config, o Options) (mcmanager.Manager, error) {
	if o.Namespace == "" {
		return nil, errors.New("hub: Namespace is empty: name the namespace that the hub runs in")
	}
	identity, err := newIdentity()
	if err != nil {
		return nil, err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = userAgent + identity
	lock, err := electionLock(cfg, o.Namespace, identity)
	if err != nil {
		return nil, err
	}
	if cfg, err = pinged(cfg); err != nil {
		return nil, err
	}
	id, err := awaitHubID(ctx, cfg, o)
	if err != nil {
		return nil, err
	}
	clocks := &clock.System{}
	t := tenure.New(clocks, electionDuration)
	api, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	meta, err := metadata.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	f := fleet.New(fleet.Options{
		Namespaces:     o.FleetNamespaces,
		API:            api,
		Metadata:       meta,
		HubID:          id,
		MayWrite:       t.Holds,
		LocalAddresses: o.LocalAddresses,
		UserAgent:      cfg.UserAgent,
		Clock:          clocks,
	})
	serving, err := metrics.Server(o.MetricsAddress, o.MetricsCertDir)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	elector := tenure.TakeOverPromptly(t.Lock(lock), utilclock.RealClock{})
	mgr, err := mcmanager.New(cfg, f, managerOptions(o, serving, elector))
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return mgr, setup(mgr, o, clocks, t, f, id, meta)
}

// setup adds the hub's parts to a manager.
func setup(
	mgr mcmanager.Manager, o Options, clocks lease.Clock, t *tenure.Tenure, f *fleet.Provider, id string,
	meta metadata.Interface,
) error {
	if err := f.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("hub: fleet: %w", err)
	}
	local := mgr.GetLocalManager()
	numbers := metrics.New(metrics.Options{Registerer: o.Metrics, Version: o.Version, Clock: clocks, Elected: t.Holds})
	c := controller.New(controller.Options{
		Fleet:        f,
		Tenure:       t,
		Seals:        seal.NewStore(local.GetAPIReader(), local.GetClient()),
		Clock:        clocks,
		HubID:        id,
		OwnNamespace: o.Namespace,
		Metadata:     meta,
	})
	if err := c.SetupWithManager(mgr); err != nil {
		return fmt.Errorf("hub: controller: %w", err)
	}
	if err := numbers.SetupWithManager(local, f, c); err != nil {
		return fmt.Errorf("hub: metrics: %w", err)
	}
	if err := addDebugging(local, o, c.Cases); err != nil {
		return fmt.Errorf("hub: debugging: %w", err)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("hub: %w", err)
	}
	return mgr.AddReadyzCheck("fleets", func(*http.Request) error { return f.Ready() })
}

// managerOptions limits the caches to what the hub's RBAC lets it read.
func managerOptions(o Options, serving server.Options, lock resourcelock.Interface) manager.Options {
	d, r, p := electionDuration, renewDeadline, retryPeriod
	opts := manager.Options{
		Scheme:                              Scheme(),
		Metrics:                             serving,
		HealthProbeBindAddress:              o.ProbeAddress,
		LeaderElection:                      true,
		LeaderElectionID:                    ElectionName,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       &d,
		RenewDeadline:                       &r,
		RetryPeriod:                         &p,
	}
	opts.Cache.DefaultTransform = ctrlcache.TransformStripManagedFields()
	opts.Cache.ByObject = map[client.Object]ctrlcache.ByObject{
		&clusterv1.Cluster{}:         {Transform: fleet.SlimCluster},
		&v1alpha1.LeadershipPolicy{}: {Transform: slimOwn},
		&v1alpha1.NamespaceLeader{}:  {Transform: slimOwn},
		// What is patched is read whole, its fields' managers aside.
		&v1alpha1.LeaderResourceSet{}: {Transform: follow.Slim},
	}
	if len(o.FleetNamespaces) > 0 {
		opts.Cache.DefaultNamespaces = map[string]ctrlcache.Config{}
		for _, ns := range o.FleetNamespaces {
			opts.Cache.DefaultNamespaces[ns] = ctrlcache.Config{}
		}
	}
	return opts
}

// slimOwn drops from a policy or record what no cache of the hub needs.
func slimOwn(o any) (any, error) {
	if object, ok := o.(client.Object); ok {
		ledger.Slim(object)
	}
	if record, ok := o.(*v1alpha1.NamespaceLeader); ok {
		record.Status = v1alpha1.NamespaceLeaderStatus{Conditions: pressing(record.Status.Conditions)}
	}
	return o, nil
}

// pressing are the conditions of a record that metrics show, without their words.
func pressing(all []metav1.Condition) (some []metav1.Condition) {
	for _, kind := range []string{v1alpha1.ConditionFrozen, v1alpha1.ConditionFailoverPending} {
		if meta.IsStatusConditionTrue(all, kind) {
			some = append(some, metav1.Condition{Type: kind, Status: metav1.ConditionTrue})
		}
	}
	return some
}

// newIdentity names this process as a contender in the hub's election. A restarted one is
// another contender.
func newIdentity() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("hub: %w", err)
	}
	return host + "_" + string(uuid.NewUUID()), nil
}

// hubPings detect a dead connection early enough to renew the election before renewDeadline, and to decide before
// terms end. client-go's own pings take 45 s.
var hubPings = pings.Timing{After: time.Second, Timeout: time.Second}

// pinged returns a configuration with connections of its own, which are pinged and carry the credentials of cfg.
func pinged(cfg *rest.Config) (*rest.Config, error) {
	host, _, err := rest.DefaultServerUrlFor(cfg) // it depends on the TLS settings, if Host has no scheme
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	connections, err := pings.New(cfg, hubPings)
	if err != nil {
		return nil, fmt.Errorf("hub: connections: %w", err)
	}
	cfg = rest.AnonymousClientConfig(cfg)
	cfg.Host, cfg.TLSClientConfig, cfg.Transport = host.String(), rest.TLSClientConfig{}, connections
	return cfg, nil
}

// electionLock is the Lease of the hub's election. No other request delays its own on their connection.
func electionLock(cfg *rest.Config, namespace, identity string) (resourcelock.Interface, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.Timeout = renewDeadline / 2
	cfg.UserAgent += "/leader-election"
	cfg, err := pinged(cfg)
	if err != nil {
		return nil, err
	}
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: namespace, Name: ElectionName},
		Client:     cs.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}, nil
}
