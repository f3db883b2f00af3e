package integration

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
)

func TestDeletedBindingOfTheHubCostsNoLeadership(t *testing.T) {
	t.Parallel()
	w, a, _ := eastLeads(t, steady)
	l := harness.Get(w.LeaseIn("east", a))(w.T)
	hub := sha256.Sum256([]byte(l.Annotations[v1alpha1.HubAnnotation])) // each hub has a role of its own
	c, name := w.Members["east"], client.ObjectKey{Name: "leasecast-hub-" + hex.EncodeToString(hub[:5])}
	binding := &rbacv1.ClusterRoleBinding{}
	w.Must(c.Get(t.Context(), name, binding))
	j, first := w.keeps("east", a), binding.UID
	w.Must(c.Delete(t.Context(), binding))
	w.Eventually("the binding is back", soon, func() error {
		err := c.Get(t.Context(), name, binding)
		if err == nil && binding.UID == first {
			err = errors.New("it is the old one")
		}
		return err
	})
	j.grow(3)
	j.check()
}
