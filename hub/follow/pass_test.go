package follow

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/hub/fleet/transport"
)

var ofConfigMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

func TestDrift(t *testing.T) {
	applied := marked{set: "s", uid: "u", version: "10", generation: 2}
	data := marked{set: "s", uid: "u", version: "10"}
	for name, test := range map[string]struct {
		applied, shown marked
		want           bool
	}{
		"as it was applied":                     {applied, applied, false},
		"its status has changed":                {applied, marked{"s", "u", "20", 2}, false},
		"its spec was edited":                   {applied, marked{"s", "u", "20", 3}, true},
		"it was deleted":                        {applied, marked{}, true},
		"it was created again by others":        {applied, marked{"s", "v", "20", 2}, true},
		"another set has taken it":              {applied, marked{"other", "u", "20", 2}, true},
		"the cluster was restored":              {applied, marked{"s", "u", "5", 1}, true},
		"a kind without generations":            {data, data, false},
		"a kind without generations was edited": {data, marked{"s", "u", "20", 0}, true},
	} {
		if got := drifted(test.shown, test.applied); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// conflict is how API servers say who owns fields: of updates they say by what version.
func conflict(causes ...metav1.StatusCause) error {
	err := apierrors.NewConflict(schema.GroupResource{Resource: "configmaps"}, "a", nil)
	err.ErrStatus.Details.Causes = causes
	return err
}

func TestWhatMayBeTakenOver(t *testing.T) {
	edited := metav1.StatusCause{Message: `conflict with "kubectl-edit" using v1`, Field: ".data.a"}
	applied := metav1.StatusCause{Message: `conflict with "argocd"`, Field: ".data.b"}
	scaled := metav1.StatusCause{Message: `conflict with "argocd"`, Field: ".spec.replicas"}
	many := make([]metav1.StatusCause, transport.MaxCauses)
	for i := range many {
		many[i] = edited
	}
	for name, test := range map[string]struct {
		err          error
		ours, theirs bool // what is done with an object of the set, and with one that it never had
	}{
		"an edit":                  {conflict(edited), true, false},
		"an apply":                 {conflict(applied), false, false},
		"an edit and an apply":     {conflict(edited, applied), false, false},
		"replicas":                 {conflict(scaled), true, true},
		"replicas and an edit":     {conflict(scaled, edited), true, false},
		"nobody is named":          {conflict(), false, false},
		"more than can be checked": {conflict(many...), false, false},
		"no conflict":              {apierrors.NewBadRequest("x"), false, false},
	} {
		ours, theirs := mayTakeOver(test.err, true), mayTakeOver(test.err, false)
		if ours != test.ours || theirs != test.theirs {
			t.Errorf("%s: %v and %v, want %v and %v", name, ours, theirs, test.ours, test.theirs)
		}
	}
}
