// Package steady holds the tests of what the hub leaves alone: a steady minute of
// renewals, and the life beside the real Cluster API manager. The hub of these tests
// runs under the RBAC of config/, as an installed one does.
package steady

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/zapr"
	"go.uber.org/zap"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/hub"
)

const (
	// fleetNamespace and hubNamespace are those of config/fleet and config/rbac.
	fleetNamespace = "default"
	hubNamespace   = "leasecast-system"
	// hubAccount is the hub's service account, and the field manager of what it writes.
	hubAccount = "leasecast-hub"
	// toolTimeout bounds a call of a program, requestTimeout one of an API server.
	toolTimeout    = time.Minute
	requestTimeout = 10 * time.Second
)

// The timings of the policies here.
const (
	renewInterval    = time.Second
	unreachableAfter = 10 * time.Second
)

func TestMain(m *testing.M) {
	config := zap.NewDevelopmentConfig()
	config.Level = zap.NewAtomicLevelAt(zap.ErrorLevel)
	logger, err := config.Build()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	ctrl.SetLogger(zapr.NewLogger(logger))
	klog.SetLogger(zapr.NewLogger(logger))
	os.Exit(m.Run())
}

// world is a fleet of its own, whose hub knows the RBAC of config/ and no Cluster yet.
type world struct {
	t     *testing.T
	fleet *fleet.Fleet
	// hub and members are clients straight at the API servers, with a timeout.
	hub     client.Client
	members map[string]client.Client
}

func newWorld(t *testing.T, members ...string) *world {
	t.Helper()
	w := &world{t: t, fleet: fleet.New(t, members...), members: map[string]client.Client{}}
	var err error
	scheme := hub.Scheme()
	w.must(apiextensionsv1.AddToScheme(scheme))
	for _, s := range w.fleet.Servers() {
		config := s.AdminConfig()
		config.Timeout = requestTimeout
		w.members[s.Name()], err = client.New(config, client.Options{Scheme: scheme})
		w.must(err)
	}
	w.hub = w.members["hub"]
	delete(w.members, "hub")
	w.apply("config/rbac", "config/fleet")
	w.released()
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// apply applies kustomizations of the repository to the hub, as its users do.
func (w *world) apply(folders ...string) {
	w.t.Helper()
	dir := w.t.TempDir()
	w.must(w.fleet.WriteKubeconfigs(dir))
	for _, folder := range folders {
		run(w.t, filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl"), "apply",
			"--kubeconfig="+filepath.Join(dir, "hub.kubeconfig"), "--cache-dir="+filepath.Join(dir, "cache"),
			"-k", filepath.Join("..", "..", folder))
	}
}

// run runs a program and returns what it printed.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), toolTimeout)
	defer cancel()
	var problems bytes.Buffer
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, problems.Bytes())
	}
	return string(bytes.TrimSpace(out))
}

// released makes the hub find an election that was given up in order long ago, so that
// it need not wait for what a predecessor can have promised.
func (w *world) released() {
	w.t.Helper()
	past := metav1.NewMicroTime(time.Now().Add(-time.Hour))
	after := metav1.NewMicroTime(past.Add(time.Microsecond)) // as a tenure marks it
	w.must(w.hub.Create(w.t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: hubNamespace, Name: hub.ElectionName},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To(""), LeaseDurationSeconds: ptr.To[int32](1),
			AcquireTime: &after, RenewTime: &past, LeaseTransitions: ptr.To[int32](0),
		},
	}))
}

// startHub runs a hub in this process until the test ends, under the service account of
// config/rbac.
func (w *world) startHub() {
	w.t.Helper()
	config, err := w.fleet.Hub().ServiceAccountConfig(w.t.Context(), hubNamespace, hubAccount, nil)
	w.must(err)
	config.UserAgent = hubAccount
	ctx, cancel := context.WithCancel(context.Background())
	mgr, err := hub.NewManager(ctx, config, hub.Options{
		Namespace: hubNamespace, FleetNamespaces: []string{fleetNamespace}, MetricsAddress: "0", ProbeAddress: "0",
	})
	if err != nil {
		cancel()
		w.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("hub: %v", err)
			}
		case <-time.After(40 * time.Second):
			w.t.Error("the hub does not stop")
		}
	})
}

// namespace creates a namespace in the members.
func (w *world) namespace(name string, members ...string) {
	w.t.Helper()
	for _, m := range members {
		w.must(w.members[m].Create(w.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
}

// policy creates a policy for namespaces. It renews as often as the fast profile, but is
// patient: these tests are about silence, not speed, and a busy machine must not break it.
func (w *world) policy(duration time.Duration, namespaces ...string) {
	w.t.Helper()
	w.must(w.hub.Create(w.t.Context(), &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleetNamespace, Name: "steady"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: namespaces},
			Timings: v1alpha1.Timings{
				LeaseDurationSeconds: int32(duration.Seconds()),
				RenewInterval:        metav1.Duration{Duration: renewInterval},
				RequestTimeout:       metav1.Duration{Duration: 3 * time.Second},
				MaxClockSkew:         metav1.Duration{Duration: 250 * time.Millisecond},
			},
			Health: v1alpha1.Health{UnreachableAfter: &metav1.Duration{Duration: unreachableAfter}},
		},
	}))
}

// record reads the record of a namespace.
func (w *world) record(namespace string) (*v1alpha1.NamespaceLeader, error) {
	o := &v1alpha1.NamespaceLeader{}
	return o, w.hub.Get(w.t.Context(), types.NamespacedName{Namespace: fleetNamespace, Name: namespace}, o)
}

// candidate reads what the record of a namespace says about a Cluster.
func (w *world) candidate(namespace, cluster string) (v1alpha1.Candidate, error) {
	r, err := w.record(namespace)
	if err != nil {
		return v1alpha1.Candidate{}, err
	}
	i := slices.IndexFunc(r.Status.Candidates, func(c v1alpha1.Candidate) bool { return c.Name == cluster })
	if i < 0 {
		return v1alpha1.Candidate{}, fmt.Errorf("%s is no candidate for %s: %+v", cluster, namespace, r.Status.Candidates)
	}
	return r.Status.Candidates[i], nil
}

// copyIn reads the copy of a namespace in a member.
func (w *world) copyIn(member, namespace string) (*coordinationv1.Lease, error) {
	l := &coordinationv1.Lease{}
	return l, w.members[member].Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: v1alpha1.DefaultLeaseName}, l)
}

// eventually waits until a condition holds, and fails the test with what it last said.
func (w *world) eventually(what string, within time.Duration, condition func() error) {
	w.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(w.t.Context(), 20*time.Millisecond, within, true, func(context.Context) (bool, error) {
		last = condition()
		return last == nil, nil
	})
	if err != nil {
		w.t.Fatalf("%s: not within %v: %v", what, within, last)
	}
}

// leads waits until the record and the copies in these members name the leader, and
// every one of them may lead, and returns the epoch.
func (w *world) leads(leader, namespace string, within time.Duration, members ...string) int64 {
	w.t.Helper()
	var epoch int64
	w.eventually(leader+" leads "+namespace, within, func() error {
		r, err := w.record(namespace)
		if err != nil {
			return err
		}
		s := r.Status
		if s.Leader != leader || s.Phase != v1alpha1.PhaseLeading {
			return fmt.Errorf("record: leader %q, phase %s, reason %s, %s; candidates %+v", s.Leader, s.Phase, s.Reason, s.Message, s.Candidates)
		}
		epoch = s.Epoch
		for _, m := range members {
			c, err := w.candidate(namespace, m)
			if err != nil {
				return err
			}
			if !c.Eligible {
				return fmt.Errorf("%s is not eligible: %s, %s", m, c.Reason, c.Message)
			}
			l, err := w.copyIn(m, namespace)
			if err != nil {
				return fmt.Errorf("copy in %s: %w", m, err)
			}
			if holder := *l.Spec.HolderIdentity; holder != identity(leader) || int64(*l.Spec.LeaseTransitions) != s.Epoch {
				return fmt.Errorf("copy in %s: holder %s, epoch %d; want %s, %d", m, holder, *l.Spec.LeaseTransitions, leader, s.Epoch)
			}
		}
		return nil
	})
	return epoch
}

// identity is how copies name a member.
func identity(member string) string { return member + "." + fleetNamespace }
