package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// memberAPI is as much of a member's API server as a hub writes to. It keeps objects by their paths.
type memberAPI struct {
	cluster.Cluster
	informers *informertest.FakeInformers

	mu      sync.Mutex
	stored  map[string]*unstructured.Unstructured
	version int
	watches []*io.PipeWriter
	// namespaces are those that the cache shows, by their names, with their labels.
	namespaces map[string]map[string]string
	uncached   func(client.ObjectList) error // that the cache cannot list
	// intercept answers a request instead, unless it returns nil.
	intercept func(*http.Request) *metav1.Status
	takes     func(*http.Request) time.Duration // how long an answer takes, if it is not nil
	fails     func(*http.Request) error         // why there is no answer, if it is not nil
}

func newMemberAPI() *memberAPI {
	return &memberAPI{informers: &informertest.FakeInformers{}, stored: map[string]*unstructured.Unstructured{}}
}

func (a *memberAPI) GetConfig() *rest.Config {
	inJSON := rest.ContentConfig{ContentType: runtime.ContentTypeJSON}
	return &rest.Config{Host: "http://east", QPS: -1, ContentConfig: inJSON}
}

func (a *memberAPI) GetHTTPClient() *http.Client { return &http.Client{Transport: a} }
func (a *memberAPI) GetCache() cache.Cache       { return memberCache{a.informers, a} }

// memberCache shows the namespaces and the Leases.
type memberCache struct {
	*informertest.FakeInformers
	api *memberAPI
}

func (c memberCache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	c.api.mu.Lock()
	defer c.api.mu.Unlock()
	if c.api.uncached != nil {
		if err := c.api.uncached(list); err != nil {
			return err
		}
	}
	o := client.ListOptions{LabelSelector: labels.Everything()}
	o.ApplyOptions(opts)
	switch list := list.(type) {
	case *corev1.NamespaceList:
		for name, set := range c.api.namespaces {
			list.Items = append(list.Items, corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: set}})
		}
	case *coordinationv1.LeaseList:
		return json.Unmarshal(encoded(c.api.list("/apis/coordination.k8s.io/v1/leases", o.LabelSelector.String(), "")), list)
	}
	return nil
}

// shows changes what the cache shows.
func (a *memberAPI) shows(change func(*memberAPI)) {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	change(a)
}

// client reaches the member.
func (a *memberAPI) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	c := musttest.Get(kubernetes.NewForConfigAndClient(a.GetConfig(), a.GetHTTPClient()))(t)
	return c
}

// tenants is for clients of what tenants of the member write.
func (a *memberAPI) tenants() *rest.Config {
	config := a.GetConfig()
	config.Transport = a
	return config
}

// holds are the paths of what is stored whose names contain a text.
func (a *memberAPI) holds(text string) (paths []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for p := range a.stored {
		if strings.Contains(p, text) {
			paths = append(paths, p)
		}
	}
	return paths
}

// store keeps an object, and returns it as it is kept.
func (a *memberAPI) store(group, resource string, o client.Object) *unstructured.Unstructured {
	a.mu.Lock()
	defer a.mu.Unlock()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		panic(err)
	}
	path := group + "/namespaces/" + o.GetNamespace() + "/" + resource + "/" + o.GetName()
	return a.put(path, &unstructured.Unstructured{Object: content})
}

func (a *memberAPI) put(p string, o *unstructured.Unstructured) *unstructured.Unstructured {
	a.version++
	o.SetResourceVersion(strconv.Itoa(a.version))
	a.stored[p] = o
	return o
}

// RoundTrip answers a request, unless nobody waits for that any more.
func (a *memberAPI) RoundTrip(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	if a.takes != nil {
		select {
		case <-time.After(a.takes(req)):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
	}
	if a.fails != nil {
		if err := a.fails(req); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(code int, body io.ReadCloser) (*http.Response, error) {
		inJSON := http.Header{"Content-Type": {"application/json"}}
		return &http.Response{StatusCode: code, Header: inJSON, Body: body, Request: req}, nil
	}
	say := func(code int, object any) (*http.Response, error) {
		return answer(code, io.NopCloser(bytes.NewReader(encoded(object))))
	}
	if s := a.intercept(req); s != nil {
		return say(int(s.Code), s)
	}
	query, p := req.URL.Query(), req.URL.Path
	object := &unstructured.Unstructured{}
	if req.Method == http.MethodPost || req.Method == http.MethodPut {
		if err := json.NewDecoder(req.Body).Decode(&object.Object); err != nil {
			return nil, err
		}
	}
	switch have := a.stored[p]; {
	case query.Get("sendInitialEvents") != "":
		return say(http.StatusUnprocessableEntity, failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid))
	case query.Get("watch") != "":
		body, w := io.Pipe()
		a.watches = append(a.watches, w)
		context.AfterFunc(req.Context(), func() { _ = w.CloseWithError(req.Context().Err()) })
		return answer(http.StatusOK, body)
	case req.Method == http.MethodGet && kinds[path.Base(p)] != "":
		list := a.list(p, query.Get("labelSelector"), query.Get("fieldSelector"))
		paged(list, query)
		if strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadataList") {
			list["apiVersion"], list["kind"] = "meta.k8s.io/v1", "PartialObjectMetadataList"
		}
		return say(http.StatusOK, list)
	case req.Method == http.MethodPost && a.stored[p+"/"+object.GetName()] != nil:
		return say(http.StatusConflict, failure(http.StatusConflict, metav1.StatusReasonAlreadyExists))
	case req.Method == http.MethodPost:
		object.SetUID(types.UID(fmt.Sprintf("uid-%d", a.version)))
		object.SetGeneration(1)
		return say(http.StatusCreated, asked(req, a.put(p+"/"+object.GetName(), object)))
	case req.Method == http.MethodPatch && path.Base(p) == "status" && a.stored[path.Dir(p)] != nil:
		var patch struct {
			Status map[string]any `json:"status"`
		}
		if err := json.NewDecoder(req.Body).Decode(&patch); err != nil {
			return nil, err
		}
		object = a.stored[path.Dir(p)].DeepCopy()
		object.Object["status"] = patch.Status
		return say(http.StatusOK, a.put(path.Dir(p), object))
	case have == nil:
		return say(http.StatusNotFound, failure(http.StatusNotFound, metav1.StatusReasonNotFound))
	case req.Method == http.MethodPut && object.GetResourceVersion() != have.GetResourceVersion():
		return say(http.StatusConflict, failure(http.StatusConflict, metav1.StatusReasonConflict))
	case req.Method == http.MethodPut:
		object.SetUID(have.GetUID())
		object.SetGeneration(have.GetGeneration())
		return say(http.StatusOK, asked(req, a.put(p, object)))
	case req.Method == http.MethodDelete:
		delete(a.stored, p)
		return say(http.StatusOK, &metav1.Status{Status: metav1.StatusSuccess})
	default:
		return say(http.StatusOK, asked(req, have))
	}
}

// paged leaves the page of a list that a query asks for.
func paged(list map[string]any, query url.Values) {
	items := list["items"].([]any)
	from, _ := strconv.Atoi(query.Get("continue"))
	to := len(items)
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < to {
		to = from + limit
		list["metadata"].(map[string]any)["continue"] = strconv.Itoa(to)
	}
	list["items"] = items[from:to]
}

// asked returns the metadata of an object if the request asks for that alone.
func asked(req *http.Request, o *unstructured.Unstructured) *unstructured.Unstructured {
	if strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata;") {
		o = o.DeepCopy()
		o.SetAPIVersion("meta.k8s.io/v1")
		o.SetKind("PartialObjectMetadata")
		delete(o.Object, "spec")
	}
	return o
}

// kinds are the resources that can be listed, and the kinds of these lists.
var kinds = map[string]string{
	"cronjobs":                          "CronJobList",
	"deployments":                       "DeploymentList",
	"leases":                            "LeaseList",
	"validatingadmissionpolicies":       "ValidatingAdmissionPolicyList",
	"validatingadmissionpolicybindings": "ValidatingAdmissionPolicyBindingList",
}

// list lists a resource by name, in all namespaces or in that of the path.
func (a *memberAPI) list(p, selector, field string) map[string]any {
	items := []any{}
	chosen, err := labels.Parse(selector)
	if err != nil {
		panic(err)
	}
	these, err := fields.ParseSelector(field)
	if err != nil {
		panic(err)
	}
	everywhere := !strings.Contains(p, "/namespaces/")
	for _, in := range slices.Sorted(maps.Keys(a.stored)) {
		o := a.stored[in]
		if (strings.HasPrefix(in, p+"/") || everywhere && strings.Contains(in, "/"+path.Base(p)+"/")) &&
			chosen.Matches(labels.Set(o.GetLabels())) &&
			these.Matches(fields.Set{"metadata.name": o.GetName(), "metadata.namespace": o.GetNamespace()}) {
			items = append(items, o.Object)
		}
	}
	version := "v1" // as in /api/v1
	if parts := strings.Split(p, "/"); parts[1] == "apis" {
		version = parts[2] + "/" + parts[3]
	}
	return map[string]any{
		"apiVersion": version, "kind": kinds[path.Base(p)],
		"metadata": map[string]any{"resourceVersion": strconv.Itoa(a.version)}, "items": items,
	}
}

// sends sends an event to the watches of registrations, and does not wait for those that have ended.
func (a *memberAPI) sends(kind string, object any) {
	a.mu.Lock()
	watches := a.watches
	a.mu.Unlock()
	for _, w := range watches {
		go func() { _, _ = w.Write(encoded(map[string]any{"type": kind, "object": object})) }()
	}
	synctest.Wait()
}

// ends ends all watches, as a server does after a while.
func (a *memberAPI) ends() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.watches {
		_ = w.Close()
	}
	a.watches = nil
}

// loses deletes what is stored whose paths contain a text.
func (a *memberAPI) loses(text string) {
	paths := a.holds(text)
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range paths {
		delete(a.stored, p)
	}
}

// guardProbe is the name of the Lease that shows whether the guard is in force.
const guardProbe = "leasecast-guard-probe"

// probeOf returns the name of the Lease that a dry run creates, or nothing.
func probeOf(req *http.Request) string {
	if req.URL.Query().Get("dryRun") == "" {
		return ""
	}
	var probe coordinationv1.Lease
	if err := json.Unmarshal(bodyOf(req), &probe); err != nil {
		panic(err)
	}
	return probe.Name
}

// bodyOf returns what a request sends, and leaves it there.
func bodyOf(req *http.Request) []byte {
	if req.Body == nil {
		return nil
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		panic(err)
	}
	req.Body = io.NopCloser(bytes.NewReader(body))
	return body
}

// rejects answers the probe of a fence. It is rejected where a policy of that version is stored and bound.
func (a *memberAPI) rejects(probe string) *metav1.Status {
	version := strings.Replace(strings.TrimPrefix(probe, "leasecast-"), "-probe-", "-", 1)
	for p := range a.stored {
		if name := path.Base(p); strings.Contains(p, "bindings/") && strings.Contains(name, "."+version+".") &&
			a.stored[strings.Replace(p, "policybindings", "policies", 1)] != nil {
			status := failure(http.StatusForbidden, metav1.StatusReasonForbidden)
			status.Message = fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%[1]s' denied request: nobody may "+
				"create this Lease: it is asked for to see whether the fence is in force", name)
			return status
		}
	}
	return nil
}

func encoded(object any) []byte {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
}

func failure(code int32, why metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: why, Code: code,
	}
}
