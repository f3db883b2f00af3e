package guard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
	"github.com/leasecast/leasecast/hub/seal"
)

// What a fence answers.
const (
	notLeading = "this cluster does not lead the namespace"
	termIsOver = "the term of this cluster is over: it ended at "
	noLeader   = "the hub has not written the Lease of this namespace yet"
)

// deny is of a real API server: what any refusal of a fence begins with.
const deny = "ValidatingAdmissionPolicy "

// fencedAccount is the name of the account that is fenced in each namespace.
const fencedAccount = "checkout"

// asks is a policy of the fleet "fleet" that fences this in these namespaces.
func asks(name string, f v1alpha1.Fencing, namespaces ...string) *v1alpha1.LeadershipPolicy {
	return &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name},
		Spec:       v1alpha1.LeadershipPolicySpec{Namespaces: v1alpha1.NamespaceSelection{Names: namespaces}, Fencing: &f},
	}
}

// checkoutWrites fences what the account of each namespace writes.
var checkoutWrites = v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
	ServiceAccounts: []v1alpha1.FencedServiceAccount{{Name: fencedAccount}},
	Resources:       []v1alpha1.FencedResources{{Names: []string{"configmaps", "pods"}}, {Group: "apps", Names: []string{"deployments"}}},
}}}

// keeps keeps a fence until it is in force in all these namespaces. Those that are true have their Lease, and so the
// gate.
func keeps(t *testing.T, f guard.Fence, active map[string]bool) {
	t.Helper()
	h := hubOf(t)
	h.wants(f, active)
	eventually(t, "the fence is in force", func(ctx context.Context) error {
		h.turn(ctx)
		return h.Unfenced(f, "")
	})
}

// fenceOf is the one fence that a policy asks for, in the fleet of the test. It goes after the test.
func fenceOf(t *testing.T, o *v1alpha1.LeadershipPolicy) guard.Fence {
	t.Helper()
	h := hubOf(t)
	o.Namespace = h.fleet
	fences := guard.Fences("hub", o, nil)
	if len(fences) != 1 {
		t.Fatalf("there are %d fences", len(fences))
	}
	t.Cleanup(func() { h.drops(t) })
	return fences[0]
}

// says writes the managed Lease of a namespace, with an ε of a minute.
func says(t *testing.T, namespace, holder string, acquired, renewed time.Time, lasts time.Duration) {
	t.Helper()
	writeLease(t, namespace, lease.Term{Holder: holder, Epoch: 1000, AcquireTime: acquired, RenewTime: renewed, Duration: lasts}, time.Minute, "")
}

// writeLease writes the managed Lease of a namespace. It lists these locks, if any.
func writeLease(t *testing.T, namespace string, term lease.Term, skew time.Duration, open string) {
	t.Helper()
	l := &coordinationv1.Lease{}
	err := seal.Write(seal.Key("key"), lease.Content{
		Term: term, Namespace: namespace, Name: v1alpha1.DefaultLeaseName, Cluster: "east.fleet", ClusterUID: "uid", Hub: "hub", Skew: skew,
	}, l)
	if err != nil {
		t.Fatal(err)
	}
	l.Namespace, l.Name = namespace, v1alpha1.DefaultLeaseName
	if open != "" {
		l.Annotations[v1alpha1.OpenLocksAnnotation] = open
	}
	if _, err := administrator(t).CoordinationV1().Leases(namespace).Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// inNamespace is a client of the fenced account of a namespace. It may do everything.
func inNamespace(t *testing.T, namespace, name string) *kubernetes.Clientset {
	t.Helper()
	config, err := member.ServiceAccountConfig(t.Context(), namespace, name, []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return clientFor(t, config)
}

// write is one way to write. prepare is done before by the administrator, and returns what the write is about.
type write struct {
	prepare func(ctx context.Context, c kubernetes.Interface, ns, name string) error
	do      func(ctx context.Context, c kubernetes.Interface, ns, name string) error
	over    string // the answer when the term is over and nobody has said so
	leads   string // the answer to the leader
	free    bool   // nothing is stored, so everybody is let through
}

func configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"a": "1", "b": "1"}}
}

func aConfigMap(ctx context.Context, c kubernetes.Interface, ns, name string) error {
	_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, configMap(name), metav1.CreateOptions{})
	return err
}

func changed(change func(*corev1.ConfigMap)) func(context.Context, kubernetes.Interface, string, string) error {
	return func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		m, err := c.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(m)
		_, err = c.CoreV1().ConfigMaps(ns).Update(ctx, m, metav1.UpdateOptions{})
		return err
	}
}

func patched(kind types.PatchType, body string) func(context.Context, kubernetes.Interface, string, string) error {
	return func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		o, body := metav1.PatchOptions{}, strings.ReplaceAll(body, "NAME", name)
		if kind == types.ApplyPatchType {
			o = metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true)}
		}
		_, err := c.CoreV1().ConfigMaps(ns).Patch(ctx, name, kind, []byte(body), o)
		return err
	}
}

var container = corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}, ServiceAccountName: fencedAccount}

func aPod(ctx context.Context, c kubernetes.Interface, ns, name string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: container}
	_, err := c.CoreV1().Pods(ns).Create(ctx, p, metav1.CreateOptions{})
	return err
}

// patchedPod patches a Pod, or a subresource of it.
func patchedPod(sub, body string) func(context.Context, kubernetes.Interface, string, string) error {
	return func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		var subs []string
		if sub != "" {
			subs = append(subs, sub)
		}
		_, err := c.CoreV1().Pods(ns).Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, subs...)
		return err
	}
}

func aDeployment(ctx context.Context, c kubernetes.Interface, ns, name string) error {
	labels := map[string]string{"app": name}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: container},
	}}
	_, err := c.AppsV1().Deployments(ns).Create(ctx, d, metav1.CreateOptions{})
	return err
}

// withUntimedNotes makes a ConfigMap whose notes carry no times.
func withUntimedNotes(ctx context.Context, c kubernetes.Interface, ns, name string) error {
	if err := aConfigMap(ctx, c, ns, name); err != nil {
		return err
	}
	return patched(types.MergePatchType, `{"metadata":{"managedFields":[{"manager":"other","operation":"Update","apiVersion":"v1",`+
		`"fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:a":{}}}}]}}`)(ctx, c, ns, name)
}

// applied makes a ConfigMap by server-side apply.
func applied(manager string) func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
	return func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"1"}}`
		_, err := c.CoreV1().ConfigMaps(ns).Patch(ctx, name, types.ApplyPatchType, []byte(body), metav1.PatchOptions{FieldManager: manager})
		return err
	}
}

// writes are what is documented in the README of this folder: each row of its table is one of these.
var writes = map[string]write{
	"create": {do: aConfigMap, over: termIsOver},
	"create with generateName": {over: termIsOver, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		m := configMap("")
		m.GenerateName = name
		_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, m, metav1.CreateOptions{})
		return err
	}},
	"create with a creationTimestamp of its own": {over: termIsOver, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		m := configMap(name)
		m.CreationTimestamp = metav1.NewTime(time.Now().Add(-24 * time.Hour))
		_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, m, metav1.CreateOptions{})
		return err
	}},
	"create by server-side apply": {over: termIsOver,
		do: patched(types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{"a":"1"}}`)},
	"update": {prepare: aConfigMap, over: termIsOver, do: changed(func(m *corev1.ConfigMap) { m.Data["a"] = "2" })},
	"update of a label": {prepare: aConfigMap, over: termIsOver,
		do: changed(func(m *corev1.ConfigMap) { m.Labels = map[string]string{"a": "2"} })},
	"update with notes of its own": {prepare: aConfigMap, over: termIsOver, do: changed(func(m *corev1.ConfigMap) {
		m.Data["a"] = "2"
		for i := range m.ManagedFields {
			m.ManagedFields[i].Time = ptr.To(metav1.NewTime(time.Now().Add(-24 * time.Hour)))
		}
	})},
	"update that takes all notes off": {prepare: aConfigMap, over: termIsOver, leads: termIsOver, do: changed(func(m *corev1.ConfigMap) {
		m.Data["a"], m.ManagedFields = "2", []metav1.ManagedFieldsEntry{{}}
	})},
	"merge patch":           {prepare: aConfigMap, over: termIsOver, do: patched(types.MergePatchType, `{"data":{"a":"2"}}`)},
	"strategic merge patch": {prepare: aConfigMap, over: termIsOver, do: patched(types.StrategicMergePatchType, `{"data":{"a":"2"}}`)},
	"JSON patch":            {prepare: aConfigMap, over: termIsOver, do: patched(types.JSONPatchType, `[{"op":"replace","path":"/data/a","value":"2"}]`)},
	"server-side apply": {prepare: aConfigMap, over: termIsOver,
		do: patched(types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{"a":"2"}}`)},
	"status": {prepare: aDeployment, over: termIsOver, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		_, err := c.AppsV1().Deployments(ns).Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"observedGeneration":7}}`), metav1.PatchOptions{}, "status")
		return err
	}},
	"update that only takes fields away": {prepare: aConfigMap, do: changed(func(m *corev1.ConfigMap) { delete(m.Data, "b") })},
	"update that reorders fields": {
		prepare: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
			m := configMap(name)
			m.Finalizers = []string{"example.com/a", "example.com/b"}
			_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, m, metav1.CreateOptions{})
			return err
		},
		do: changed(func(m *corev1.ConfigMap) { m.Finalizers[0], m.Finalizers[1] = m.Finalizers[1], m.Finalizers[0] }),
	},
	"update of what has notes without times": {prepare: withUntimedNotes, over: termIsOver, do: changed(func(m *corev1.ConfigMap) { m.Data["a"] = "2" })},
	"update that takes fields away, of what has notes without times": {
		prepare: withUntimedNotes, over: termIsOver, leads: termIsOver, do: changed(func(m *corev1.ConfigMap) { delete(m.Data, "b") }),
	},
	"update that changes nothing": {prepare: aConfigMap, free: true, do: changed(func(*corev1.ConfigMap) {})},
	"patch that changes nothing":  {prepare: aConfigMap, free: true, do: patched(types.MergePatchType, `{"data":{"a":"1"}}`)},
	"server-side apply that changes nothing": {prepare: applied("test"), free: true,
		do: patched(types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{"a":"1"}}`)},
	"server-side apply of what another has set to the same": {prepare: applied("another"),
		do: patched(types.ApplyPatchType, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"NAME"},"data":{"a":"1"}}`)},
	"create, as a dry run": {free: true, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		_, err := c.CoreV1().ConfigMaps(ns).Create(ctx, configMap(name), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}},
	"server-side apply, as a dry run": {prepare: aConfigMap, free: true, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		body := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + name + `"},"data":{"a":"2"}}`
		_, err := c.CoreV1().ConfigMaps(ns).Patch(ctx, name, types.ApplyPatchType, []byte(body),
			metav1.PatchOptions{FieldManager: "test", Force: ptr.To(true), DryRun: []string{metav1.DryRunAll}})
		return err
	}},
	"delete, as a dry run": {prepare: aConfigMap, free: true, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		return c.CoreV1().ConfigMaps(ns).Delete(ctx, name, metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
	}},
	"scale": {prepare: aDeployment, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		_, err := c.AppsV1().Deployments(ns).UpdateScale(ctx, name, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: autoscalingv1.ScaleSpec{Replicas: 5},
		}, metav1.UpdateOptions{})
		return err
	}},
	"delete": {prepare: aConfigMap, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		return c.CoreV1().ConfigMaps(ns).Delete(ctx, name, metav1.DeleteOptions{})
	}},
	"delete-collection": {prepare: aConfigMap, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		return c.CoreV1().ConfigMaps(ns).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	}},
	"binding": {prepare: aPod, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		b := &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Target: corev1.ObjectReference{Kind: "Node", Name: "n"}}
		return c.CoreV1().RESTClient().Post().Namespace(ns).Resource("bindings").Body(b).Do(ctx).Error()
	}},
	"ephemeral container": {prepare: aPod, over: termIsOver, do: patchedPod("ephemeralcontainers",
		`{"spec":{"ephemeralContainers":[{"name":"e","image":"i","targetContainerName":"c"}]}}`)},
	"ephemeral container of a Pod without notes": {
		prepare: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
			if err := aPod(ctx, c, ns, name); err != nil {
				return err
			}
			return patchedPod("", `{"metadata":{"managedFields":[{}]}}`)(ctx, c, ns, name)
		},
		over: termIsOver, leads: termIsOver,
		do: patchedPod("ephemeralcontainers", `{"spec":{"ephemeralContainers":[{"name":"e","image":"i","targetContainerName":"c"}]}}`),
	},
	"eviction": {prepare: aPod, do: func(ctx context.Context, c kubernetes.Interface, ns, name string) error {
		return c.PolicyV1().Evictions(ns).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}})
	}},
}

// Each row in each state of the namespace: what the fence lets through, and what it does not.
func TestWhatAWriteFenceCatches(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	led, followed, over, ahead, bare := newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t), newNamespace(t)
	clients := map[string]*kubernetes.Clientset{}
	for _, ns := range []string{led, followed, over, ahead, bare} {
		clients[ns] = inNamespace(t, ns, fencedAccount)
	}
	objects := map[string]string{}
	for what, w := range writes {
		objects[what] = fmt.Sprintf("object-%d", len(objects))
		for ns := range clients {
			if w.prepare == nil {
				continue
			}
			if err := w.prepare(t.Context(), admin, ns, objects[what]); err != nil {
				t.Fatal(err)
			}
		}
	}
	now := time.Now()
	says(t, led, "east.fleet", now, now, time.Hour)
	says(t, followed, "west.fleet", now, now, time.Hour)
	says(t, over, "east.fleet", now, now.Add(time.Second), time.Second)
	says(t, ahead, "east.fleet", now.Add(time.Hour), now.Add(time.Hour), time.Hour)
	keeps(t, fenceOf(t, asks("shops", checkoutWrites, led, followed, over, ahead, bare)),
		map[string]bool{led: true, followed: true, over: true, ahead: true, bare: false})
	eventually(t, "the wall lets all of them out", func(ctx context.Context) error {
		return aConfigMap(ctx, clients[led], led, fmt.Sprintf("first-%d", time.Now().UnixNano()))
	})
	for state, test := range map[string]struct {
		namespace string
		answer    func(write) string
	}{
		"its cluster leads":     {led, func(w write) string { return w.leads }},
		"another cluster leads": {followed, func(write) string { return notLeading }},
		"its term is over":      {over, func(w write) string { return w.over }},
		"the hub's clock was ahead": {ahead, func(w write) string {
			if w.leads == "" && w.over != "" { // it carries a time
				return hubIsAhead
			}
			return w.leads
		}},
		"there is no Lease, so no leader": {bare, func(write) string { return noLeader }},
	} {
		client := clients[test.namespace]
		eventually(t, "the Lease is known", func(ctx context.Context) error {
			err := aConfigMap(ctx, client, test.namespace, fmt.Sprintf("first-%d", time.Now().UnixNano()))
			if want := test.answer(writes["create"]); (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				return fmt.Errorf("answered %w", err)
			}
			return nil
		})
		for what, w := range writes {
			t.Run(state+"/"+what, func(t *testing.T) {
				want := test.answer(w)
				if w.free {
					want = ""
				}
				mustBeAnswered(t, w.do(t.Context(), client, test.namespace, objects[what]), want)
				if err := w.do(t.Context(), admin, test.namespace, objects[what]); err != nil && strings.Contains(err.Error(), deny) {
					t.Errorf("somebody who is not fenced: %v", err)
				}
			})
		}
	}
}

// mustBeAnswered expects that answer of a fence; "": that it lets the request through.
func mustBeAnswered(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && err == nil:
		t.Errorf("let through, want: %s", want)
	case want != "" && !strings.Contains(err.Error(), want):
		t.Errorf("refused with: %v\nwant: %s", err, want)
	}
}
