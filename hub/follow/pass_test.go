package follow

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/hub/fleet/transport"
)

var ofConfigMaps = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// What watches show is late. Only what is later than the version that was applied is drift.
func TestDrift(t *testing.T) {
	name := types.NamespacedName{Namespace: "shop", Name: "a"}
	mine := marked{set: "s", uid: "u", version: "10", generation: 2}
	with := func(change func(*marked)) *marked {
		m := mine
		m.version = "20"
		change(&m)
		return &m
	}
	old := marked{set: "s", uid: "u", version: "9", generation: 1}
	bare, edited := marked{set: "s", uid: "u", version: "10"}, marked{set: "s", uid: "u", version: "20"}
	odd, odder := marked{set: "s", version: "a", generation: 2}, marked{set: "s", version: "b", generation: 3}
	for what, test := range map[string]struct {
		applied marked
		shown   *marked
		listed  string
		want    bool
	}{
		"shown as it was applied":                  {mine, &mine, "5", false},
		"not shown yet":                            {mine, nil, "5", false},
		"not in a later list":                      {mine, nil, "11", true},
		"shown as it was before":                   {mine, &old, "5", false},
		"its status has changed":                   {mine, with(func(*marked) {}), "5", false},
		"its spec was edited":                      {mine, with(func(m *marked) { m.generation = 3 }), "5", true},
		"it was deleted":                           {mine, with(func(m *marked) { m.gone = true }), "5", true},
		"it was deleted before it was applied":     {mine, &marked{set: "s", version: "9", gone: true}, "5", false},
		"it was created again by others":           {mine, with(func(m *marked) { m.uid = "v" }), "5", true},
		"another set has taken it":                 {mine, with(func(m *marked) { m.set = "other" }), "5", true},
		"a kind without generations was edited":    {bare, &edited, "5", true},
		"versions are no numbers: on the interval": {odd, &odder, "5", false},
	} {
		v := &inventory{of: map[schema.GroupVersionKind]*kindState{ofConfigMaps: {
			listed: test.listed, of: map[types.NamespacedName]marked{},
		}}}
		if test.shown != nil {
			v.of[ofConfigMaps].of[name] = *test.shown
		}
		if got := v.drifted(ofConfigMaps, name, test.applied); got != test.want {
			t.Errorf("%s: %v, want %v", what, got, test.want)
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
