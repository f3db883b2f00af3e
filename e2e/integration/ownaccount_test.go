package integration

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/account"
)

// soonRefused is how soon an API server refuses tokens of an account that was deleted, and the hub has another one.
const soonRefused = 4 * soon

func TestAnAccountThatIsDeletedAndMadeAnewCostsNoLeadership(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t)
	l, err := w.LeaseIn("east", a)
	w.Must(err)
	own := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Namespace: account.Namespace, Name: string(account.Of(l.Annotations[v1alpha1.HubAnnotation])),
	}}
	c := w.Members["east"]
	w.Must(c.Get(t.Context(), client.ObjectKeyFromObject(own), own))
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
