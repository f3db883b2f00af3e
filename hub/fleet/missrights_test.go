package fleet

import (
	"encoding/json"
	"errors"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/account"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/guard"
)

// A fence that somebody has not allowed, or the answer that a probe of a policy is after, must not have the account
// repaired all the time.
func TestWhichRefusalsAreAboutTheRightsOfTheAccount(t *testing.T) {
	leases, policies := coordinationv1.Resource("leases"), guard.Policies()[0].Policy.Spec.Validations
	const user = `User "system:serviceaccount:kube-system:leasecast-hub-0123456789" `
	cases := map[string]struct {
		err  *apierrors.StatusError
		want bool
	}{
		"roles let it update no Lease": {
			apierrors.NewForbidden(leases, "x", errors.New(user+`cannot update resource "leases" in API group "coordination.k8s.io" in the namespace "n"`)), true,
		},
		"roles let it list no Leases": {
			apierrors.NewForbidden(leases, "", errors.New(user+`cannot list resource "leases" in API group "coordination.k8s.io" at the cluster scope`)), true,
		},
		"roles let it act as no hub": {apierrors.NewForbidden(leases, "x", errors.New("ValidatingAdmissionPolicy 'p' denied request: "+policies[0].Message)), true},
		"a policy answers a probe":   {apierrors.NewForbidden(leases, "x", errors.New("ValidatingAdmissionPolicy 'p' denied request: "+policies[1].Message)), false},
		"a webhook refuses":          {apierrors.NewForbidden(leases, "x", errors.New(`admission webhook "w" denied the request: no`)), false},
		"roles let it fence nothing": {
			apierrors.NewForbidden(coordinationv1.Resource("cronjobs"), "", errors.New(user+`cannot list resource "cronjobs" in API group "batch" at the cluster scope`)), false,
		},
		"there is no such Lease": {apierrors.NewNotFound(leases, "x"), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			status := tc.err.ErrStatus
			status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
			text, err := json.Marshal(status)
			if err != nil {
				t.Fatal(err)
			}
			s := apiServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(int(status.Code))
				reply(w, string(text))
			})
			m, err := newMember(New(Options{HubID: "h", MayWrite: func() bool { return false }}), testKey)
			if err != nil {
				t.Fatal(err)
			}
			transport.Lead(targetTo(t, accessTo(t, s, "", "t"), nil), m.caches, m.renewals)
			for _, own := range []bool{false, true} { // a kubeconfig that somebody has prepared is his
				m.state.account, m.state.accountLacks = own, false
				if _, err := m.writer.CoordinationV1().Leases(corev1.NamespaceDefault).Get(t.Context(), "x", metav1.GetOptions{}); err == nil {
					t.Fatal("it is not refused")
				}
				if got := m.get().accountLacks; got != (tc.want && own) {
					t.Errorf("own account %v: it lacks rights: %v", own, got)
				}
			}
		})
	}
}

// An API server that has just started knows no roles, and then nobody has edited them.
func TestWhatARefusalOfTheAccountCosts(t *testing.T) {
	const now = time.Hour
	token := account.Credentials{Token: "t", Renew: now + time.Minute, Expire: now + 2*time.Minute}
	cases := map[string]struct {
		refused, lacks   bool
		next             time.Duration
		token, installed bool
	}{
		"nothing was refused":                       {token: true, installed: true},
		"who is not known gets a new token":         {refused: true},
		"who lacks rights keeps the token":          {lacks: true, token: true},
		"who lacks rights and is not known":         {refused: true, lacks: true},
		"no repair follows at once upon another":    {lacks: true, next: now + 1, token: true, installed: true},
		"no new token follows at once upon another": {refused: true, next: now + 1, token: true, installed: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m, err := newMember(New(Options{HubID: "h", MayWrite: func() bool { return false }}), testKey)
			if err != nil {
				t.Fatal(err)
			}
			c := &connection{member: m, lifetime: t.Context(), account: ownAccount{installed: true, credentials: token, next: tc.next}}
			m.state.accountRefused, m.state.accountLacks = tc.refused, tc.lacks
			c.dropRefused(m.get(), lease.Reading{Boot: now})
			if _, has := c.account.access(); has != tc.token || c.account.installed != tc.installed {
				t.Errorf("token %v, installed %v, want %v, %v", has, c.account.installed, tc.token, tc.installed)
			}
			if waits := tc.next > now; c.complains() != waits {
				t.Errorf("the refusal is still to be looked at: %v, want %v", c.complains(), waits)
			}
		})
	}
}
