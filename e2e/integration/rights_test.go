package integration

import (
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/proxy"
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
	content := harness.Get(os.ReadFile(file))(w.T)
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
	return harness.Get(w.Servers.Member(member).ServiceAccountConfig(w.T.Context(), w.System, name, rules))(w.T)
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

func TestAMemberThatRefusesTheHubItsRightsIsNotChosenAndSaysWhichAreMissing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		rules  func(w *world) []rbacv1.PolicyRule
		reason reason.Reason
		words  []string
		event  bool
	}{
		"nothing at all": {
			rules:  func(*world) []rbacv1.PolicyRule { return nil },
			reason: reason.Forbidden, words: []string{"403", "cannot get resource \"namespaces\"", "config/member"}, event: true,
		},
		"no admission policies": {
			rules:  func(w *world) []rbacv1.PolicyRule { return w.rulesWithout("admissionregistration.k8s.io") },
			reason: reason.Unguarded, words: []string{"protects the Leases", "config/member"},
		},
		"not the hub's own verb": {
			rules:  func(w *world) []rbacv1.PolicyRule { return w.rulesWithout("publish") },
			reason: reason.Forbidden, words: []string{"needs the permission to publish", "config/member"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, steady, map[string]string{"east": "100", "west": "50"})
			a := w.namespace("a", all...)
			w.Policy("p", a)
			w.removeGuard("south")
			cfg := w.account("south", "hub", test.rules(w))
			w.addCluster("south", "1000", w.kubeconfigFor("south", cfg))
			w.startHub()
			w.Leads("east", a, firstElection, "east", "west")
			j := w.keeps("east", a)
			w.awaitUnfit("south", a, test.reason, test.words...)
			if test.event {
				w.awaitEvent("south", test.reason, test.words...)
			}
			// Once the rights are granted it may lead. That alone moves nothing.
			w.account("south", "hub", w.memberRules())
			w.awaitEligible("south", a)
			j.check()
		})
	}
}

func TestTheRightsOfConfigMemberAreEnoughForEverythingTheHubDoesThere(t *testing.T) {
	t.Parallel()
	w := newWorld(t, brief, map[string]string{"east": "100"})
	a := w.namespace("a", "east", "south")
	w.Policy("p", a)
	w.removeGuard("south")
	w.addCluster("south", "1000", w.kubeconfigFor("south", w.account("south", "hub", w.memberRules())))
	w.startHub()
	epoch := w.Leads("south", a, firstElection, "east", "south")
	j := w.keeps("south", a)
	w.Eventually("the guard is in force", soon, func() error {
		if err := w.Members["south"].Create(t.Context(), incomplete(), client.DryRunAll); !apierrors.IsInvalid(err) {
			return unawaited(err)
		}
		return nil
	})
	j.check()

	// It repairs, and the guard lets it.
	l := harness.Get(w.LeaseIn("south", a))(w.T)
	w.Must(w.Members["south"].Delete(t.Context(), l))
	w.Eventually("the Lease is back", soon, func() error {
		_, err := w.LeaseIn("south", a)
		return err
	})
	if got := w.Leads("south", a, soon, "east", "south"); got != epoch {
		t.Errorf("epoch %d after the repair, was %d", got, epoch)
	}
	// It repairs the guard too.
	w.removeGuard("south")
	w.Eventually("the guard is back", 20*time.Second, func() error {
		policy := &admissionv1.ValidatingAdmissionPolicy{}
		return w.Members["south"].Get(t.Context(), types.NamespacedName{Name: guardName}, policy)
	})
	// And it leaves.
	w.removePriority("south")
	w.Leads("east", a, w.ordered(), "east")
	w.noLease("south", a, soon)
	w.left("south")
}

// user is a user of a member by client certificate, with the rights of an
// administrator until revoke is called.
func (w *world) user(member, name string) (cfg *rest.Config, revoke func()) {
	name = w.Fleet + "-" + name
	cfg = harness.Get(w.Servers.Member(member).UserConfig(name))(w.T)
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}
	w.Must(w.Members[member].Create(w.T.Context(), binding))
	return cfg, func() { w.Must(w.Members[member].Delete(w.T.Context(), binding)) }
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
	r := harness.Get(w.Record(a))(w.T)
	w.spoil("east", a, key, r.Spec.Epoch, edits["no seal"])
	w.unmoved(r)
	jb.check()
	w.awaitEligible("east", a)
}

func TestAKubeconfigWithAnotherAddressIsUsedWithinTwoRenewalsAndNoneIsMissed(t *testing.T) {
	t.Parallel()
	w, a, b, _ := eastAndWestLead(t, patient)
	ja, jb := w.keeps("east", a), w.keeps("west", b)

	other := harness.Get(proxy.New(w.Servers.Member("east").Proxy().Target()))(w.T)
	t.Cleanup(func() { _ = other.Close() })
	cfg := w.Servers.Member("east").AdminConfig()
	cfg.Host = "https://" + other.Addr()
	content := harness.Get(fleet.Kubeconfig("east", cfg))(w.T)
	begin := time.Now()
	w.rotate("east", content)
	w.Eventually("the other address is used", 2*w.renew(), func() error {
		if other.Stats().Connections < 2 {
			return fmt.Errorf("%d connections, want those of watches and of renewals", other.Stats().Connections)
		}
		return nil
	})
	t.Logf("the other address is used after %v", time.Since(begin))
	ja.grow(1)
	w.Servers.Member("east").Proxy().BlackHole() // the old way is gone
	ja.grow(3)
	ja.missedNone()
	jb.check()
}

func TestCredentialsThatWereRevokedBeforeTheRotationCostNoLeadership(t *testing.T) {
	t.Parallel()
	w := newWorld(t, steady, map[string]string{"west": "50", "south": "10"})
	a := w.namespace("a", all...)
	w.Policy("p", a)
	first, revoke := w.user("east", "first")
	w.addCluster("east", "100", w.kubeconfigFor("east", first))
	w.startHub()
	epoch := w.Leads("east", a, firstElection, all...)
	next, _ := w.user("east", "second")
	j := w.keeps("east", a)
	j.grow(2)
	revoke()
	w.rotate("east", w.kubeconfigFor("east", next))
	j.grow(2) // by the second user: the first may not
	w.awaitEligible("east", a)
	// A renewal that came in between was refused, and may have begun a replacement. The term goes on all the same.
	if now := w.Leads("east", a, firstElection, all...); now != epoch {
		t.Errorf("east leads in epoch %d, want %d still", now, epoch)
	}
	w.keeps("east", a).check()
}

func TestAKubeconfigThatLeadsToAnotherClusterCostsTheLeadershipInOrder(t *testing.T) {
	t.Parallel()
	w, a, b, epoch := eastAndWestLead(t, brief)
	j, last := w.keeps("west", b), w.follow("east", a)
	w.rotate("east", w.kubeconfig("west"))
	w.awaitUnfit("east", a, reason.WrongCluster, "correct the kubeconfig")
	w.handedOver(a, "west", epoch, last, "west", "south")
	w.rotate("east", w.kubeconfig("east"))
	w.awaitEligible("east", a)
	w.Leads("west", a, soon, all...)
	j.check()
}
