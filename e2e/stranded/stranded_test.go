// Package stranded holds the tests of readers whose connection dies without a word, while the hub goes on
// renewing and new connections work: real API servers, and the member library as a controller uses it.
package stranded

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/proxy"
	"github.com/leasecast/leasecast/member"
)

const (
	us   = "east.fleet"
	them = "west.fleet"
	// patience bounds the wait for what must come.
	patience = 30 * time.Second
	// often is how often the test asks who leads, and so how exact its figures are.
	often = 2 * time.Millisecond
	// duration is that of all terms. With shorter ones a busy machine would decide; the tests of package member have
	// these.
	duration = 15 * time.Second
	// mostIdle is what a dead connection of a reader may cost of the time in which its cluster acts.
	mostIdle = duration/3 + time.Second
	// mostDelay is how late a follower may lead: a third of D until pings find the connection dead, and 3 s for all else.
	// Without pings only a term that runs out would have it look, two thirds of D after the last news.
	mostDelay = duration/3 + 3*time.Second
)

// server is the API server of the tests.
var server *rest.Config

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.Discard()) // it complains otherwise
	os.Exit(fleet.Main(m, nil, func(_ context.Context, f *fleet.Fleet, _ string) error {
		server = f.Hub().AdminConfig()
		return nil
	}))
}

func TestASilentlyDeadConnectionOfAReaderCostsLittleActingTime(t *testing.T) {
	for name, registered := range map[string]bool{"watching only": false, "registered": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.holder(them)
			m := w.read(registered)
			w.holder(us)
			w.await(m, true) // so the watch has begun
			w.proxy.Strand()
			// Without news the term would run out within D, and two thirds of that are left then to come back.
			lost := idle(m, w.namespace, 2*duration)
			t.Logf("nobody acted for %v after the connection died, of %v allowed", lost, mostIdle)
			if lost > mostIdle {
				t.Errorf("nobody acted for %v, want at most %v", lost, mostIdle)
			}
			if err := m.Healthz(nil); err != nil {
				t.Errorf("news come again, but: %v", err)
			}
		})
	}
}

func TestASilentlyDeadConnectionOfAFollowerDelaysItsPromotionLittle(t *testing.T) {
	w, m := newFollower(t)
	w.proxy.Strand()
	w.holder(us)
	began := time.Now()
	w.await(m, true)
	took := time.Since(began)
	t.Logf("led %v after it was written, of %v allowed", took, mostDelay)
	if took > mostDelay {
		t.Errorf("led %v after it was written, want at most %v", took, mostDelay)
	}
}

// What watches the readers must know of a dead link before their terms could have run out.
func TestHealthzOfAFollowerIsTrueWithinDOfTheDeathOfItsLink(t *testing.T) {
	w, m := newFollower(t)
	harness.Must(t, m.Healthz(nil))
	w.proxy.BlackHole()
	began := time.Now()
	var err error
	harness.Must(t, harness.Await(t.Context(), patience, "Healthz fails", func(context.Context) error {
		if err = m.Healthz(nil); err == nil {
			return errors.New("healthy")
		}
		return nil
	}))
	took := time.Since(began)
	t.Logf("after %v, of %v allowed: %v", took, duration, err)
	if took > duration || !strings.Contains(err.Error(), "is dead: the API server has not answered") {
		t.Errorf("Healthz failed after %v, want at most %v: %v", took, duration, err)
	}
	w.proxy.Heal()
	harness.Eventually(t, patience, "Healthz is content again",
		func(context.Context) error { return m.Healthz(nil) })
}

// world is a namespace whose Lease is renewed as a hub does it, and a network of its own.
type world struct {
	t         *testing.T
	namespace string
	proxy     *proxy.Proxy
	client    client.Client

	mu    sync.Mutex
	term  lease.Term
	epoch int64
}

func newWorld(t *testing.T) *world {
	c := harness.Get(client.New(server, client.Options{}))(t)
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	harness.Must(t, c.Create(t.Context(), made))
	p := harness.Get(proxy.New(strings.TrimSuffix(strings.TrimPrefix(server.Host, "https://"), "/")))(t)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{t: t, namespace: made.Name, proxy: p, client: c, epoch: lease.EpochFloor(time.Now())}
}

// holder begins a term, which is renewed every third of its duration until the test is over.
func (w *world) holder(name string) {
	w.mu.Lock()
	first := w.term.Holder == ""
	w.epoch++
	w.term = lease.Term{Holder: name, Epoch: w.epoch, AcquireTime: time.Now(), Duration: duration}
	w.mu.Unlock()
	w.renew(w.t.Context())
	if !first {
		return
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(duration / 3)
		defer ticks.Stop()
		for {
			select {
			case <-ticks.C:
				w.renew(ctx)
			case <-ctx.Done():
				return
			}
		}
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// renew writes the Lease, past the proxy.
func (w *world) renew(ctx context.Context) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.term.RenewTime = time.Now()
	if err := harness.PutLease(ctx, w.client, w.namespace, us, w.term); err != nil && ctx.Err() == nil {
		w.t.Errorf("renew: %v", err)
	}
}

// newFollower is a world whose member has led, and follows now.
func newFollower(t *testing.T) (*world, *member.Member) {
	w := newWorld(t)
	w.holder(us)
	m := w.read(false)
	w.await(m, true)
	w.holder(them)
	w.await(m, false)
	return w, m
}

// read runs the member library through the proxy until the test is over.
func (w *world) read(registered bool) *member.Member {
	cfg := rest.CopyConfig(server)
	cfg.Host = "https://" + w.proxy.Addr()
	o := member.Options{Namespaces: []string{w.namespace}}
	if registered {
		cfg.Wrap(member.CapWrites)
		o.Registration = harness.Registration(w.t, cfg, w.namespace)
	}
	m, _ := harness.RunMember(w.t, cfg, o)
	harness.AwaitSync(w.t, m)
	return m
}

// await waits until the reader leads, or does not.
func (w *world) await(m *member.Member, leads bool) {
	harness.Eventually(w.t, patience, fmt.Sprintf("leads: %v", leads), func(context.Context) error {
		_, ok := m.Term(w.namespace)
		return must.ErrorIf(ok != leads, "not yet")
	})
}

// idle is for how much of a time the reader did not lead.
func idle(m *member.Member, namespace string, of time.Duration) (lost time.Duration) {
	began := time.Now()
	for last := began; last.Sub(began) < of; {
		<-time.After(often)
		now := time.Now()
		if _, ok := m.Term(namespace); !ok {
			lost += now.Sub(last)
		}
		last = now
	}
	return lost
}
