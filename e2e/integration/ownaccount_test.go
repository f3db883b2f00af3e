package integration

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// soonRefused is how soon an API server refuses tokens of an account that was deleted, and the hub has another one.
const soonRefused = 4 * soon

func TestAnAccountThatIsDeletedAndMadeAnewCostsNoLeadership(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	c := w.Members["east"]
	own := newestAccount(w, c)
	j := w.keeps("east", a)
	first := own.UID
	w.Must(c.Delete(t.Context(), own))
	w.Eventually("the account is there anew", soonRefused, func() error {
		err := c.Get(t.Context(), client.ObjectKeyFromObject(own), own)
		if err == nil && own.UID == first {
			err = errors.New("it is the old one")
		}
		return err
	})
	j.grow(3)
	j.check()
}

// newestAccount is the hub's own account in a member. Hubs of earlier worlds may have left theirs.
func newestAccount(w *world, c client.Client) *corev1.ServiceAccount {
	w.T.Helper()
	var list corev1.ServiceAccountList
	w.Must(c.List(w.T.Context(), &list, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingLabels{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}))
	if len(list.Items) == 0 {
		w.T.Fatal("the hub has no account in the member")
	}
	newest := &list.Items[0]
	for i := range list.Items {
		if list.Items[i].CreationTimestamp.After(newest.CreationTimestamp.Time) {
			newest = &list.Items[i]
		}
	}
	return newest
}
