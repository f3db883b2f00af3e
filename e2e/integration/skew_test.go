package integration

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// wrongClock makes a member's API server look as if its clock were off: a proxy that ends TLS
// writes the Date of its answers.
type wrongClock struct{ off atomic.Int64 }

func (c *wrongClock) set(off time.Duration) { c.off.Store(int64(off)) }

// clockOf puts such a proxy in front of a member and returns a kubeconfig that leads to it.
func (w *world) clockOf(member string) (*wrongClock, []byte) {
	cfg := harness.Get(w.Servers.Member(member).ServiceAccountConfig(w.T.Context(), w.System, "hub", []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
		{NonResourceURLs: []string{"*"}, Verbs: []string{"*"}},
	}))(w.T)
	server := harness.Get(url.Parse(cfg.Host))(w.T)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(cfg.CAData)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true}
	c := &wrongClock{}
	s := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(server) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ModifyResponse: func(r *http.Response) error {
			r.Header.Set("Date", time.Now().Add(time.Duration(c.off.Load())).UTC().Format(http.TimeFormat))
			return nil
		},
	})
	s.EnableHTTP2 = true
	s.StartTLS()
	w.T.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		transport.CloseIdleConnections()
	})
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	kubeconfig := harness.Get(fleet.Kubeconfig(member, &rest.Config{
		Host: s.URL, BearerToken: cfg.BearerToken,
		TLSClientConfig: rest.TLSClientConfig{CAData: ca},
	}))(w.T)
	return c, kubeconfig
}

// letOff is how long a cluster whose clock was put right may take to be a candidate again: calm for
// 10 s, and time to measure.
const letOff = 40 * time.Second

func TestAClusterWhoseClockIsOffLosesTheLeadInOrder(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		off   time.Duration
		words string
		more  time.Duration // than D + ε, for which its readers may go on
	}{
		"ahead":  {2 * time.Second, "ahead of the hub's", 0},
		"behind": {-2 * time.Second, "behind the hub's", 2*time.Second - epsilon},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"west": "50", "south": "10"})
			w.Timings = brief
			clock, kubeconfig := w.clockOf("east")
			w.addCluster("east", "100", kubeconfig)
			ns := w.namespace("a", "east", "west", "south")
			w.Policy("clocks", ns)
			w.startHub()
			epoch := w.Leads("east", ns, firstElection, "east", "west", "south")
			w.awaitPolicy("clocks", v1alpha1.ConditionClocksAgree, metav1.ConditionTrue, "Agree")

			last := w.follow("east", ns)
			clock.set(tc.off)
			w.awaitUnfit("east", ns, reason.ClockSkewed,
				"the API server's clock is ", tc.words, "maxClockSkewMilliseconds is 250")
			w.handedOver(ns, "west", epoch, last, "east", "west", "south")
			r := harness.Get(w.Record(ns))(w.T)
			if bound := last().Add(w.term() + tc.more); r.Spec.AcquireTime.Time.Before(bound) {
				t.Errorf("granted at %v, when a reader with that clock may have acted until %v", r.Spec.AcquireTime, bound)
			}
			if !slices.ContainsFunc(r.Status.History, func(c v1alpha1.Change) bool {
				return c.State == v1alpha1.StateDraining && c.Reason == reason.ClockSkewed && c.Leader == "east"
			}) {
				t.Errorf("the record does not say why: %+v", r.Status.History)
			}
			w.awaitEvent("east", reason.ClockSkewed, tc.words)
			w.awaitPolicy("clocks", v1alpha1.ConditionClocksAgree, metav1.ConditionFalse, string(reason.ClockSkewed), "in east;")

			led := w.keeps("west", ns)
			clock.set(0)
			w.Eventually("east may lead again", letOff, func() error {
				if c := must.Get(w.Candidate(ns, "east")); !c.Eligible {
					return fmt.Errorf("%+v", c)
				}
				return nil
			})
			w.awaitPolicy("clocks", v1alpha1.ConditionClocksAgree, metav1.ConditionTrue, "Agree")
			led.check() // and takes nothing back
		})
	}
}

// If all clocks are off, it is the hub's that is: nobody loses anything for that.
func TestIfAllClocksAreOffNobodyIsReplaced(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil)
	var clocks []*wrongClock
	for name, priority := range map[string]string{"east": "100", "west": "50"} {
		clock, kubeconfig := w.clockOf(name)
		w.addCluster(name, priority, kubeconfig)
		clocks = append(clocks, clock)
	}
	ns := w.namespace("a", "east", "west")
	w.Policy("clocks", ns) // steady, so that one is not gone before the other is measured
	w.startHub()
	epoch := w.Leads("east", ns, firstElection, "east", "west")
	w.awaitPolicy("clocks", v1alpha1.ConditionClocksAgree, metav1.ConditionTrue, "Agree")
	for _, clock := range clocks {
		clock.set(5 * time.Second)
	}
	w.awaitUnfit("east", ns, reason.ClockSkewed)
	w.awaitUnfit("west", ns, reason.ClockSkewed)
	if after := w.Leads("east", ns, soon, "east", "west"); after != epoch {
		t.Errorf("east leads in epoch %d, was %d", after, epoch)
	}
	w.keeps("east", ns).check()
}
