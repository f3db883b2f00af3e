package hub

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// wonOnce is the lock of an election that is won once and never renewed.
type wonOnce struct {
	resourcelock.Interface
	won bool
}

func (*wonOnce) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	return nil, nil, apierrors.NewNotFound(schema.GroupResource{}, "")
}
func (l *wonOnce) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	if l.won {
		return errors.New("nobody answers")
	}
	l.won = true
	return nil
}
func (*wonOnce) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	return errors.New("nobody answers")
}
func (*wonOnce) RecordEvent(string) {}
func (*wonOnce) Identity() string   { return "us" }
func (*wonOnce) Describe() string   { return "the election" }

// managerWith is a controller manager without a server.
func managerWith(t *testing.T, lock resourcelock.Interface) manager.Manager {
	t.Helper()
	mgr := musttest.Get(manager.New(&rest.Config{Host: "https://nowhere.invalid"}, manager.Options{
		Scheme:  runtime.NewScheme(),
		Metrics: server.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return meta.NewDefaultRESTMapper(nil), nil
		},
		LeaderElection:                      true,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		LeaseDuration:                       ptr.To(3 * time.Second),
		RenewDeadline:                       ptr.To(300 * time.Millisecond),
		RetryPeriod:                         ptr.To(100 * time.Millisecond),
	}))(t)
	return mgr
}

func TestALostElectionIsLogged(t *testing.T) {
	failed := errors.New("the work of an elected replica failed")
	cases := map[string]struct {
		work manager.RunnableFunc // of the elected replica
		lost bool
	}{
		"an election that cannot be renewed is lost": {lost: true, work: func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}},
		"an election is lost, and the work goes on": {lost: true, work: func(context.Context) error { select {} }},
		"another error is no lost election":         {work: func(context.Context) error { return failed }},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			mgr := managerWith(t, &wonOnce{})
			musttest.Do(t, mgr.Add(c.work))
			err := mgr.Start(t.Context())
			if err == nil || LostElection(err) != c.lost {
				t.Errorf("Start returned %v: a lost election: %v, want %v", err, LostElection(err), c.lost)
			}
		})
	}
	if LostElection(nil) {
		t.Error("a process that ends in order has lost its election")
	}
}
