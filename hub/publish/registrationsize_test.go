package publish

import (
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Caches also transform the note that an object was deleted while they did not watch.
func TestSlimRegistrationLeavesOtherObjects(t *testing.T) {
	gone := cache.DeletedFinalStateUnknown{Key: "shop/reader"}
	if got, err := SlimRegistration(gone); err != nil || got != any(gone) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestTextsOfARegistrationCount(t *testing.T) {
	of := func(account string) int {
		l := &coordinationv1.Lease{}
		l.Annotations = map[string]string{v1alpha1.ReaderAccountAnnotation: account}
		return newRegistration(l, digestOf(l), lease.Reading{}, time.Second).bytes
	}
	const more = 1000
	if short, long := of("a"), of("a"+strings.Repeat("b", more)); long-short != more || short < registrationOverhead {
		t.Errorf("%d bytes, and %d with %d more in the account's name", short, long, more)
	}
}
