package fleet

import (
	"testing"
	"time"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/account"
)

func TestWhenTheMemberIsAskedAboutTheAccount(t *testing.T) {
	const now = time.Hour
	token := account.Credentials{Token: "t", Renew: now + time.Minute, Expire: now + 2*time.Minute}
	old := account.Credentials{Token: "t", Renew: now, Expire: now + time.Minute}
	cases := map[string]struct {
		account    ownAccount
		mayInstall bool
		want       bool
	}{
		"not without a kubeconfig":                               {ownAccount{}, true, false},
		"at first contact":                                       {ownAccount{kubeconfig: "k"}, false, true},
		"not again where the kubeconfig is no administrator's":   {ownAccount{kubeconfig: "k", asked: true}, true, false},
		"while there is no token":                                {ownAccount{kubeconfig: "k", asked: true, administrator: true}, false, true},
		"a standby without a token waits after a refusal":        {ownAccount{kubeconfig: "k", asked: true, administrator: true, next: now + 1}, false, false},
		"who may install does not":                               {ownAccount{kubeconfig: "k", asked: true, administrator: true, next: now + 1}, true, true},
		"not while the token is young":                           {ownAccount{kubeconfig: "k", asked: true, administrator: true, installed: true, credentials: token}, true, false},
		"when a quarter of its life is left":                     {ownAccount{kubeconfig: "k", asked: true, administrator: true, installed: true, credentials: old}, true, true},
		"not at once again after a failure":                      {ownAccount{kubeconfig: "k", asked: true, administrator: true, credentials: old, next: now + 1}, true, false},
		"once this replica is elected, to install what it knows": {ownAccount{kubeconfig: "k", asked: true, administrator: true, credentials: token}, true, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			conn := &connection{account: c.account}
			if got := conn.accountDue(lease.Reading{Boot: now}, c.mayInstall); got != c.want {
				t.Errorf("due: %v, want %v", got, c.want)
			}
		})
	}
}
