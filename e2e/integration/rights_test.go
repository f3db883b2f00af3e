package integration

import (
	"os"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// guardName is the name of the admission policy in each member, and of its binding.
const guardName = "managed-leases.leasecast.dev"

// memberRules are the rules that config/member grants to the hub.
func (w *world) memberRules() []rbacv1.PolicyRule {
	return rules(w, "../../config/member/hub_role.yaml")
}

// rules are those of a ClusterRole in a file.
func rules(w *world, file string) []rbacv1.PolicyRule {
	w.T.Helper()
	content := musttest.Get(os.ReadFile(file))(w.T)
	var role rbacv1.ClusterRole
	w.Must(yaml.UnmarshalStrict(content, &role))
	if len(role.Rules) == 0 {
		w.T.Fatalf("%s grants nothing", file)
	}
	return role.Rules
}

// rulesWithout are those of config/member but for what names an API group or a verb.
func (w *world) rulesWithout(word string) []rbacv1.PolicyRule {
	w.T.Helper()
	before := w.memberRules()
	after := slices.DeleteFunc(slices.Clone(before), func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.APIGroups, word) || slices.Contains(r.Verbs, word)
	})
	if len(after) == len(before) {
		w.T.Fatalf("config/member says nothing of %q", word)
	}
	return after
}

// account is a service account of a member with these rights, in a namespace of the
// world's own.
func (w *world) account(member, name string, rules []rbacv1.PolicyRule) *rest.Config {
	return musttest.Get(w.Servers.Member(member).ServiceAccountConfig(w.T.Context(), w.System, name, rules))(w.T)
}

// removeGuard takes the admission policy out of a member and waits until it is no
// longer enforced.
func (w *world) removeGuard(member string) {
	c := w.Members[member]
	for _, o := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: guardName}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: guardName}},
	} {
		w.Must(client.IgnoreNotFound(c.Delete(w.T.Context(), o)))
	}
	w.Eventually("the guard is off", soon, func() error {
		return c.Create(w.T.Context(), incomplete(), client.DryRunAll)
	})
}

// incomplete is a Lease that the guard refuses to everybody.
func incomplete() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceDefault, Name: "incomplete", Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
	}}
}

// tokenUser is a service account with the rights of config/member until revoke is
// called. It carries nothing but a token.
func (w *world) tokenUser(member, name string) (cfg *rest.Config, revoke func()) {
	cfg = w.account(member, name, w.memberRules())
	return cfg, func() {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.System + ":" + name}}
		w.Must(w.Members[member].Delete(w.T.Context(), binding))
	}
}

// rotate writes another kubeconfig into the Secret of a Cluster.
func (w *world) rotate(cluster string, kubeconfig []byte) {
	w.Must(w.Servers.SetKubeconfig(w.T.Context(), w.Fleet, cluster, kubeconfig))
}

func TestARotatedTokenIsUsedWithinTwoRenewalsAndNoneIsMissed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, patient, map[string]string{"west": "50", "south": "10"})
	a, b := w.namespace("a", all...), w.alone("b", "west")
	w.Policy("p", a)
	first, revokeFirst := w.tokenUser("east", "first")
	w.addCluster("east", "100", w.kubeconfigFor("east", first))
	w.startHub()
	w.Leads("east", a, firstElection, all...)
	w.Leads("west", b, soon, "west")
	ja, jb := w.keeps("east", a), w.keeps("west", b)
	next, _ := w.tokenUser("east", "second")
	w.rotate("east", w.kubeconfigFor("east", next))
	ja.grow(2)
	revokeFirst() // whatever still came as the old user is refused from now on
	ja.grow(3)
	// The watches have moved too: an edit is still seen.
	key := w.sealKey()
	ja.missedNone()
	r := musttest.Get(w.Record(a))(w.T)
	w.spoil("east", a, key, r.Spec.Epoch, edits["no seal"])
	w.unmoved(r)
	jb.check()
	w.awaitEligible("east", a)
}
