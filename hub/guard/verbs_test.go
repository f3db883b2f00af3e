package guard_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
)

// ledDeployments fences Deployments with a label, whoever writes them.
var ledDeployments = v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
	ObjectLabels: map[string]string{"led": "shop"}, Resources: []v1alpha1.FencedResources{{Group: "apps", Names: []string{"deployments"}}},
}}}

// someone works in a namespace, with kubectl and without.
type someone struct {
	*kubernetes.Clientset
	namespace, kubeconfig string
}

// at is an account that may do everything.
func at(t *testing.T, namespace, account string) someone {
	t.Helper()
	config, err := member.ServiceAccountConfig(t.Context(), namespace, account, []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}})
	if err != nil {
		t.Fatal(err)
	}
	return with(t, namespace, config)
}

func with(t *testing.T, namespace string, config *rest.Config) someone {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := fleet.WriteKubeconfig(file, "member", config); err != nil {
		t.Fatal(err)
	}
	return someone{clientFor(t, config), namespace, file}
}

// kubectl runs it. The object is its input.
func (s someone) kubectl(ctx context.Context, o *appsv1.Deployment, args ...string) error {
	input, err := yaml.Marshal(o)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(os.Getenv(fleet.AssetsVariable), "kubectl"), append([]string{"--kubeconfig", s.kubeconfig, "-n", s.namespace}, args...)...)
	cmd.Stdin, cmd.Env = bytes.NewReader(input), append(os.Environ(), `KUBE_EDITOR=sed -i s/replicas:.*/replicas:\ 7/`)
	if answer, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, answer)
	}
	return nil
}

// led is a Deployment that fences are about.
func led(name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"led": "shop"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: container},
		},
	}
}

// verbs are what people and programs do to a Deployment. Each one leaves notes of its own kind. What is not fenced shows no
// notes: README.md names it.
var verbs = map[string]struct {
	do       func(ctx context.Context, s someone, name string) error
	creates  bool
	unfenced bool // by labels
}{
	"kubectl create":                   {creates: true, do: byKubectl("create", "-f", "-")},
	"kubectl apply, of what is new":    {creates: true, do: byKubectl("apply", "-f", "-")},
	"kubectl apply by the server, new": {creates: true, do: byKubectl("apply", "--server-side", "-f", "-")},
	"kubectl apply":                    {do: byKubectl("apply", "-f", "-")},
	"kubectl apply by the server":      {do: byKubectl("apply", "--server-side", "--force-conflicts", "-f", "-")},
	"kubectl replace":                  {do: byKubectl("replace", "-f", "-")},
	"kubectl edit":                     {do: byKubectl("edit", "deployment", "NAME")},
	"kubectl patch":                    {do: byKubectl("patch", "deployment", "NAME", "-p", `{"spec":{"replicas":3}}`)},
	"kubectl patch of a status":        {do: byKubectl("patch", "deployment", "NAME", "--subresource=status", "-p", `{"status":{"observedGeneration":9}}`)},
	"kubectl scale":                    {unfenced: true, do: byKubectl("scale", "deployment", "NAME", "--replicas=4")},
	"kubectl annotate":                 {do: byKubectl("annotate", "deployment", "NAME", "a=b")},
	"kubectl label":                    {do: byKubectl("label", "deployment", "NAME", "a=b")},
	"kubectl set image":                {do: byKubectl("set", "image", "deployment/NAME", "c=another")},
	"kubectl rollout restart":          {do: byKubectl("rollout", "restart", "deployment/NAME")},
	"an autoscaler": {unfenced: true, do: func(ctx context.Context, s someone, name string) error {
		scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: s.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: 5}}
		_, err := s.AppsV1().Deployments(s.namespace).UpdateScale(ctx, name, scale, metav1.UpdateOptions{FieldManager: "autoscaler"})
		return err
	}},
	"a controller that updates": {do: func(ctx context.Context, s someone, name string) error {
		d, err := s.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Spec.Replicas = ptr.To[int32](6)
		_, err = s.AppsV1().Deployments(s.namespace).Update(ctx, d, metav1.UpdateOptions{})
		return err
	}},
	"a controller that updates a status": {do: func(ctx context.Context, s someone, name string) error {
		d, err := s.AppsV1().Deployments(s.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		d.Status.ObservedGeneration = 8
		_, err = s.AppsV1().Deployments(s.namespace).UpdateStatus(ctx, d, metav1.UpdateOptions{})
		return err
	}},
	"a controller that applies a status": {do: func(ctx context.Context, s someone, name string) error {
		body := `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"` + name + `"},"status":{"observedGeneration":5}}`
		_, err := s.AppsV1().Deployments(s.namespace).Patch(ctx, name, types.ApplyPatchType, []byte(body),
			metav1.PatchOptions{FieldManager: "applier", Force: ptr.To(true)}, "status")
		return err
	}},
}

// byKubectl is a verb of kubectl, whose input is the Deployment with a change.
func byKubectl(args ...string) func(context.Context, someone, string) error {
	return func(ctx context.Context, s someone, name string) error {
		o := led(name)
		o.Spec.Replicas = ptr.To[int32](2)
		all := make([]string, len(args))
		for i, a := range args {
			all[i] = strings.ReplaceAll(a, "NAME", name)
		}
		return s.kubectl(ctx, o, all...)
	}
}

// Whatever was done to an object before, and whoever did it: the leader may do each of these, and go on after that. A
// follower may not.
func TestWhateverWasDoneToAnObjectTheLeaderMayWriteIt(t *testing.T) {
	parallel(t)
	admin := administrator(t)
	for kind, fencing := range map[string]v1alpha1.Fencing{"of an account": checkoutWrites, "of labels": ledDeployments} {
		leader, follower, lapsed := newNamespace(t), newNamespace(t), newNamespace(t)
		objects := map[string]string{}
		writers := map[string]someone{}
		for _, ns := range []string{leader, follower, lapsed} {
			writers[ns] = at(t, ns, fencedAccount)
			administrates := with(t, ns, member.AdminConfig())
			for what, v := range verbs {
				objects[what] = strings.Map(func(r rune) rune { return map[bool]rune{true: r, false: '-'}[r >= 'a' && r <= 'z'] }, what)
				if v.creates && ns == leader {
					continue
				}
				if _, err := admin.AppsV1().Deployments(ns).Create(t.Context(), led(objects[what]), metav1.CreateOptions{}); err != nil {
					t.Fatal(err)
				}
				if !v.creates && ns == lapsed { // somebody who is not fenced has done it in time
					if err := v.do(t.Context(), administrates, objects[what]); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		now := time.Now()
		says(t, leader, "east.fleet", now, now, time.Hour)
		says(t, follower, "west.fleet", now, now, time.Hour)
		says(t, lapsed, "east.fleet", now, now.Add(time.Second), time.Second)
		keeps(t, fenceOf(t, asks("verbs", fencing, leader, follower, lapsed)), map[string]bool{leader: true, follower: true, lapsed: true})
		writes := func(ctx context.Context, ns, object string) error {
			patch := fmt.Sprintf(`{"metadata":{"annotations":{"at":"%d"}}}`, time.Now().UnixNano())
			_, err := writers[ns].AppsV1().Deployments(ns).Patch(ctx, object, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
		for ns, want := range map[string]string{leader: "", follower: notLeading, lapsed: termIsOver} {
			eventually(t, "the Lease is known", func(ctx context.Context) error { return answered(writes(ctx, ns, objects["kubectl patch"]), want) })
		}
		for what, v := range verbs {
			t.Run(kind+"/"+what, func(t *testing.T) {
				mustBeAnswered(t, v.do(t.Context(), writers[leader], objects[what]), "")
				mustBeAnswered(t, writes(t.Context(), leader, objects[what]), "")
				want := notLeading
				if v.unfenced && kind == "of labels" {
					want = ""
				}
				if !v.creates {
					mustBeAnswered(t, v.do(t.Context(), writers[follower], objects[what]), want)
				}
				mustBeAnswered(t, writes(t.Context(), follower, objects[what]), notLeading)
				mustBeAnswered(t, writes(t.Context(), lapsed, objects[what]), termIsOver)
			})
		}
	}
}
