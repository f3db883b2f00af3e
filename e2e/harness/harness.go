package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	webappv1 "github.com/leasecast/leasecast/e2e/guestbook/api"
	"github.com/leasecast/leasecast/e2e/must"
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

// PolicyTimings are timings as a policy has them.
func PolicyTimings(duration, renew, timeout, skew time.Duration) v1alpha1.Timings {
	return v1alpha1.Timings{
		LeaseDurationMilliseconds:  int32(duration.Milliseconds()),
		RenewIntervalMilliseconds:  int32(renew.Milliseconds()),
		RequestTimeoutMilliseconds: int32(timeout.Milliseconds()),
		MaxClockSkewMilliseconds:   int32(skew.Milliseconds()),
	}
}

// Member is one member of the drill's fleet.
type Member struct {
	Name     string
	Priority int
	// Namespaces are the managed namespaces that exist in it: it can lead these only.
	Namespaces []string
}

// Members are some of these names with the same namespaces. The earlier ones are better.
func Members(names []string, namespaces ...string) (all []Member) {
	for i, name := range names {
		all = append(all, Member{Name: name, Priority: 100 - i, Namespaces: namespaces})
	}
	return all
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
	// Fences, if set, has a policy for each of these namespaces, with its name, in place of the one policy.
	Fences map[string]*v1alpha1.Fencing
	// MostMoves bounds the planned changes that go on at once. Zero: nothing does.
	MostMoves int32
	// Dir is the folder for the logs, the act logs and the kubeconfigs of the processes. Start empties it.
	Dir string
	// Audit has the API servers log every request: see [fleet.Server.Requests].
	Audit bool
	// Progress, if set, gets a line for each step.
	Progress func(line string)
}

// Drill is a fleet with a hub process and guestbooks. Its methods may be called from any goroutine.
type Drill struct {
	*Site
	Fleet   *fleet.Fleet
	Timings lease.Timings

	dir      string
	programs Programs

	mu         sync.Mutex // guards what follows
	hubs       []*process.Process
	guestbooks map[string]*Guestbook
	keepers    []*process.Keeper
	beside     []*Drill // stop with this one
	highest    int      // priority that was given
}

// startLimit bounds the start of a drill, with the building of our own programs.
const startLimit = 5 * time.Minute

// Start starts everything in an empty folder, and returns when a hub process is elected. Who leads is not decided yet.
// Without members there is no policy. ctx bounds the start only. After an error nothing is left running.
func Start(ctx context.Context, o Options) (d *Drill, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	err = must.Try(func() {
		must.Do(errors.Join(os.RemoveAll(o.Dir), os.MkdirAll(o.Dir, 0o755)), "empty the folder of the last run")
		o.Progress("bringing the programs up to date")
		programs := must.Get(Build(ctx))
		var names []string
		for _, m := range o.Members {
			names = append(names, m.Name)
		}
		f := must.Get(fleet.Start(ctx, fleet.Options{Members: names, Audit: o.Audit, Progress: o.Progress}))
		d = &Drill{Fleet: f, Timings: o.Timings, dir: o.Dir, programs: programs, guestbooks: map[string]*Guestbook{}}
		d.populate(ctx, o)
	})
	if err != nil && d != nil {
		return nil, errors.Join(err, d.Stop())
	}
	return d, err
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

// populate creates what a platform engineer creates, and starts the processes.
func (d *Drill) populate(ctx context.Context, o Options) {
	scheme := hub.Scheme()
	must.Do(webappv1.AddToScheme(scheme))
	d.Site = must.Get(newSite(d.Fleet, FleetNamespace, scheme, 0))
	d.installHub(ctx)
	group, groupCtx := errgroup.WithContext(ctx)
	for _, m := range o.Members {
		d.highest = max(d.highest, m.Priority)
		group.Go(func() error { return must.Try(func() { d.populateMember(groupCtx, m, o) }) })
	}
	must.Do(group.Wait())
	for _, p := range policies(o) {
		must.Do(d.Hub.Create(ctx, p), "policy %s", p.Name)
	}
	o.Progress("members, namespaces and policies are in place")
	must.Get(d.StartHub())
	must.Do(d.awaitElected(ctx))
	o.Progress("the hub process is elected")
}

func (d *Drill) populateMember(ctx context.Context, m Member, o Options) {
	c, server := d.Members[m.Name], d.Fleet.Member(m.Name)
	for _, namespace := range m.Namespaces {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		must.Do(client.IgnoreAlreadyExists(c.Create(ctx, object)), "namespace %s of %s", namespace, m.Name)
	}
	if o.Fencing != nil || o.Fences != nil {
		must.Do(d.Allow(ctx, m.Name, "fencing"))
	}
	must.Get(d.Fleet.RegisterMember(ctx, server, FleetNamespace, strconv.Itoa(m.Priority)))
	if o.ActEvery == 0 {
		return
	}
	g := startGuestbook(d.programs, m, installGuestbook(ctx, c, server, m.Namespaces, o.Dir), o)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.guestbooks[m.Name] = g
}

// policies select the namespaces of all members.
func policies(o Options) (all []*v1alpha1.LeadershipPolicy) {
	for namespace, fencing := range o.Fences {
		all = append(all, policy(o, namespace, fencing, namespace))
	}
	if o.Fences != nil || len(o.Members) == 0 {
		return all
	}
	namespaces := sets.New[string]()
	for _, m := range o.Members {
		namespaces.Insert(m.Namespaces...)
	}
	return append(all, policy(o, PolicyName, o.Fencing, sets.List(namespaces)...))
}

func policy(o Options, name string, fencing *v1alpha1.Fencing, namespaces ...string) *v1alpha1.LeadershipPolicy {
	handover := v1alpha1.HandoverExpiry
	if o.Register {
		handover = v1alpha1.HandoverRegisteredReaders
	}
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: name},
		Spec: v1alpha1.LeadershipPolicySpec{
			Handover:           handover,
			MaxConcurrentMoves: cmp.Or(o.MostMoves, 10_000),
			Fencing:            fencing,
			Namespaces:         v1alpha1.NamespaceSelection{Names: namespaces},
			Timings:            PolicyTimings(o.Timings.Duration, o.Timings.Renew, o.Timings.Timeout, o.Timings.Skew),
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

func (d *Drill) books() map[string]*Guestbook {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.guestbooks)
}

// Acts returns what all guestbooks did so far.
func (d *Drill) Acts() ([]Act, error) {
	var all []Act
	var errs []error
	for _, g := range d.books() {
		acts, err := g.Acts.Acts()
		all, errs = append(all, acts...), append(errs, err)
	}
	return all, errors.Join(errs...)
}

// SetPriority edits the priority label of a Cluster, as kubectl label does.
func (d *Drill) SetPriority(ctx context.Context, cluster string, priority int) error {
	return d.mark(ctx, cluster, "labels", fleet.PriorityLabel, strconv.Itoa(priority))
}

// Drain drains a Cluster, as kubectl annotate does.
func (d *Drill) Drain(ctx context.Context, cluster string, until time.Time) error {
	return d.mark(ctx, cluster, "annotations", v1alpha1.DrainUntilAnnotation, until.UTC().Format(time.RFC3339))
}

// mark sets a label or an annotation of a Cluster.
func (d *Drill) mark(ctx context.Context, cluster, kind, key, value string) error {
	object := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: cluster}}
	patch := fmt.Sprintf(`{"metadata":{%q:{%q:%q}}}`, kind, key, value)
	if err := d.Hub.Patch(ctx, object, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return fmt.Errorf("%s of %s: %w", key, cluster, err)
	}
	return nil
}

// Check returns an error if a process has ended without Stop or Kill. See also [Drill.Keep].
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
	for _, g := range d.guestbooks {
		errs = append(errs, g.Check())
	}
	return errors.Join(errs...)
}

// Await is [Await], but gives up as soon as [Drill.Check] fails.
func (d *Drill) Await(ctx context.Context, limit time.Duration, what string,
	condition func(context.Context) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	return must.Await(ctx, limit, what, func(ctx context.Context) error {
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
