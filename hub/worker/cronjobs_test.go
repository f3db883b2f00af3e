package worker

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr/funcr"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

// crowd is a member's API server with CronJobs in several namespaces, and the hub's connection to it.
type crowd struct {
	transport *transport.Swappable

	sizes map[string][]int // of the CronJobs of a namespace, in bytes

	mu    sync.Mutex
	woken map[string]int // how many CronJobs were, by their namespaces
}

func newCrowd(t *testing.T, sizes map[string][]int) *crowd {
	t.Helper()
	c := &crowd{sizes: sizes, woken: map[string]int{}}
	s := httptest.NewTLSServer(c)
	t.Cleanup(s.Close)
	text, err := clientcmd.Write(clientcmdapi.Config{
		CurrentContext: "x",
		Contexts:       map[string]*clientcmdapi.Context{"x": {Cluster: "c", AuthInfo: "u"}},
		Clusters: map[string]*clientcmdapi.Cluster{"c": {
			Server:                   s.URL,
			CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Token: "a-token"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	access, err := transport.ParseKubeconfig(text)
	if err != nil {
		t.Fatal(err)
	}
	access.Local = true
	target := transport.NewTarget(access, nil)
	t.Cleanup(target.Close)
	c.transport = transport.NewSwappable("east.fleet", transport.Options{})
	c.transport.Lead(target)
	return c
}

// ServeHTTP lists and patches CronJobs as an API server does.
func (c *crowd) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := strings.Split(req.URL.Path, "/") // /apis/batch/v1/namespaces/<namespace>/cronjobs/<name>/status
	ns := parts[5]
	if req.Method == http.MethodPatch {
		c.woken[ns]++
		inProtobuf(rw, &batchv1.CronJob{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJob"}})
		return
	}
	from, _ := strconv.Atoi(req.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
	to := min(from+limit, len(c.sizes[ns]))
	list := &batchv1.CronJobList{TypeMeta: metav1.TypeMeta{APIVersion: "batch/v1", Kind: "CronJobList"}}
	if to < len(c.sizes[ns]) {
		list.Continue = strconv.Itoa(to)
	}
	for i, size := range c.sizes[ns][from:to] {
		list.Items = append(list.Items, batchv1.CronJob{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: ns, Name: fmt.Sprintf("bill-%d", from+i), CreationTimestamp: metav1.Unix(1_577_836_800, 0),
			},
			Spec: batchv1.CronJobSpec{Schedule: strings.Repeat("x", size)},
		})
	}
	inProtobuf(rw, list)
}

// inProtobuf answers with an object.
func inProtobuf(w http.ResponseWriter, o kruntime.Object) {
	w.Header().Set("Content-Type", kruntime.ContentTypeProtobuf)
	_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(o, w) // the client may have gone
}

// copies are so many CronJobs of a size.
func copies(n, size int) (sizes []int) {
	for range n {
		sizes = append(sizes, size)
	}
	return sizes
}

// Tenants fill CronJobs. All must be woken.
func TestObserver_LeavesCronJobsThatAreTooLarge(t *testing.T) {
	for name, test := range map[string]struct {
		shop  []int // the sizes of its CronJobs
		woken int
		why   string // in the log, if they are not all woken
	}{
		"none":                         {nil, 0, ""},
		"more than a page":             {copies(115, 3<<10), 115, ""},
		"13 that etcd just stores":     {copies(13, 1400<<10), 13, ""},
		"one that no API server sends": {append(copies(50, 3<<10), 5<<20), 50, "an object has 524"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, map[string][]int{"shop": test.shop, "bank": copies(25, 3<<10)})
			var logged []string
			w := New(Options{
				Tenants: func() *rest.Config { return c.transport.Config(c.transport.Tenants()) }, Clock: clocktest.NewBubble(testStart),
				Log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}),
				Hub: &env{by: us},
			})
			all := allJobs
			terms := map[fencedTerm]guard.Fence{}
			for _, ns := range []string{"shop", "bank"} {
				terms[fencedTerm{all.Name(), ns, testStart.Wall.UnixMicro()}] = all
			}
			for range 5 {
				w.observer.wakeTerms(t.Context(), terms)
			}
			if c.woken["shop"] != test.woken || c.woken["bank"] != 25 {
				t.Errorf("woken are %d, and %d of another namespace", c.woken["shop"], c.woken["bank"])
			}
			text := strings.Join(logged, "\n")
			if (test.why == "") != (len(logged) == 0) || len(logged) > 1 || !strings.Contains(text, test.why) ||
				test.why != "" && !strings.Contains(text, `"namespace"="shop"`) {
				t.Errorf("the log has %q, want %q", text, test.why)
			}
		})
	}
}
