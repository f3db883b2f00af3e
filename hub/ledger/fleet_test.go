package ledger

import (
	"context"
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// A hub whose Clusters move takes its mark off its own records. It leaves another hub's alone.
func TestRelinquishedRecords(t *testing.T) {
	for mark, want := range map[string]string{"this": v1alpha1.NoHub, "": v1alpha1.NoHub, "another": "another"} {
		l, api := newTestLedger(t, specOf(20, mark))
		musttest.Do(t, l.Relinquish(t.Context(), "fleet2"))
		if got := stored(t, api).Spec.Hub; got != mark {
			t.Errorf("the mark %q is %q after another fleet has moved", mark, got)
		}
		musttest.Do(t, l.Relinquish(t.Context(), shop.Namespace))
		if got := stored(t, api).Spec; got.Hub != want || got.Leader != "east" {
			t.Errorf("the mark %q becomes %q, want %q, and %q leads", mark, got.Hub, want, got.Leader)
		}
	}
}

// A record that is written in between keeps its mark, and the hub tries again.
func TestRelinquishFails(t *testing.T) {
	failed := errors.New("no answer")
	patch := func(err error) interceptor.Funcs {
		return interceptor.Funcs{Patch: func(context.Context, client.WithWatch, client.Object, client.Patch,
			...client.PatchOption) error {
			return err
		}}
	}
	for name, test := range map[string]struct {
		api   interceptor.Funcs
		fails bool
	}{
		"the records are not listed": {interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList,
			...client.ListOption) error {
			return failed
		}}, true},
		"a record is not written":      {patch(failed), true},
		"a record was deleted by then": {patch(apierrors.NewNotFound(records, "shop")), false},
	} {
		l, api := newTestLedger(t, specOf(20, "this"))
		l.Client = interceptor.NewClient(api, test.api)
		if err := l.Relinquish(t.Context(), shop.Namespace); (err != nil) != test.fails {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What the hub tracks of a namespace comes from a watch, or from a decision of this tenure.
func TestWhatIsTrackedOfANamespace(t *testing.T) {
	l, api := newTestLedger(t, specOf(20, "this"))
	is := func(when, owner string, recorded, tracked bool) {
		t.Helper()
		if by, has := l.Owner(shop); by != owner || has != recorded || l.Knows(shop) != tracked {
			t.Errorf("%s: owned by %q, recorded %t, tracked %t", when, by, has, l.Knows(shop))
		}
	}
	is("before the watch shows the record", "", false, false)
	if !l.Show(stored(t, api), false) {
		t.Error("a record that this tenure has not read is no change")
	}
	is("after that", "shops", true, true)
	if l.Show(stored(t, api), true) {
		t.Error("the deletion of a record that is not tracked is a change")
	}
	is("after its deletion", "", false, false)
	e := take(t, l)
	is("while a decision runs", "", false, true)
	if was := l.SetClaim(e, Claim{Owner: "shops"}); was != (Claim{}) {
		t.Errorf("it was claimed before by %+v", was)
	}
	if was := l.SetClaim(e, Claim{Owner: "new"}); was.Owner != "shops" {
		t.Errorf("it was claimed before by %+v, want shops", was)
	}
	for fleet, want := range map[string]string{"fleet": "shop: new", "fleet2": ""} {
		claims := ""
		l.Claims(fleet, func(namespace string, of Claim) { claims += namespace + ": " + of.Owner })
		all, err := l.Cached(t.Context(), fleet)
		musttest.Do(t, err)
		some := l.CachedOf(t.Context(), fleet, []string{"till", "shop"})
		if claims != want || (len(all) == 1) != (want != "") || (len(some) == 1) != (want != "") {
			t.Errorf("%s: claims %q, %d records, %d of those that are named", fleet, claims, len(all), len(some))
		}
	}
	l.Drop(e)
	is("once it is dropped", "", false, false)
}
