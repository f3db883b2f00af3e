package guard_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Where another cluster leads, a write counts as that of whom the API server takes the writer for. A connection to a Pod
// is no write.
func TestWhoWritesAndWhatIsNoWrite(t *testing.T) {
	parallel(t)
	ns := newNamespace(t)
	fenced, err := member.ServiceAccountConfig(t.Context(), ns, fencedAccount, []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	as := func(config *rest.Config, who string) *kubernetes.Clientset {
		config = rest.CopyConfig(config)
		config.Impersonate = rest.ImpersonationConfig{UserName: who, Groups: []string{"system:masters"}}
		return clientFor(t, config)
	}
	account := "system:serviceaccount:" + ns + ":" + fencedAccount
	admin := administrator(t)
	now := time.Now()
	says(t, ns, "west.fleet", now, now, time.Hour)
	keeps(t, fenceOf(t, asks("shops", checkoutWrites, ns)), map[string]bool{ns: true})
	checkout := clientFor(t, fenced)
	eventually(t, "the Lease is known", func(ctx context.Context) error {
		return answered(aConfigMap(ctx, checkout, ns, fmt.Sprintf("first-%d", time.Now().UnixNano())), notLeading)
	})
	if err := aPod(t.Context(), admin, ns, "pod"); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"somebody who impersonates the account": {aConfigMap(t.Context(), as(member.AdminConfig(), account), ns, "a"), notLeading},
		"the account impersonates somebody":     {aConfigMap(t.Context(), as(fenced, "somebody"), ns, "b"), ""},
	} {
		t.Run(name, func(t *testing.T) { mustBeAnswered(t, test.err, test.want) })
	}
	t.Run("the account executes something in a Pod", func(t *testing.T) {
		// No node runs the Pod. So the API server has an answer of its own, which comes after admission.
		err := checkout.CoreV1().RESTClient().Post().Namespace(ns).Resource("pods").Name("pod").SubResource("exec").
			Param("container", "c").Param("command", "true").Param("stdout", "true").Do(t.Context()).Error()
		if err == nil || !strings.Contains(err.Error(), "does not have a host assigned") {
			t.Errorf("answered %v", err)
		}
	})
}

// A fence of schedules is about the creation of Jobs.
func TestALabelThatIsPutOnAJobLaterFencesNothing(t *testing.T) {
	parallel(t)
	ns, admin, now := newNamespace(t), administrator(t), time.Now()
	says(t, ns, "west.fleet", now, now, time.Hour)
	once := map[string]string{"run": "once"}
	keeps(t, fenceOf(t, asks("jobs", v1alpha1.Fencing{Schedules: &metav1.LabelSelector{MatchLabels: once}}, ns)), map[string]bool{ns: true})
	eventually(t, "the Lease is known", func(ctx context.Context) error {
		_, err := admin.BatchV1().Jobs(ns).Create(ctx, aJob(once), metav1.CreateOptions{})
		return answered(err, notLeading)
	})
	free, err := admin.BatchV1().Jobs(ns).Create(t.Context(), aJob(nil), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range []string{`"once"`, "null"} {
		body := []byte(`{"metadata":{"labels":{"run":` + value + `}}}`)
		_, err := admin.BatchV1().Jobs(ns).Patch(t.Context(), free.Name, types.MergePatchType, body, metav1.PatchOptions{})
		mustBeAnswered(t, err, "")
	}
}
