package follow

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

// of is a ConfigMap with one key.
func of(role v1alpha1.ClusterRole, text string) source {
	return source{
		LeaderResource: v1alpha1.LeaderResource{Kind: v1alpha1.SourceConfigMap, Name: "s", For: role},
		data:           map[string][]byte{"k": []byte(text)},
	}
}

// settings is a document: a ConfigMap with a name.
func settings(name string) string {
	return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: " + name + "}\n"
}

// In each row the ConfigMap "good" comes first, and must be read.
func TestWhatIsWrongWithASource(t *testing.T) {
	many := strings.Repeat("---\n"+settings("x"), maxObjects)
	kinds := ""
	for i := range maxKinds {
		kinds += fmt.Sprintf("---\napiVersion: v%d\nkind: ConfigMap\nmetadata: {name: x}\n", i+2)
	}
	for name, test := range map[string]struct{ text, want string }{
		"no YAML":                  {"{", "key k: it is no object in YAML or JSON"},
		"a text":                   {"hello", "it is no object"},
		"no kind":                  {"apiVersion: v1\nmetadata: {name: a}", "document 2: it has no apiVersion and kind"},
		"no apiVersion":            {"kind: ConfigMap\nmetadata: {name: a}", "document 2: it has no apiVersion and kind"},
		"no name":                  {"apiVersion: v1\nkind: ConfigMap", "ConfigMap has no name"},
		"generateName":             {"apiVersion: v1\nkind: Job\nmetadata: {generateName: a-}", "create another object"},
		"a List":                   {"apiVersion: v1\nkind: List\nitems: []", "it is a List: write its items"},
		"a list of a kind":         {"apiVersion: v1\nkind: ConfigMapList\nmetadata: {name: a}\nitems: [{}]", "it is a List"},
		"a path for a name":        {settings("../../secrets/x"), "cannot be part of a path"},
		"a path for a namespace":   {settings("a, namespace: a/b"), "cannot be part of a path"},
		"a path for a group":       {"apiVersion: ../v1\nkind: ConfigMap\nmetadata: {name: a}", "cannot be part of a path"},
		"a label that is a number": {settings("a, labels: {version: 2}"), "ConfigMap has a label whose value is no text"},
		"a stream of JSON":         {`{"apiVersion":"v1"} {"apiVersion":"v1"}`, "divide objects by lines with ---"},
		"the end of a document":    {settings("a") + "...\n" + settings("b"), "divide objects by lines with ---"},
		"an object at its margin":  {"  apiVersion: v1\n" + settings("a"), "divide objects by lines with ---"},
		"too many objects":         {many, "more than 500 objects: make another set"},
		"too many kinds":           {kinds, "more than 32 kinds"},
		"too much":                 {"# " + strings.Repeat("x", maxSources), "more than 2097152 bytes"},
		"too many marks":           {strings.Repeat("-", maxMarks), "more than 100000 of the characters"},
		"aliases that multiply":    {"a: &a [" + strings.Repeat("x", 99) + "]\nb: [*a,*a]", "YAML alias"},
		"aliases in a flow":        {"{a: &a x,b: *a}", "YAML alias"},
		"an alias after a break":   {"a: &a x\nb:\u2028*a", "YAML alias"},
		"an alias behind a quote":  {`{"a":&a x,"b":*a}`, "YAML alias"},
		"a Secret in what is said": {"token: {hunter2", "it is no object in YAML or JSON"},
		"a Secret behind dashes":   {"---hunter2", "a line begins with --- and goes on: divide objects by lines"},
	} {
		m := parse([]source{of(v1alpha1.RoleAll, settings("good")+"---\n"+test.text)})
		if strings.HasPrefix(test.want, "YAML alias") || strings.HasPrefix(test.want, "more than 100000") ||
			strings.HasPrefix(test.want, "more than 2097152") { // nothing of such a text is read
			m.objects = append(m.objects, object{name: "good"})
		}
		if len(m.problems) == 0 || !strings.Contains(m.problems[0].Object+": "+m.problems[0].Message, test.want) ||
			m.problems[0].Reason != reason.InvalidSource || !strings.HasPrefix(m.problems[0].Object, "ConfigMap s") {
			t.Errorf("%s: %+v, want %q", name, m.problems, test.want)
		}
		if strings.Contains(fmt.Sprint(m.problems), "hunter2") {
			t.Errorf("%s: it says %+v", name, m.problems)
		}
		if len(m.objects) == 0 || m.objects[0].name != "good" {
			t.Errorf("%s: the first object is lost: %d", name, len(m.objects))
		}
		if f := m.formOf(v1alpha1.RoleLeader, "shop"); f.whole {
			t.Errorf("%s: what is not read would be deleted", name)
		}
	}
}

func TestWhatASourceMayHold(t *testing.T) {
	script := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  run: |\n    a && b & c *d\n"
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"nothing":                        {"", 0},
		"comments":                       {"# a\n---\n---\n# b\n", 0},
		"a shell script":                 {script, 1},
		"JSON":                           {`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`, 1},
		"no labels":                      {settings("a, labels: {}") + "---\n" + settings("b, labels: "), 2},
		"the end of the last one":        {settings("a") + "...\n# b\n", 1},
		"two documents":                  {settings("a") + "---\n" + settings("b"), 2},
		"an anchor that nothing repeats": {"apiVersion: &a v1\nkind: ConfigMap\nmetadata: {name: a}\n", 1},
	} {
		if m := parse([]source{of(v1alpha1.RoleAll, test.text)}); len(m.problems) > 0 || len(m.objects) != test.want {
			t.Errorf("%s: %d objects, %+v", name, len(m.objects), m.problems)
		}
	}
	const long = "9007199254740993" // no float64 is this number
	m := parse([]source{of(v1alpha1.RoleAll, settings("a")+"long: "+long)})
	if got := fmt.Sprint(m.objects[0].content["long"]); got != long {
		t.Errorf("%s has become %s", long, got)
	}
}

// An empty source is no problem. What the set had of it is deleted.
func TestASourceMayBeEmpty(t *testing.T) {
	meta := metav1.ObjectMeta{Namespace: "fleet", Name: "s"}
	live := fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{ObjectMeta: meta},
		&corev1.Secret{ObjectMeta: meta, Type: v1alpha1.SourceSecretType}).Build()
	for _, kind := range []v1alpha1.SourceKind{v1alpha1.SourceConfigMap, v1alpha1.SourceSecret} {
		set := &v1alpha1.LeaderResourceSet{ObjectMeta: meta}
		set.Spec.Resources = []v1alpha1.LeaderResource{{Kind: kind, Name: "s", For: v1alpha1.RoleAll}}
		all, err := (&sources{live: live}).read(t.Context(), set)
		if m := parse(all); err != nil || len(all) != 1 || len(m.problems) > 0 {
			t.Errorf("%s: %+v, %v", kind, m.problems, err)
		}
	}
}

// A status with a longer name would be refused, with all that it says.
func TestAProblemOfAnObjectWithALongName(t *testing.T) {
	long := strings.Repeat("ä", 300)
	is := problem("ConfigMap shop/"+long, reason.Rejected, "no").Object
	if len(is) > 512 || len(is) < 500 || !strings.HasPrefix("ConfigMap shop/"+long, is) {
		t.Errorf("%d bytes: %s", len(is), is)
	}
}

// What API servers write themselves is no part of a manifest: an object that was copied from one is the same.
func TestWhatAnAPIServerWritesIsLeftOut(t *testing.T) {
	copied := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, uid: x, resourceVersion: '7', generation: 3, " +
		"creationTimestamp: null, managedFields: [], selfLink: x}\nstatus: {a: b}\n"
	m := parse([]source{of(v1alpha1.RoleAll, copied+"---\n"+settings("a"))})
	if len(m.objects) != 2 || m.objects[0].hash != m.objects[1].hash {
		t.Errorf("%+v", m)
	}
}

func FuzzDocuments(f *testing.F) {
	for _, seed := range []string{settings("a"), "a: &a x\nb: *a", "{", "---\n---", "- a\n- b"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		size := 0
		marks := maxMarks
		_ = documents(text, &marks, func(content map[string]any) error {
			out, err := json.Marshal(content)
			size += len(out)
			return err
		})
		if size > 16*len(text)+1024 {
			t.Errorf("%d bytes become %d", len(text), size)
		}
	})
}
