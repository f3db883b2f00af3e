package ledger

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/election"
	"github.com/leasecast/leasecast/hub/tenure"
)

var (
	shop    = types.NamespacedName{Namespace: "fleet", Name: "shop"}
	start   = lease.Reading{Wall: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Boot: time.Hour}
	records = schema.GroupResource{Group: "leasecast.dev", Resource: "namespaceleaders"}
)

type fixedClock lease.Reading

func (c fixedClock) Now() lease.Reading { return lease.Reading(c) }

// after is a clock that stands at a time after the start.
func after(d time.Duration) fixedClock {
	return fixedClock{Wall: start.Wall.Add(d), Boot: start.Boot + d}
}

// oneElection is the election's Lease of an earlier tenure. It takes every update.
type oneElection struct {
	resourcelock.Interface
	said resourcelock.LeaderElectionRecord
}

func (o oneElection) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return &o.said, nil, nil
}

func (oneElection) Update(context.Context, resourcelock.LeaderElectionRecord) error { return nil }

// newTestLedger returns a Ledger an hour after its tenure began: no earlier tenure can write any more. Its API server
// holds the record of shop, unless nil is passed.
func newTestLedger(t *testing.T, spec *v1alpha1.NamespaceLeaderSpec) (*Ledger, client.WithWatch) {
	t.Helper()
	scheme := runtime.NewScheme()
	musttest.Do(t, v1alpha1.AddToScheme(scheme))
	api := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1alpha1.NamespaceLeader{}).Build()
	if spec != nil {
		o := NewRecord(shop)
		o.Spec = *spec.DeepCopy()
		musttest.Do(t, api.Create(t.Context(), o))
	}
	of := tenure.New(fixedClock(start), 6*time.Second)
	lock := of.Lock(oneElection{said: resourcelock.LeaderElectionRecord{
		HolderIdentity: "other", LeaseDurationSeconds: 6, LeaderTransitions: 1,
		AcquireTime: metav1.NewTime(start.Wall.Add(-2 * time.Hour)), RenewTime: metav1.NewTime(start.Wall.Add(-time.Hour)),
	}})
	_, _, err := lock.Get(t.Context())
	musttest.Do(t, err)
	mine := resourcelock.LeaderElectionRecord{HolderIdentity: "me", RenewTime: metav1.NewTime(start.Wall)}
	musttest.Do(t, lock.Update(t.Context(), mine))
	return New(&Options{
		Client: api, Live: api, Tenure: of, Clock: after(time.Hour), HubID: "this",
	}), api
}

// eastLeads is the record of a term of east.
func eastLeads(epoch int64) election.Record {
	return election.Record{
		State: election.Leading, Leader: "east", Epoch: epoch, Duration: 15 * time.Second, LeaseName: "leasecast",
	}
}

// specOf is the spec of a record in which east leads, with the mark of a hub.
func specOf(epoch int64, hub string) *v1alpha1.NamespaceLeaderSpec {
	s := &v1alpha1.NamespaceLeaderSpec{Hub: hub, Policy: "shops"}
	Store(eastLeads(epoch), s)
	return s
}

// persist writes what a decision makes of a record.
func persist(t *testing.T, l *Ledger, e *Entry, is Change) {
	t.Helper()
	_, err := l.Write(t.Context(), e, is)
	musttest.Do(t, err)
}

// take takes shop for a decision.
func take(t *testing.T, l *Ledger) *Entry {
	t.Helper()
	e, err := l.Take(t.Context(), shop)
	musttest.Do(t, err)
	return e
}

// edit changes the stored record of shop as a client that is no hub does, and shows that.
func edit(t *testing.T, l *Ledger, api client.Client, change func(*v1alpha1.NamespaceLeaderSpec)) {
	t.Helper()
	o := stored(t, api)
	change(&o.Spec)
	musttest.Do(t, api.Update(t.Context(), o))
	l.Show(o, false)
}

// remove deletes the stored record of shop as a client that is no hub does, and shows that.
func remove(t *testing.T, l *Ledger, api client.Client) {
	t.Helper()
	o := stored(t, api)
	musttest.Do(t, api.Delete(t.Context(), o))
	l.Show(o, true)
}

// stored is the record of shop as the API server holds it.
func stored(t *testing.T, api client.Client) *v1alpha1.NamespaceLeader {
	t.Helper()
	o := &v1alpha1.NamespaceLeader{}
	musttest.Do(t, api.Get(t.Context(), shop, o))
	return o
}

// answering answers a write as it is told, whether or not it carries it out. It counts the writes.
type answering struct {
	client.Client
	answer  error
	refuses bool
	writes  int
}

func (a *answering) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if a.writes++; !a.refuses {
		if err := a.Client.Update(ctx, o, opts...); err != nil {
			return err
		}
	}
	return a.answer
}

func (a *answering) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if a.writes++; !a.refuses {
		if err := a.Client.Create(ctx, o, opts...); err != nil {
			return err
		}
	}
	return a.answer
}

// reading counts the live reads of a record. They fail with an answer, if there is one.
type reading struct {
	client.Reader
	n      int
	answer error
}

func (r *reading) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if r.n++; r.answer != nil {
		return r.answer
	}
	return r.Reader.Get(ctx, key, o, opts...)
}
