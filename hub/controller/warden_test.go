package controller

import (
	"context"
	"encoding/pem"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// warden is a hub that guards cluster east, whose API server notes when its guard is looked at and tried.
type warden struct {
	*muster
	east  *memberAPI
	a     *attachment
	start time.Time

	mu            sync.Mutex
	looked, tried []time.Duration
	look, try     *metav1.Status // what looking and trying are answered with; nil: as by a member whose guard stands
	by            string         // who serves the fleet
	unselected    []string       // questions for all Leases, whatever their labels
}

// wardensSight lets somebody serve the fleet.
type wardensSight struct {
	fleetSource
	w *warden
}

func (s wardensSight) servedBy(string) string {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	return s.w.by
}

// pinned is a Cluster that takes part, of which the hub knows who it is.
func pinned(name string) *clusterv1.Cluster {
	c := clusterOf("fleet", name, "5")
	c.Annotations = map[string]string{v1alpha1.ClusterUIDAnnotation: "uid"}
	return c
}

// outpost is a server that tells who it is, and which namespaces there are, unless it refuses that.
type outpost struct {
	spaces []corev1.Namespace

	mu    sync.Mutex
	asked int // how often it told who it is
}

func (o *outpost) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch query := r.URL.Query(); {
	case path.Base(r.URL.Path) == metav1.NamespaceSystem:
		o.mu.Lock()
		o.asked++
		o.mu.Unlock()
		_, _ = w.Write(encoded(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: "uid"}}))
	case o.spaces != nil && r.Method != http.MethodGet: // it is stored as it was sent
		w.Header().Set("Content-Type", r.Header.Get("Content-Type"))
		_, _ = io.Copy(w, r.Body)
	case o.spaces != nil && strings.HasSuffix(r.URL.Path, "-probe"):
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write(encoded(failure(http.StatusNotFound, metav1.StatusReasonNotFound)))
	case o.spaces == nil:
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write(encoded(failure(http.StatusForbidden, metav1.StatusReasonForbidden)))
	case query.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = w.Write(encoded(failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)))
	case query.Get("watch") != "": // which ends at once
	case path.Base(r.URL.Path) == "leases":
		_, _ = w.Write(encoded(&coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
		}))
	default:
		_, _ = w.Write(encoded(&corev1.NamespaceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: o.spaces,
		}))
	}
}

// read is how often it told who it is.
func (o *outpost) read() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.asked
}

// reached is the kubeconfig of a cluster that only tells who it is.
func reached(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	return (&outpost{}).reached(t, name)
}

// reached is a kubeconfig that leads there. Each connection ends with its answer, or time would never pass in a bubble.
// To be called outside of it.
func (o *outpost) reached(t *testing.T, name string) *corev1.Secret {
	t.Helper()
	s := httptest.NewUnstartedServer(o)
	s.Config.SetKeepAlivesEnabled(false)
	s.Config.ReadHeaderTimeout = time.Second // one that nothing was asked on ends, too
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{
		Server: s.URL, CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
	}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name + "-kubeconfig"}, Data: map[string][]byte{"value": text}}
}

// newWarden is to be called in a bubble of synctest.
func newWarden(t *testing.T, objects ...client.Object) *warden {
	t.Helper()
	record := &v1alpha1.NamespaceLeader{ObjectMeta: metav1.ObjectMeta{Namespace: shop.Namespace, Name: shop.Name}}
	w := &warden{
		muster: newMuster(t, append(objects, pinned("east"), record)...), east: newMemberAPI(), start: time.Now(),
		a: &attachment{guard: errUnchecked, wake: make(chan struct{}, 1)},
	}
	w.Clock, w.by, w.source = bubbleClock{w.start}, w.HubID, wardensSight{fleetSource{w.Fleet}, w}
	member := w.east.client(t)
	w.writer = func(fleet.Member) kubernetes.Interface { return member }
	w.east.refuses(w.answer)
	asked(&w.records)
	return w
}

// letThrough is how a write is answered that nothing refuses.
var letThrough = &metav1.Status{}

// answer notes what is asked of the guard.
func (w *warden) answer(req *http.Request) *metav1.Status {
	w.mu.Lock()
	defer w.mu.Unlock()
	note := func(in *[]time.Duration) {
		now := time.Since(w.start)
		if n := len(*in); n == 0 || (*in)[n-1] != now {
			*in = append(*in, now)
		}
	}
	switch {
	case strings.Contains(req.URL.Path, "admissionregistration"):
		if req.Method == http.MethodGet {
			note(&w.looked)
		}
		return w.look
	case req.URL.Query().Get("dryRun") == "":
		if path.Base(req.URL.Path) == "leases" && req.Method == http.MethodGet && req.URL.Query().Get("labelSelector") == "" {
			w.unselected = append(w.unselected, req.URL.String())
		}
		return nil
	case w.try == letThrough:
		note(&w.tried)
		return nil
	case w.try != nil:
		note(&w.tried)
		return w.try
	}
	note(&w.tried)
	s := failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
	for _, p := range guard.Policies() {
		for _, v := range p.Policy.Spec.Validations {
			s.Message += v.Message
		}
	}
	return s
}

// will changes what the member answers from now on, or who serves the fleet.
func (w *warden) will(change func(*warden)) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	change(w)
}

// since forgets what was asked, and returns it.
func (w *warden) since() (looked, tried []time.Duration) {
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	looked, tried = w.looked, w.tried
	w.looked, w.tried = nil, nil
	return looked, tried
}

// keeps has the guard kept until the returned function is called.
func (w *warden) keeps() (end func()) {
	w.t.Helper()
	if w.a.publisher == nil {
		w.a.publisher = publisherThatRead(w.t, musterStart.Wall, testKey, eastCopy(20))
	}
	w.Controller.mu.Lock()
	w.attached[eastKey] = w.a
	w.Controller.mu.Unlock()
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan struct{})
	m := w.member("east")
	go func() {
		defer close(ended)
		w.keepGuard(ctx, m, w.a, logr.Discard())
	}()
	return func() {
		cancel()
		<-ended
	}
}

// pass lets time pass.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// stands reports what is known of the guard.
func (w *warden) stands() error {
	synctest.Wait()
	w.Controller.mu.Lock()
	defer w.Controller.mu.Unlock()
	return w.a.guard
}
