package harness

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/process"
	"github.com/leasecast/leasecast/hub"
)

// PolicyName is the name of the drill's LeadershipPolicy.
const PolicyName = "drill"

// The profiles of the protocol.
var (
	Fast = lease.Timings{Duration: 3 * time.Second, Renew: time.Second, Timeout: 500 * time.Millisecond,
		Skew: 250 * time.Millisecond}
	Default = lease.Timings{Duration: 15 * time.Second, Renew: 5 * time.Second, Timeout: 3 * time.Second,
		Skew: time.Second}
)

// Member is one member of the drill's fleet.
type Member struct {
	Name     string
	Priority int
	// Namespaces are the managed namespaces that exist in it: it can lead these only.
	Namespaces []string
}

// Options describe a drill.
type Options struct {
	Members []Member
	// Timings are those of the policy.
	Timings lease.Timings
	// ActEvery is the time between two acts of a guestbook that may act. Zero: there are no guestbooks.
	ActEvery time.Duration
	// Register has the guestbooks register as readers. They acknowledge a revoked term, and the policy relies on that.
	Register bool
	// Fencing, if set, is what the policy fences. The members have config/fencing then.
	Fencing *v1alpha1.Fencing
	// Fences, if set, is for drills with several policies: there is one for each of these namespaces, with its name, in
	// place of the one policy.
	Fences map[string]*v1alpha1.Fencing
	// Dir is the folder for the logs, the act logs and the kubeconfigs of the processes. Start makes it.
	Dir string
	// Audit has the API servers log every write: see [fleet.Server.Writes].
	Audit bool
	// AuditReads has them log every request: see [fleet.Server.Requests].
	AuditReads bool
	// Progress, if set, gets a line for each step.
	Progress func(line string)
}

// Drill is a fleet with a hub process and guestbooks. Its methods may be called from any goroutine.
type Drill struct {
	*Site
	Fleet   *fleet.Fleet
	Timings lease.Timings

	dir           string
	programs      Programs
	hubKubeconfig string

	mu         sync.Mutex // guards what follows
	hubs       []*process.Process
	guestbooks map[string]*Guestbook
	keepers    []*process.Keeper
	beside     []*Drill // stop with this one
	highest    int      // priority that was given
}

// startLimit bounds the start of a drill, with the building of our own programs.
const startLimit = 5 * time.Minute

// Start starts everything in an empty folder, and returns when a hub process has been elected. Who leads is not decided
// yet. Without members there is no policy. ctx bounds the start only. After an error nothing is left running.
func Start(ctx context.Context, o Options) (d *Drill, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if err := EmptyDir(o.Dir); err != nil {
		return nil, err
	}
	o.Progress("bringing the programs up to date")
	programs, err := Build(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(o.Members))
	for i, m := range o.Members {
		names[i] = m.Name
	}
	f, err := fleet.Start(ctx, fleet.Options{Members: names, Audit: o.Audit, AuditReads: o.AuditReads,
		Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	d = &Drill{Fleet: f, Timings: o.Timings, dir: o.Dir, programs: programs, guestbooks: map[string]*Guestbook{}}
	if err := d.populate(ctx, o); err != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, nil
}

// StartBeside starts one more management cluster, with a hub and without Clusters, for the same members. It stops with
// the drill.
func (d *Drill) StartBeside(ctx context.Context) (*Drill, error) {
	other, err := Start(ctx, Options{Timings: d.Timings, Dir: filepath.Join(d.dir, "beside")})
	if err != nil {
		return nil, err
	}
	other.Members = d.Members
	d.mu.Lock()
	defer d.mu.Unlock()
	d.beside = append(d.beside, other)
	return other, nil
}

// populate makes what the platform engineer makes, and starts the processes.
func (d *Drill) populate(ctx context.Context, o Options) error {
	scheme := hub.Scheme()
	err := webappv1.AddToScheme(scheme)
	if err != nil {
		return err
	}
	if d.Site, err = newSite(d.Fleet, FleetNamespace, scheme, 0); err != nil {
		return err
	}
	if d.hubKubeconfig, err = installHub(ctx, d.programs, d.Hub, d.Fleet.Hub(), d.dir); err != nil {
		return fmt.Errorf("install the hub: %w", err)
	}
	for _, m := range o.Members {
		d.highest = max(d.highest, m.Priority)
	}
	started := make([]*Guestbook, len(o.Members))
	group, groupCtx := errgroup.WithContext(ctx)
	for i, m := range o.Members {
		group.Go(func() (err error) {
			started[i], err = d.populateMember(groupCtx, m, o)
			return err
		})
	}
	err = group.Wait()
	for i, g := range started {
		if g != nil {
			d.guestbooks[o.Members[i].Name] = g
		}
	}
	if err != nil {
		return err
	}
	if len(o.Members) > 0 {
		for _, p := range policies(o) {
			if err := d.Hub.Create(ctx, p); err != nil {
				return fmt.Errorf("policy %s: %w", p.Name, err)
			}
		}
		o.Progress("members, namespaces and policies are in place")
	}
	if _, err := d.StartHub(); err != nil {
		return err
	}
	if err := d.AwaitElected(ctx); err != nil {
		return err
	}
	o.Progress("the hub process is elected")
	return nil
}

func (d *Drill) populateMember(ctx context.Context, m Member, o Options) (*Guestbook, error) {
	c, server := d.Members[m.Name], d.Fleet.Member(m.Name)
	for _, namespace := range m.Namespaces {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if err := c.Create(ctx, object); client.IgnoreAlreadyExists(err) != nil {
			return nil, fmt.Errorf("namespace %s of %s: %w", namespace, m.Name, err)
		}
	}
	if o.Fencing != nil || o.Fences != nil {
		if err := d.AllowFencing(ctx, m.Name); err != nil {
			return nil, err
		}
	}
	if _, err := d.Fleet.RegisterMember(ctx, server, FleetNamespace, strconv.Itoa(m.Priority)); err != nil {
		return nil, err
	}
	if o.ActEvery == 0 {
		return nil, nil
	}
	kubeconfig, err := installGuestbook(ctx, c, server, m.Namespaces, o.Dir)
	if err != nil {
		return nil, fmt.Errorf("install the guestbook: %w", err)
	}
	return startGuestbook(d.programs, m.Name, kubeconfig, m.Namespaces, o)
}

// policies claim the namespaces of all members.
func policies(o Options) (all []*v1alpha1.LeadershipPolicy) {
	if o.Fences == nil {
		return []*v1alpha1.LeadershipPolicy{policy(o)}
	}
	for namespace, fencing := range o.Fences {
		p := policy(o)
		p.Name, p.Spec.Namespaces.Names, p.Spec.Fencing = namespace, []string{namespace}, fencing
		all = append(all, p)
	}
	return all
}

// policy claims the namespaces of all members.
func policy(o Options) *v1alpha1.LeadershipPolicy {
	namespaces := map[string]bool{}
	for _, m := range o.Members {
		for _, namespace := range m.Namespaces {
			namespaces[namespace] = true
		}
	}
	handover := v1alpha1.HandoverExpiry
	if o.Register {
		handover = v1alpha1.HandoverRegisteredReaders
	}
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: PolicyName},
		Spec: v1alpha1.LeadershipPolicySpec{
			Handover:   handover,
			Fencing:    o.Fencing,
			Namespaces: v1alpha1.NamespaceSelection{Names: slices.Sorted(maps.Keys(namespaces))},
			Timings: v1alpha1.Timings{
				LeaseDurationMilliseconds:  int32(o.Timings.Duration / time.Millisecond),
				RenewIntervalMilliseconds:  int32(o.Timings.Renew / time.Millisecond),
				RequestTimeoutMilliseconds: int32(o.Timings.Timeout / time.Millisecond),
				MaxClockSkewMilliseconds:   int32(o.Timings.Skew / time.Millisecond),
			},
		},
	}
}

// Hubs are the hub processes that were started, in order, those included that have ended.
func (d *Drill) Hubs() []*process.Process {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.hubs)
}

// LatestHub is the hub process that was started last.
func (d *Drill) LatestHub() *process.Process {
	hubs := d.Hubs()
	return hubs[len(hubs)-1]
}

// Guestbook is the guestbook process in a member; nil if there is none.
func (d *Drill) Guestbook(member string) *Guestbook { return d.books()[member] }

// books are the guestbook processes by member.
func (d *Drill) books() map[string]*Guestbook {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.guestbooks)
}

// Acts returns what all guestbooks did so far.
func (d *Drill) Acts() ([]Act, error) {
	var all []Act
	books := d.books()
	for _, member := range slices.Sorted(maps.Keys(books)) {
		acts, err := books[member].Acts.Acts()
		if err != nil {
			return nil, err
		}
		all = append(all, acts...)
	}
	return all, nil
}

// SetPriority edits the priority label of a Cluster, as kubectl label does.
func (d *Drill) SetPriority(ctx context.Context, cluster string, priority int) error {
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: cluster}}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"%d"}}}`, fleet.PriorityLabel, priority)
	if err := d.Hub.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return fmt.Errorf("priority of %s: %w", cluster, err)
	}
	return nil
}

// Check returns an error if a process has ended that nobody stopped or killed. See also [Drill.Keep].
func (d *Drill) Check() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var errs []error
	for _, k := range d.keepers {
		errs = append(errs, k.Check())
	}
	if len(d.keepers) > 0 {
		return errors.Join(errs...)
	}
	for _, p := range d.hubs {
		errs = append(errs, p.Check())
	}
	for _, member := range slices.Sorted(maps.Keys(d.guestbooks)) {
		errs = append(errs, d.guestbooks[member].Check())
	}
	return errors.Join(errs...)
}

// Await is [Await], but gives up as soon as [Drill.Check] fails.
func (d *Drill) Await(ctx context.Context, limit time.Duration, what string,
	condition func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return Await(ctx, limit, what, func(ctx context.Context) error {
		if err := d.Check(); err != nil {
			cancel(err)
			return err
		}
		return condition(ctx)
	})
}

// Stop ends the processes, the fleet and what was started beside it, and returns when all is gone.
func (d *Drill) Stop() error {
	d.mu.Lock()
	beside := slices.Clone(d.beside)
	d.mu.Unlock()
	group := errgroup.Group{}
	for _, other := range beside {
		group.Go(other.Stop)
	}
	for _, g := range d.books() {
		group.Go(g.Stop)
	}
	for _, p := range d.Hubs() {
		group.Go(p.Stop)
	}
	return errors.Join(group.Wait(), d.Fleet.Stop())
}
