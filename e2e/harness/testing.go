package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/member"
)

// Eventually is [Drill.Await] for a test.
func (d *Drill) Eventually(t testing.TB, limit time.Duration, what string, condition func(context.Context) error) {
	t.Helper()
	musttest.Do(t, d.Await(t.Context(), limit, what, condition))
}

// Edit changes an object, as kubectl edit does.
func Edit[O client.Object](t testing.TB, c client.Client, o O, change func(O)) {
	t.Helper()
	musttest.Do(t, c.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	base := o.DeepCopyObject().(client.Object)
	change(o)
	musttest.Do(t, c.Patch(t.Context(), o, client.MergeFrom(base)))
}

// After returns when the boot clock shows the instant.
func After(t testing.TB, instant time.Duration) {
	t.Helper()
	musttest.Eventually(t, time.Hour, "the time has come", func(context.Context) error {
		left := instant - Now().Boot
		return must.ErrorIf(left > 0, "%v are left", left)
	})
}

// RunMember runs the member library until the test is over, or until stop, which returns when it has ended.
func RunMember(t testing.TB, cfg *rest.Config, o member.Options) (m *member.Member, stop func()) {
	m = musttest.Get(member.New(cfg, o))(t)
	return m, musttest.Start(t, m.Start)
}

// AwaitSync returns when a Member has its first lists.
func AwaitSync(t testing.TB, m *member.Member) {
	ctx, cancel := context.WithTimeout(t.Context(), syncPatience)
	defer cancel()
	musttest.Do(t, m.WaitForSync(ctx))
}

// NewNamespace makes a namespace for a test.
func NewNamespace(t testing.TB, c client.Client) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	musttest.Do(t, c.Create(t.Context(), ns))
	return ns.Name
}

// PutLease writes a member's Lease of a namespace as a hub does, for tests of readers, and returns when it was renewed.
// cluster is the name that Leases give the member.
func PutLease(t testing.TB, c client.Client, namespace, cluster, holder string, epoch int64,
	d time.Duration) lease.Reading {
	t.Helper()
	now := Now()
	term := lease.Term{Holder: holder, Epoch: epoch, AcquireTime: now.Wall, RenewTime: now.Wall, Duration: d}
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.DefaultLeaseName}}
	musttest.Get(controllerutil.CreateOrUpdate(t.Context(), c, l, func() error {
		return wire.Write(lease.Content{
			Term: term, Namespace: namespace, Name: l.Name, Cluster: cluster, ClusterUID: "uid", Hub: "hub",
		}, "", l)
	}))(t)
	return now
}

// New starts a drill in a temporary folder for a test, and stops it when the test is over. If the test fails it keeps
// the folder and logs its path.
func New(t testing.TB, o Options) *Drill {
	t.Helper()
	o.Progress = func(line string) { t.Log(line) }
	d, err := startInTemp(t.Context(), o)
	musttest.Do(t, err)
	t.Cleanup(func() {
		if err := d.finish(!t.Failed()); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Main is the TestMain of a package whose tests share a drill. It starts the drill, calls prepare, runs the tests, and
// stops the drill. It returns the exit status.
func Main(m interface{ Run() int }, o Options, prepare func(ctx context.Context, d *Drill) error) (code int) {
	ctx := context.Background()
	o.Progress = func(line string) { fmt.Fprintln(os.Stderr, line) }
	d, err := startInTemp(ctx, o)
	if err == nil {
		if err = prepare(ctx, d); err == nil {
			code = m.Run()
		}
		err = errors.Join(err, d.finish(err == nil && code == 0))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cmp.Or(code, 1)
	}
	return code
}

func startInTemp(ctx context.Context, o Options) (d *Drill, err error) {
	if o.Dir, err = os.MkdirTemp("", "leasecast-drill-"); err != nil {
		return nil, err
	}
	if d, err = Start(ctx, o); err != nil {
		return nil, fmt.Errorf("%w; logs are in %s", err, o.Dir)
	}
	return d, nil
}

// finish stops a drill and removes its folder, or returns where it is.
func (d *Drill) finish(passed bool) error {
	err := d.Stop()
	if err == nil && passed {
		return os.RemoveAll(d.dir)
	}
	return errors.Join(err, fmt.Errorf("logs and acts are in %s", d.dir))
}
