package worker

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet"
	"github.com/leasecast/leasecast/hub/guard"
)

// writesBy are fences of what these accounts write in namespace shop.
func writesBy(accounts ...v1alpha1.FencedServiceAccount) []guard.Fence {
	return guard.Fences(us, &v1alpha1.LeadershipPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "shops"},
		Spec: v1alpha1.LeadershipPolicySpec{
			Namespaces: v1alpha1.NamespaceSelection{Names: []string{"shop"}},
			Fencing: &v1alpha1.Fencing{Writes: []v1alpha1.WriteFence{{
				ServiceAccounts: accounts, Resources: []v1alpha1.FencedResources{{Names: []string{"configmaps"}}},
			}}},
		},
	}, nil)

}

// storeAccount keeps a service account of the member.
func (a *memberAPI) storeAccount(namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ServiceAccount"}}
	o.SetNamespace(namespace)
	o.SetName(name)
	a.put("/api/v1/namespaces/"+namespace+"/serviceaccounts/"+name, o)
}

func TestWhichFencedAccountsAMemberHas(t *testing.T) {
	type key = v1alpha1.FencedServiceAccount
	for name, test := range map[string]struct {
		fenced key
		want   AccountState
	}{
		"one of a namespace that is there":            {key{Namespace: "ci", Name: "builder"}, AccountFound},
		"one that is in another namespace is missing": {key{Namespace: "shop", Name: "builder"}, AccountMissing},
		"without a namespace it may be in any":        {key{Name: "builder"}, AccountFound},
		"one whose name is wrong is missing":          {key{Namespace: "ci", Name: "bilder"}, AccountMissing},
		"and without a namespace, too":                {key{Name: "bilder"}, AccountMissing},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.east.storeAccount("ci", "builder")
				r.observer.readAccounts(t.Context(), writesBy(test.fenced))
				r.observer.publish()
				if got := r.AccountOf(test.fenced); got != test.want || r.fenceNews != 1 {
					t.Errorf("state %d, and news %d times, want %d, once", got, r.fenceNews, test.want)
				}
			})
		})
	}
}

func TestAnAnswerThatIsNoneSaysNothingOfAnAccount(t *testing.T) {
	for name, answer := range map[string]*metav1.Status{
		"a silent member": failure(http.StatusInternalServerError, metav1.StatusReasonInternalError),
		"a refusal":       failure(http.StatusForbidden, metav1.StatusReasonForbidden),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				builder := v1alpha1.FencedServiceAccount{Name: "builder"}
				look := func() AccountState {
					r.observer.readAccounts(t.Context(), writesBy(builder))
					r.observer.publish()
					return r.AccountOf(builder)
				}
				r.east.refuses(func(*http.Request) *metav1.Status { return answer })
				if got := look(); got != AccountUnseen || r.fenceNews != 0 {
					t.Errorf("at first the state is %d, and there was news %d times", got, r.fenceNews)
				}
				r.east.refuses(nil)
				pass(accountEvery)
				if got := look(); got != AccountMissing {
					t.Errorf("after an answer the state is %d", got)
				}
				r.east.refuses(func(*http.Request) *metav1.Status { return answer })
				pass(accountEvery)
				if got := look(); got != AccountMissing {
					t.Errorf("then the state is %d", got)
				}
			})
		})
	}
}

func TestAMemberIsAskedForAnAccountOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var asked []string
		r.east.refuses(func(req *http.Request) *metav1.Status {
			asked = append(asked, req.URL.Path+"?"+req.URL.RawQuery)
			return nil
		})
		builder := v1alpha1.FencedServiceAccount{Namespace: "ci", Name: "builder"}
		for range 2 * accountEvery / keepEvery {
			// Two fences may name one account.
			r.observer.readAccounts(t.Context(), append(writesBy(builder), writesBy(builder, builder)...))
			r.observer.publish()
			pass(keepEvery)
		}
		one := "/api/v1/namespaces/ci/serviceaccounts?fieldSelector=metadata.name%3Dbuilder&limit=1"
		if diff := cmp.Diff([]string{one, one}, asked); diff != "" {
			t.Errorf("in two minutes the member was asked (-want +got):\n%s", diff)
		}
		r.observer.readAccounts(t.Context(), nil)
		r.observer.publish()
		if got := r.AccountOf(builder); got != AccountUnseen || len(r.observer.accounts) > 0 {
			t.Errorf("of an account that is not fenced any more the state is %d", got)
		}
	})
}

// What cannot be read may have changed or not.
func TestWhatWasFoundOfAnAccountStaysWhileThePoliciesCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		builder := v1alpha1.FencedServiceAccount{Name: "builder"}
		r.wanted = writesBy(builder)
		defer r.runs(r.observe)()
		r.will(func(r *rig) { r.unread = errRefused })
		pass(2 * accountEvery)
		if got := r.AccountOf(builder); got != AccountMissing || r.fenceNews != 1 {
			t.Errorf("state %d, and news %d times, want %d, once", got, r.fenceNews, AccountMissing)
		}
	})
}

func TestTheWorkInAMemberLooksForFencedAccounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		builder := v1alpha1.FencedServiceAccount{Namespace: "ci", Name: "builder"}
		r.east.storeAccount("ci", "builder")
		r.wanted = writesBy(builder)
		defer r.runs(r.Run)()
		pass(time.Second)
		if got := r.AccountOf(builder); got != AccountFound {
			t.Errorf("state %d, want %d", got, AccountFound)
		}
	})
}

// A worker of the hub looks by itself, where it serves the fleet.
func TestWhoLooksForAccounts(t *testing.T) {
	builder := v1alpha1.FencedServiceAccount{Name: "builder"}
	for name, test := range map[string]struct {
		change func(*rig)
		want   AccountState
	}{
		"the replica that serves the fleet": {func(*rig) {}, AccountMissing},
		"nobody else":                       {func(r *rig) { r.standby = true }, AccountUnseen},
		"nobody in a member that takes no part": {func(r *rig) {
			r.is("east", func(m *fleet.Member) { m.PriorityReason = reason.NoPriority })
		}, AccountUnseen},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				r.wanted = writesBy(builder)
				test.change(r)
				go r.observe(t.Context())
				pass(time.Second)
				if got := r.AccountOf(builder); got != test.want {
					t.Errorf("state %d, want %d", got, test.want)
				}
			})
		})
	}
}
