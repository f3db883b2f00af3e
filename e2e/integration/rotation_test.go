package integration

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/proxy"
)

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

func TestRotatedCredentialsAreUsedWithinTwoRenewalsAndNoneIsMissed(t *testing.T) {
	t.Parallel()
	tests := map[string]func(w *world, name string) (cfg *rest.Config, revoke func()){
		"another user with a certificate": func(w *world, name string) (*rest.Config, func()) { return w.user("east", name) },
		"another token only": func(w *world, name string) (*rest.Config, func()) {
			return w.tokenUser("east", name)
		},
	}
	for name, newUser := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, map[string]string{"west": "50", "south": "10"})
			w.Timings = patient
			a, b := w.namespace("a", all...), w.namespace("b", "west", "south")
			w.Policy("p", a, b)
			first, revokeFirst := newUser(w, "first")
			w.addCluster("east", "100", w.kubeconfigFor("east", first))
			w.startHub()
			w.Leads("east", a, firstElection, all...)
			w.Leads("west", b, firstElection, "west", "south")
			ja, jb := w.keeps("east", a), w.keeps("west", b)
			next, _ := newUser(w, "second")
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
		})
	}
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
	w := newWorld(t, map[string]string{"west": "50", "south": "10"})
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

func TestABrokenRotationCostsNoLeadershipAndIsReported(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	j := w.keeps("east", a)
	_, ca, _ := muteServer(t)
	stranger := harness.Get(w.Servers.Member("east").UserConfig("nobody"))(w.T)
	tests := map[string]struct {
		spoil  func()
		reason reason.Reason
		words  []string
	}{
		// Events of one reason are one series with the words of the first: each reason comes once in a world.
		"no YAML": {
			spoil:  func() { w.rotate("east", []byte("]")) },
			reason: reason.InvalidKubeconfig,
			words:  []string{"Secret east-kubeconfig", "no v1 Config"},
		},
		"empty": {func() { w.rotate("east", nil) }, reason.NoKubeconfig, []string{"Secret east-kubeconfig"}},
		"dead address": {
			spoil:  func() { w.rotate("east", kubeconfigTo(t, deadAddress(t), ca)) },
			reason: reason.Unreachable,
			words:  []string{"does not answer"},
		},
		"without rights": {
			spoil:  func() { w.rotate("east", w.kubeconfigFor("east", stranger)) },
			reason: reason.Forbidden,
			words:  []string{`User "nobody"`, "config/member"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			inner := w.on(t)
			test.spoil()
			inner.awaitEvent("east", test.reason, append(test.words, "the last good kubeconfig stays in use")...)
			j.grow(2)
			inner.awaitEligible("east", a)
			inner.rotate("east", inner.kubeconfig("east"))
		})
	}
	j.check()
}

func TestADeletedSecretCostsNoLeadershipAndIsReported(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	j := w.keeps("east", a)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.Fleet, Name: "east-kubeconfig"}}
	w.Must(w.Hub.Delete(t.Context(), secret))
	w.awaitEvent("east", reason.NoKubeconfig, "Secret east-kubeconfig", "the last good kubeconfig stays in use")
	j.grow(2)
	w.awaitEligible("east", a)
	w.rotate("east", w.kubeconfig("east"))
	j.check()
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
