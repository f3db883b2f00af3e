package controller

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

func TestPoliciesAreListedOldestFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		of := func(name string, age time.Duration) *v1alpha1.LeadershipPolicy {
			p := policyOf("fleet", name, "shop")
			p.CreationTimestamp = metav1.NewTime(musterStart.Wall.Add(-age))
			return p
		}
		going := of("a-going", 3*time.Hour)
		going.DeletionTimestamp, going.Finalizers = &metav1.Time{Time: musterStart.Wall}, []string{"example.com/x"}
		m := newMuster(t, of("b", time.Hour), of("a", time.Hour), of("z", 2*time.Hour), going,
			policyOf("fleet2", "elsewhere", "shop"))
		ps, err := listPolicies(t.Context(), m.api, "fleet")
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, p := range ps {
			names = append(names, p.Name)
		}
		if !slices.Equal(names, []string{"z", "a", "b"}) {
			t.Errorf("%q", names)
		}
		if _, err := listPolicies(t.Context(), failing{Client: m.api, list: errRefused}, "fleet"); err == nil {
			t.Error("that they could not be listed is not told")
		}
	})
}
