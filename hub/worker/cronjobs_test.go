package worker

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batchv1client "k8s.io/client-go/kubernetes/typed/batch/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

// crowd is a member's API server with CronJobs in several namespaces, and the hub's connection to it.
type crowd struct {
	transport *transport.Swappable
	client    rest.Interface

	sizes map[string][]int // of the CronJobs of a namespace, in bytes

	mu    sync.Mutex
	woken map[string]map[string]bool // the CronJobs by their namespaces; true: only for metadata was asked
	told  []error                    // why the member is disconnected
}

func newCrowd(t *testing.T, sizes map[string][]int) *crowd {
	t.Helper()
	c := &crowd{sizes: sizes, woken: map[string]map[string]bool{}}
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
	c.transport = transport.NewSwappable("east.fleet", "", transport.MaxCachesBody)
	c.transport.Meter = transport.NewMeter(clock.RealClock{}, func(err error) { c.told = append(c.told, err) })
	c.transport.Timers = clock.RealClock{}
	transport.Lead(target, c.transport, c.transport)
	config := c.transport.Config(c.transport.ForTenants())
	httpClient, err := transport.HTTPClient(config)
	if err != nil {
		t.Fatal(err)
	}
	batch, err := batchv1client.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	c.client = batch.RESTClient()
	return c
}

// ServeHTTP lists and patches CronJobs as an API server does.
func (c *crowd) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	parts := strings.Split(req.URL.Path, "/") // /apis/batch/v1/namespaces/<namespace>/cronjobs/<name>/status
	ns := parts[5]
	rw.Header().Set("Content-Type", "application/json")
	if req.Method == http.MethodPatch {
		if c.woken[ns] == nil {
			c.woken[ns] = map[string]bool{}
		}
		c.woken[ns][parts[7]] = strings.HasPrefix(req.Header.Get("Accept"), asMetadata)
		_, _ = io.WriteString(rw, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1"}`)
		return
	}
	from, _ := strconv.Atoi(req.URL.Query().Get("continue"))
	limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
	to := min(from+limit, len(c.sizes[ns]))
	list := map[string]any{"kind": "CronJobList", "apiVersion": "batch/v1", "metadata": map[string]any{}}
	if to < len(c.sizes[ns]) {
		list["metadata"] = map[string]any{"continue": strconv.Itoa(to)}
	}
	items := []any{}
	for i, size := range c.sizes[ns][from:to] {
		items = append(items, map[string]any{
			"metadata": map[string]any{"name": fmt.Sprintf("bill-%d", from+i), "creationTimestamp": "2020-01-01T00:00:00Z"},
			"spec":     map[string]any{"jobTemplate": map[string]any{"spec": strings.Repeat("x", size)}},
		})
	}
	list["items"] = items
	_ = json.NewEncoder(rw).Encode(list) // the client may have gone
}

// copies are so many CronJobs of a size.
func copies(n, size int) (sizes []int) {
	for range n {
		sizes = append(sizes, size)
	}
	return sizes
}

// Tenants fill CronJobs. Their cluster must not be disconnected by that, and those of others must be woken.
func TestHowMuchOfCronJobsIsRead(t *testing.T) {
	for name, test := range map[string]struct {
		shop  []int // the sizes of its CronJobs
		woken int
		why   string // that the log says of them, if they are not all woken
	}{
		"none":                        {nil, 0, ""},
		"more than a page":            {copies(45, 3<<10), 45, ""},
		"one that etcd just stores":   {copies(1, 1400<<10), 1, ""},
		"13 that etcd just stores":    {copies(13, 1400<<10), 0, "it has more than 2 MiB"},
		"a large one on the 2nd page": {append(copies(20, 3<<10), 3<<20), 20, "it has more than 2 MiB"},
		"many that are rather large":  {copies(400, 60<<10), 140, "they have more than 8 MiB together"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCrowd(t, map[string][]int{"shop": test.shop, "bank": copies(25, 3<<10)})
			var logged []string
			w := New(Options{
				CronJobs: func() rest.Interface { return c.client }, Clock: clocktest.NewBubble(rigStart),
				Log: funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}),
			})
			all := jobsOf("")
			terms, wakings := map[fencedTerm]guard.Fence{}, map[fencedTerm]waking{}
			for _, ns := range []string{"shop", "bank"} {
				terms[fencedTerm{all.Name(), ns, rigStart.Wall.UnixMicro()}] = all
			}
			for range 5 {
				w.wakeTerms(guard.WhileAllowed(t.Context(), func() bool { return true }), terms, wakings)
			}
			if len(c.woken["shop"]) != test.woken || len(c.woken["bank"]) != 25 {
				t.Errorf("woken are %d, and %d of another namespace", len(c.woken["shop"]), len(c.woken["bank"]))
			}
			for name, small := range c.woken["shop"] {
				if !small {
					t.Errorf("all of %s is asked for when it is woken", name)
				}
			}
			said := strings.Join(logged, "\n")
			if (test.why == "") != (len(logged) == 0) || len(logged) > 1 || !strings.Contains(said, test.why) ||
				test.why != "" && !strings.Contains(said, `"namespace"="shop"`) {
				t.Errorf("the log says %q, want %q", said, test.why)
			}
			if len(c.told) > 0 {
				t.Errorf("the member is disconnected: %v", c.told)
			}
		})
	}
}

// A member may send what no API server does.
func TestAPageOfCronJobsTakesLittleMemory(t *testing.T) {
	var page cronJobs
	many := `{"items":[` + strings.TrimSuffix(strings.Repeat(`{"metadata":{"name":"a"}},`, 50_000), ",") + `]}`
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if err := json.Unmarshal([]byte(many), &page); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	allocated := after.TotalAlloc - before.TotalAlloc
	if last := page.Items[cronJobsPage-1].Metadata.Name; last != "a" || allocated > uint64(2*len(many)) {
		t.Errorf("it took %d KiB, and the last is %q", allocated>>10, last)
	}
}

// cut is a member whose answers end too early.
type cut struct{}

func (cut) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"items":[`)), Request: req}, nil
}

func TestAPageThatIsCutWakesNothing(t *testing.T) {
	batch, err := batchv1client.NewForConfigAndClient(&rest.Config{Host: "http://east"}, &http.Client{Transport: cut{}})
	if err != nil {
		t.Fatal(err)
	}
	w := New(Options{CronJobs: batch.RESTClient})
	if err := w.wakeCronJobs(t.Context(), "shop", once, rigStart.Wall); err == nil {
		t.Error("all are woken")
	}
}

// All that a page has to say is read.
func TestWhatIsReadOfACronJob(t *testing.T) {
	var page cronJobs
	if err := json.Unmarshal([]byte(`{"metadata":{"continue":"next"},"items":[{
		"metadata":{"name":"bill","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"no":"one"}},
		"spec":{"schedule":"* * * * *","jobTemplate":{"metadata":{"labels":{"run":"once"}},"spec":{}}},
		"status":{"lastScheduleTime":"2026-01-01T00:01:00Z"}}]}`), &page); err != nil {
		t.Fatal(err)
	}
	o, began := page.Items[0], metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	if page.Metadata.Continue != "next" || o.Metadata.Name != "bill" || o.Metadata.ResourceVersion != "7" ||
		o.Spec.JobTemplate.Metadata.Labels["run"] != "once" || !o.scheduledUpTo().Equal(began.Add(time.Minute)) {
		t.Errorf("%+v", o)
	}
	if o.Status.LastScheduleTime = nil; !o.scheduledUpTo().Equal(began.Time) {
		t.Errorf("it is scheduled up to %v", o.scheduledUpTo())
	}
}
