package worker

import (
	"context"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

const (
	// accountEvery is how often the worker looks for a fenced service account. A corrected name is noticed within
	// that time.
	accountEvery = time.Minute
	// accountTimeout bounds the requests of one turn.
	accountTimeout = 5 * time.Second
)

// AccountState is whether a member has a fenced service account. It is for warnings only, and affects no decision.
type AccountState int

const (
	// AccountUnseen: nothing is known yet.
	AccountUnseen AccountState = iota
	// AccountFound: the member has it.
	AccountFound
	// AccountMissing: the member does not have it.
	AccountMissing
)

// AccountOf returns the state of a fenced service account. Without a namespace, the account may be in any.
func (w *Worker) AccountOf(a v1alpha1.FencedServiceAccount) AccountState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.accounts[a]
}

// accountLook is the result of the last request for an account.
type accountLook struct {
	state AccountState
	next  time.Duration // boot reading of the next request
}

// watchAccounts checks whether the member has the service accounts that are fenced there, until ctx ends. The fence
// of an account whose name is wrong rejects nothing.
func (w *Worker) watchAccounts(ctx context.Context) {
	looks := map[v1alpha1.FencedServiceAccount]accountLook{}
	for ; ctx.Err() == nil; pause(ctx, fenceLook) {
		var wanted []guard.Fence
		if !w.leaving() && w.Hub.Serves(w.Member.Fleet) {
			var err error
			if wanted, _, err = w.Hub.Fences(ctx, w.Member.Key); err != nil {
				continue
			}
		}
		w.lookForAccounts(ctx, wanted, looks)
		w.noteAccounts(looks)
	}
}

// lookForAccounts sends the requests that are due, and forgets the accounts that are not fenced any more. Silence
// or a rejection leaves the state as it is.
func (w *Worker) lookForAccounts(ctx context.Context, wanted []guard.Fence, looks map[v1alpha1.FencedServiceAccount]accountLook) {
	fenced := map[v1alpha1.FencedServiceAccount]bool{}
	for _, f := range wanted {
		for _, a := range f.Accounts() {
			fenced[a] = true
		}
	}
	maps.DeleteFunc(looks, func(a v1alpha1.FencedServiceAccount, _ accountLook) bool { return !fenced[a] })
	ctx, cancel := context.WithTimeout(ctx, accountTimeout)
	defer cancel()
	for a := range fenced {
		now := w.Clock.Now().Boot
		look := looks[a]
		if now < look.next {
			continue
		}
		look.next = now + accountEvery
		// One match is enough, in any namespace.
		found, err := w.Client.CoreV1().ServiceAccounts(a.Namespace).List(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, a.Name).String(), Limit: 1})
		switch {
		case err != nil:
		case len(found.Items) > 0:
			look.state = AccountFound
		default:
			look.state = AccountMissing
		}
		looks[a] = look
	}
}

// noteAccounts records the states, and enqueues the policies' statuses if they changed.
func (w *Worker) noteAccounts(looks map[v1alpha1.FencedServiceAccount]accountLook) {
	states := map[v1alpha1.FencedServiceAccount]AccountState{}
	for a, l := range looks {
		if l.state != AccountUnseen {
			states[a] = l.state
		}
	}
	w.mu.Lock()
	news := !maps.Equal(w.accounts, states)
	w.accounts = states
	w.mu.Unlock()
	if news {
		w.Hub.FenceNews(w.Member.Key)
	}
}
