package follow

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

func TestFormOf(t *testing.T) {
	definition := "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: x}\n"
	namespace := "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n"
	other := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: other}\n"
	m := parse([]source{
		of(v1alpha1.RoleLeader, settings("a")+"---\n"+definition),
		of(v1alpha1.RoleFollowers, settings("a")+"---\n"+settings("b")),
		of(v1alpha1.RoleAll, settings("c")+"---\n"+namespace+"---\n"+other),
	})
	forms := map[v1alpha1.ClusterRole]string{
		v1alpha1.RoleLeader: "Namespace/shop CustomResourceDefinition/x ConfigMap/shop/a ConfigMap/shop/c " +
			"ConfigMap/other/a",
		v1alpha1.RoleFollowers: "Namespace/shop ConfigMap/shop/a ConfigMap/shop/b ConfigMap/shop/c ConfigMap/other/a",
	}
	hashes := map[string]bool{}
	for role, want := range forms {
		f := m.formOf(role, "shop")
		var got []string
		for _, o := range f.objects {
			space := o.in("shop").namespace + "/"
			if o.order() < 2 {
				space = ""
			}
			got = append(got, o.kind.Kind+"/"+space+o.name)
		}
		if strings.Join(got, " ") != want || len(f.problems) > 0 || !f.whole {
			t.Errorf("%s: %v, %v", role, got, f.problems)
		}
		hashes[f.hash] = true
	}
	if len(hashes) != 2 {
		t.Error("both forms have one hash")
	}
}

// Of two objects with one identity in one role the first one counts. It is said, and what was applied stays.
func TestTwoObjectsOfOneIdentity(t *testing.T) {
	m := parse([]source{
		of(v1alpha1.RoleAll, settings("a")),
		of(v1alpha1.RoleLeader, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: shop}\ndata: {a: b}\n"),
	})
	f := m.formOf(v1alpha1.RoleLeader, "shop")
	if len(f.objects) != 1 || f.objects[0].content["data"] != nil || len(f.problems) != 1 || !f.whole ||
		!strings.Contains(f.problems[0].Object+f.problems[0].Message, "ConfigMap shop/atwo documents") {
		t.Errorf("%+v", f)
	}
	if f := m.formOf(v1alpha1.RoleFollowers, "shop"); len(f.objects) != 1 || len(f.problems) != 0 {
		t.Errorf("the followers have one only: %+v", f)
	}
}

func TestKindsOfAnAnnotation(t *testing.T) {
	all := map[schema.GroupVersionKind]bool{
		{Version: "v1", Kind: "ConfigMap"}: true, {Group: "apps", Version: "v1", Kind: "Deployment"}: true,
	}
	text := writeKinds(all)
	if text != "apps/v1/Deployment,v1/ConfigMap" || !maps.Equal(readKinds(text), all) {
		t.Errorf("%q, %v", text, readKinds(text))
	}
	for _, text := range []string{"", ",", "v1", "/", "a/b/c/d", "v1/", "/ConfigMap", "apps//Deployment"} {
		if kinds := readKinds(text); len(kinds) > 0 {
			t.Errorf("%q is %v", text, slices.Collect(maps.Keys(kinds)))
		}
	}
}
