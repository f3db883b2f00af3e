package member

import (
	"fmt"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestTheLastTenRegistrationsThatSomebodyDeletedAreRemembered(t *testing.T) {
	for deleted, want := range map[int][2]string{
		1:              {"0", "0"},
		maxDeleted - 1: {"0", "8"},
		maxDeleted:     {"0", "9"},
		maxDeleted + 1: {"1", "10"},
		25:             {"15", "24"},
	} {
		r := &registrar{}
		for i := range deleted {
			r.remember(&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i)}})
		}
		if n := len(r.deleted); n != min(deleted, maxDeleted) || r.deleted[0].Name != want[0] || r.deleted[n-1].Name != want[1] {
			t.Errorf("of %d it remembers %d, from %s to %s; want from %s to %s",
				deleted, n, r.deleted[0].Name, r.deleted[n-1].Name, want[0], want[1])
		}
	}
}
