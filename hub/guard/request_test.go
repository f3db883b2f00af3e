package guard_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/seal"
)

// object is the JSON of an object.
type object = map[string]any

// groups are the resources that requests name, with the URLs of their groups.
var groups = map[string]string{
	"configmaps": "/api/v1", "pods": "/api/v1", "bindings": "/api/v1", "deployments": "/apis/apps/v1",
	"jobs": "/apis/batch/v1", "leases": "/apis/coordination.k8s.io/v1", "registrations": "/apis/coordination.k8s.io/v1",
}

const podSpec = `{"serviceAccountName":"checkout","restartPolicy":"Never","containers":[{"name":"c","image":"i"}]}`

// templates are what a request creates, puts or applies, before its own fields are merged into that.
var templates = map[string]string{
	"configmaps": `{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1","b":"1"}}`,
	"pods":       `{"apiVersion":"v1","kind":"Pod","spec":` + podSpec + `}`,
	"jobs":       `{"apiVersion":"batch/v1","kind":"Job","spec":{"template":{"spec":` + podSpec + `}}}`,
	"bindings":   `{"apiVersion":"v1","kind":"Binding","target":{"kind":"Node","name":"n"}}`,
	"deployments": `{"apiVersion":"apps/v1","kind":"Deployment","spec":{"replicas":1,` +
		`"selector":{"matchLabels":{"app":"NAME"}},"template":{"metadata":{"labels":{"app":"NAME"}},` +
		`"spec":{"containers":[{"name":"c","image":"i"}]}}}}`,
	"pods/eviction": `{"apiVersion":"policy/v1","kind":"Eviction"}`,
}

// foreign takes the marks off a Lease, so that it is the Lease of another election.
const foreign = `{"metadata":{"labels":null,"annotations":null}}`

var patches = map[string]types.PatchType{
	"merge": types.MergePatchType, "strategic": types.StrategicMergePatchType, "json": types.JSONPatchType,
	"apply": types.ApplyPatchType,
}

// send sends requests about an object of this name, one after the other, until one fails. They are separated by " ; ".
// Each is a verb, a resource with its query, and a body. NAME stands for the name. The verbs are create, put and apply,
// which merge the body into a template; update, which merges it into what is stored; the other patches, delete and
// collection.
func send(ctx context.Context, c kubernetes.Interface, ns, name, requests string) error {
	for request := range strings.SplitSeq(requests, " ; ") {
		if err := sendOne(ctx, c, ns, name, strings.ReplaceAll(request, "NAME", name)); err != nil {
			return err
		}
	}
	return nil
}

func sendOne(ctx context.Context, c kubernetes.Interface, ns, name, request string) error {
	verb, rest, _ := strings.Cut(request, " ")
	target, body, _ := strings.Cut(rest, " ")
	target, query, _ := strings.Cut(target, "?")
	resource, sub, _ := strings.Cut(target, "/")
	path := groups[resource] + "/namespaces/" + ns + "/" + strings.Replace(resource, "registrations", "leases", 1)
	one := path + "/" + name
	if sub != "" {
		one, path = one+"/"+sub, one+"/"+sub
	}
	client := c.Discovery().RESTClient()
	r := client.Verb("PATCH").AbsPath(one)
	switch verb {
	case "create":
		r, body = client.Post().AbsPath(path), filled(target, ns, name, body)
	case "put":
		r, body = client.Put().AbsPath(one), filled(target, ns, name, body)
	case "update":
		stored, err := client.Get().AbsPath(one).Do(ctx).Raw()
		if err != nil {
			return fmt.Errorf("get: %w", err)
		}
		r, body = client.Put().AbsPath(one), merged(string(stored), body)
	case "delete":
		r = client.Delete().AbsPath(one)
	case "collection":
		r = client.Delete().AbsPath(path).Param("fieldSelector", "metadata.name="+name)
	case "apply":
		body = filled(target, ns, name, body)
		r = r.Param("force", "true")
		if query == "" {
			query = "fieldManager=test"
		}
	}
	for param := range strings.SplitSeq(query, "&") {
		if key, value, ok := strings.Cut(param, "="); ok {
			r = r.Param(key, value)
		}
	}
	if kind, ok := patches[verb]; ok {
		return r.Body([]byte(body)).SetHeader("Content-Type", string(kind)).Do(ctx).Error()
	}
	return r.Body([]byte(body)).SetHeader("Content-Type", "application/json").Do(ctx).Error()
}

// filled returns the object of this name, with the body merged into its template.
func filled(target, ns, name, body string) string {
	template := strings.ReplaceAll(cmp.Or(templates[target], "{}"), "NAME", name)
	switch target {
	case "leases":
		template = encoded(newLease(lease.Term{
			Holder: "east.fleet", Epoch: 1000, AcquireTime: time.Now(), RenewTime: time.Now(), Duration: 15 * time.Second,
		}, time.Second, ns, name))
	case "registrations":
		template = encoded(newRegistration())
	}
	return merged(merged(template, encoded(object{"metadata": object{"name": name}})), body)
}

// newLease is what the hub writes.
func newLease(term lease.Term, skew time.Duration, ns, name string) *coordinationv1.Lease {
	l := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
	if err := seal.Write(seal.Key("key"), lease.Content{
		Term: term, Namespace: ns, Name: name, Cluster: "east.fleet", ClusterUID: "uid", Hub: "hub", Skew: skew,
	}, l); err != nil {
		panic(err)
	}
	l.Namespace, l.Name = ns, name
	return l
}

// reader is the user whose registrations are tested.
const reader = "system:serviceaccount:leasecast-system:reader"

// newRegistration is what the reader writes.
func newRegistration() *coordinationv1.Lease {
	l := &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}}
	if err := wire.WriteRegistration(lease.Registration{
		Identity: "pod-1_6f1c", Namespaces: []string{"shop"}, Account: reader,
		Confirmed: time.Now(), Duration: 15 * time.Second,
	}, l); err != nil {
		panic(err)
	}
	return l
}

func encoded(o any) string {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

// merged applies a JSON merge patch (RFC 7396).
func merged(to, patch string) string {
	if patch == "" {
		return to
	}
	var o, p object
	for text, into := range map[*string]*object{&to: &o, &patch: &p} {
		if err := json.Unmarshal([]byte(*text), into); err != nil {
			panic(fmt.Sprintf("%v: %s", err, *text))
		}
	}
	merge(o, p)
	return encoded(o)
}

func merge(o, patch object) {
	for key, value := range patch {
		inner, isObject := value.(object)
		if have, ok := o[key].(object); isObject && ok {
			merge(have, inner)
		} else if value == nil {
			delete(o, key)
		} else {
			o[key] = value
		}
	}
}

// Answers of the guard.
const (
	allowed    = ""
	notTheHub  = "only the Leasecast hub writes or deletes Leases with leasecast.dev/ labels or annotations"
	epochFell  = "spec.leaseTransitions is the epoch of the leader and never falls"
	incomplete = "a Lease with leasecast.dev/ marks needs spec.holderIdentity (empty for nobody), spec.renewTime, " +
		"spec.leaseDurationSeconds greater than 0 and spec.leaseTransitions"
	noCluster = "needs the annotation leasecast.dev/cluster"
	elected   = "must not set spec.strategy or spec.preferredHolder"
	rbac      = "cannot " // of the API server, before it evaluates any policy

	notTheReader     = "only the user named in the annotation reader.leasecast.dev/account writes or deletes this"
	becameAnother    = "a Lease does not become a registration of a reader, or cease to be one"
	identified       = "the identity, namespaces and account of a registration never change"
	incompleteReader = "a registration of a reader needs the label"
	oversized        = "a registration of a reader has at most"
	notWatching      = "a registration may only name namespaces in which its writer may watch Leases"
)

// Answers of fences.
const (
	notLeading  = "this cluster does not lead the namespace"
	termIsOver  = "the term of this cluster is over: it ended at "
	noLeader    = "the hub has not written the Lease of this namespace yet"
	noParameter = "no params found"
	lockNotOpen = "this lock is not open yet: the hub opens it when every earlier holder must have stopped"
	hubIsAhead  = "the clock of the hub that has written the Lease of this namespace is ahead"
	labelTaken  = "but not be taken off"
	earlierTick = "scheduled for a time before this cluster led"
)

// expect returns nil if a request got that answer. The answer allowed means that it was accepted.
func expect(err error, want string) error {
	invalid := []string{incomplete, noCluster, epochFell, elected, incompleteReader, becameAnother, identified, oversized}
	switch {
	case want == allowed && err != nil:
		return fmt.Errorf("rejected: %w", err)
	case want != allowed && (err == nil || !strings.Contains(err.Error(), want)):
		return fmt.Errorf("answer: %w, want: %s", err, want)
	case slices.Contains([]string{notTheHub, notTheReader, rbac}, want) && !apierrors.IsForbidden(err),
		slices.Contains(invalid, want) && !apierrors.IsInvalid(err):
		return fmt.Errorf("rejected with reason %s: %w", apierrors.ReasonForError(err), err)
	}
	return nil
}

// mustAnswer sends requests and expects that answer.
func mustAnswer(t *testing.T, c kubernetes.Interface, ns, name, requests, want string) {
	t.Helper()
	if err := expect(send(t.Context(), c, ns, name, requests), want); err != nil {
		t.Errorf("%s: %v", requests, err)
	}
}

// mustSend sends requests that nothing may reject.
func mustSend(t *testing.T, c kubernetes.Interface, ns, name, requests string) {
	t.Helper()
	if err := send(t.Context(), c, ns, name, requests); err != nil {
		t.Fatalf("%s: %v", requests, err)
	}
}

// answersSoon sends requests about new objects until the answer is that.
func answersSoon(t *testing.T, c kubernetes.Interface, ns, requests, want string) {
	t.Helper()
	n := 0
	eventually(t, "the answer is "+want, func(ctx context.Context) error {
		n++
		return expect(send(ctx, c, ns, fmt.Sprintf("soon-%d-%d", time.Now().UnixNano(), n), requests), want)
	})
}

// state is what the managed Lease of a namespace shows. The zero value shows that east leads, which is the cluster.
type state struct {
	holder         string        // "-": nobody
	began, renewed time.Duration // from now on
	lasts          time.Duration // zero: an hour
	open           string        // locks
}

// The states in which fences are tested.
var (
	eastLeads = state{}
	westLeads = state{holder: "west.fleet"}
	termEnded = state{renewed: time.Second, lasts: time.Second}
	hubAhead  = state{began: time.Hour, renewed: time.Hour}
)

// shows writes the managed Lease of a namespace. Clocks may differ by a minute.
func shows(t *testing.T, ns string, s state) {
	t.Helper()
	now := time.Now()
	term := lease.Term{
		Holder: s.holder, Epoch: 1000, AcquireTime: now.Add(s.began), RenewTime: now.Add(s.renewed), Duration: s.lasts,
	}
	switch s.holder {
	case "":
		term.Holder = "east.fleet"
	case "-":
		term.Holder = ""
	}
	if s.lasts == 0 {
		term.Duration = time.Hour
	}
	l := newLease(term, time.Minute, ns, v1alpha1.DefaultLeaseName)
	if s.open != "" {
		l.Annotations[v1alpha1.OpenLocksAnnotation] = s.open
	}
	_ = musttest.Get(administrator(t).CoordinationV1().Leases(ns).Create(t.Context(), l, metav1.CreateOptions{}))(t)
}

// policy is a LeadershipPolicy that fences this in these namespaces.
func policy(name string, f v1alpha1.Fencing, namespaces ...string) *v1alpha1.LeadershipPolicy {
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name},
		Spec:       v1alpha1.LeadershipPolicySpec{Namespaces: v1alpha1.NamespaceSelection{Names: namespaces}, Fencing: &f},
	}
}

// fenceOf returns the one fence that a policy asks for, in the fleet of the test. It is removed after the test.
func fenceOf(t *testing.T, o *v1alpha1.LeadershipPolicy) guard.Fence {
	t.Helper()
	h := hubOf(t)
	o.Namespace = h.fleet
	fences := guard.Fences("hub", o, nil)
	if len(fences) != 1 {
		t.Fatalf("%d fences, want 1", len(fences))
	}
	t.Cleanup(func() { h.drops(t) })
	return fences[0]
}

// fences has the hub of the test fence this in namespaces in these states, until it is in force.
func fences(t *testing.T, f v1alpha1.Fencing, in map[string]*state) guard.Fence {
	t.Helper()
	active := map[string]bool{}
	for ns, s := range in {
		if active[ns] = s != nil; s != nil {
			shows(t, ns, *s)
		}
	}
	fence := fenceOf(t, policy("shops", f, slices.Collect(maps.Keys(in))...))
	hubOf(t).keeps(t, fence, active)
	return fence
}

var apps = []v1alpha1.FencedResources{{Group: "apps", Names: []string{"deployments"}}}

// What policies fence.
var (
	// checkoutWrites are what the account checkout of each namespace writes.
	checkoutWrites = v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
		ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: "checkout"}},
		Resources:       append(apps, v1alpha1.FencedResources{Names: []string{"configmaps", "pods"}}),
	}}}
	// ledConfigMaps have a label, whoever writes them. So have Deployments.
	ledConfigMaps = v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
		ObjectLabels: map[string]string{"led": "shop"},
		Resources:    append(apps, v1alpha1.FencedResources{Names: []string{"configmaps"}}),
	}}}
	allJobs = v1alpha1.Fencing{Schedules: &metav1.LabelSelector{}}
)

// lockIn fences the lock "stock" of a namespace.
func lockIn(namespace string) v1alpha1.Fencing {
	return v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{{
		Namespace: namespace, Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2,
	}}}
}

// checkout is a client of the fenced account of a namespace. It may do everything.
func checkout(t *testing.T, ns string) *kubernetes.Clientset {
	t.Helper()
	return clientFor(t, accountConfig(t, ns, "checkout", everyResource))
}
