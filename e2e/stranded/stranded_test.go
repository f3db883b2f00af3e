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
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/e2e/harness"
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
)

// server is the API server of the tests.
var server *rest.Config

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (code int) {
	ctrllog.SetLogger(logr.Discard()) // it complains otherwise
	env := &envtest.Environment{}
	config, err := env.Start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := env.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	config.QPS = -1
	server = config
	return m.Run()
}

// budget is what a dead connection of a reader may cost of the time in which its cluster acts.
func budget(d time.Duration) time.Duration { return d/3 + time.Second }

func TestASilentlyDeadConnectionOfAReaderCostsLittleActingTime(t *testing.T) {
	for name, tc := range map[string]struct {
		duration   time.Duration
		registered bool
	}{
		"D = 3 s":              {duration: 3 * time.Second},
		"D = 15 s":             {duration: 15 * time.Second},
		"D = 3 s, registered":  {duration: 3 * time.Second, registered: true},
		"D = 15 s, registered": {duration: 15 * time.Second, registered: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tc.duration)
			w.holder(them)
			m := w.read(tc.registered)
			w.holder(us)
			w.await(m, true) // so the watch has begun
			w.proxy.Strand()
			// Without news the term would run out within D, and two thirds of that are left then to come back.
			lost := idle(m, w.namespace, 2*tc.duration)
			t.Logf("nobody acted for %v after the connection died, of %v allowed", lost, budget(tc.duration))
			if lost > budget(tc.duration) {
				t.Errorf("nobody acted for %v, want at most %v", lost, budget(tc.duration))
			}
			if err := m.Healthz(nil); err != nil {
				t.Errorf("news come again, but: %v", err)
			}
		})
	}
}

func TestASilentlyDeadConnectionOfAFollowerDelaysItsPromotionLittle(t *testing.T) {
	for name, d := range map[string]time.Duration{"D = 3 s": 3 * time.Second, "D = 15 s": 15 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, m := newFollower(t, d)
			w.proxy.Strand()
			w.holder(us)
			began := time.Now()
			w.await(m, true)
			t.Logf("led %v after it was written, of %v allowed", time.Since(began), budget(d))
			if took := time.Since(began); took > budget(d) {
				t.Errorf("led %v after it was written, want at most %v", took, budget(d))
			}
		})
	}
}

// What watches the readers must know of a dead link before their terms could have run out.
func TestHealthzOfAFollowerIsTrueWithinDOfTheDeathOfItsLink(t *testing.T) {
	for name, d := range map[string]time.Duration{"D = 3 s": 3 * time.Second, "D = 15 s": 15 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, m := newFollower(t, d)
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
			t.Logf("after %v, of %v allowed: %v", time.Since(began), d, err)
			if took := time.Since(began); took > d || !strings.Contains(err.Error(), "is dead: its connection is gone") {
				t.Errorf("Healthz failed after %v, want at most %v: %v", took, d, err)
			}
			w.proxy.Heal()
			harness.Must(t, harness.Await(t.Context(), patience, "Healthz is content again", func(context.Context) error { return m.Healthz(nil) }))
		})
	}
}

// world is a namespace whose Lease is renewed as a hub does it, and a network of its own.
type world struct {
	t         *testing.T
	duration  time.Duration
	namespace string
	proxy     *proxy.Proxy
	client    client.Client

	mu    sync.Mutex
	term  lease.Term
	epoch int64
}

func newWorld(t *testing.T, d time.Duration) *world {
	t.Helper()
	c, err := client.New(server, client.Options{})
	harness.Must(t, err)
	made := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shop-"}}
	harness.Must(t, c.Create(t.Context(), made))
	p, err := proxy.New(strings.TrimSuffix(strings.TrimPrefix(server.Host, "https://"), "/"))
	harness.Must(t, err)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return &world{t: t, duration: d, namespace: made.Name, proxy: p, client: c, epoch: lease.EpochFloor(time.Now())}
}

// holder begins a term, which is renewed every third of its duration until the test is over.
func (w *world) holder(name string) {
	w.t.Helper()
	w.mu.Lock()
	first := w.term.Holder == ""
	w.epoch++
	w.term = lease.Term{Holder: name, Epoch: w.epoch, AcquireTime: time.Now(), Duration: w.duration}
	w.mu.Unlock()
	w.renew(w.t.Context())
	if !first {
		return
	}
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticks := time.NewTicker(w.duration / 3)
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
func newFollower(t *testing.T, d time.Duration) (*world, *member.Member) {
	t.Helper()
	w := newWorld(t, d)
	w.holder(us)
	m := w.read(false)
	w.await(m, true)
	w.holder(them)
	w.await(m, false)
	return w, m
}

// read runs the member library through the proxy until the test is over.
func (w *world) read(registered bool) *member.Member {
	w.t.Helper()
	cfg := rest.CopyConfig(server)
	cfg.Host = "https://" + w.proxy.Addr()
	o := member.Options{Namespaces: []string{w.namespace}}
	if registered {
		cfg.Wrap(member.CapWrites)
		capped, err := rest.HTTPClientFor(cfg)
		harness.Must(w.t, err)
		o.Registration = &member.Registration{Namespace: w.namespace, Client: capped}
	}
	m, err := member.New(cfg, o)
	harness.Must(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	sync, done := context.WithTimeoutCause(w.t.Context(), patience, errors.New("no list of Leases"))
	defer done()
	harness.Must(w.t, m.WaitForSync(sync))
	return m
}

// await waits until the reader leads, or does not.
func (w *world) await(m *member.Member, leads bool) {
	w.t.Helper()
	harness.Eventually(w.t, patience, fmt.Sprintf("leads: %v", leads), func(context.Context) error {
		if _, ok := m.Term(w.namespace); ok != leads {
			return errors.New("not yet")
		}
		return nil
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
