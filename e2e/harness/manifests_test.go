package harness

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseReadsAStreamOfObjects(t *testing.T) {
	objects, err := parse([]byte("# only a comment\n---\nkind: Namespace\nmetadata: {name: a}\n---\n---\nkind: Role\nmetadata: {name: b}\n"))
	Must(t, err)
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+"/"+o.GetName())
	}
	if diff := cmp.Diff([]string{"Namespace/a", "Role/b"}, got); diff != "" {
		t.Errorf("objects (-want +got):\n%s", diff)
	}
	if objects, err := parse([]byte("kind: A\n---\nkind: [\n")); err == nil {
		t.Errorf("broken YAML is read as %v, want an error", objects)
	}
}
