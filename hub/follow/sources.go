package follow

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	goyaml "go.yaml.in/yaml/v2"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

const (
	// maxObjects is how many objects all sources of a set may have, and maxKinds of how many kinds.
	maxObjects, maxKinds = 500, 32
	// maxNamed is how many kinds a set names at most: those that it had earlier, too.
	maxNamed = 64
	// maxSources bounds the sources of a set together, in bytes.
	maxSources = 2 << 20
	// maxMarks bounds the characters of all sources that begin or divide keys and entries: a few bytes each become
	// hundreds in memory.
	maxMarks = 100_000
	marking  = "-,:?[{"
	// maxObject bounds the name of an object in a status, in bytes. The API has the same bound.
	maxObject = 512
)

// Whoever writes a source could multiply a long text by aliases. Before an anchor or an alias is the end of another
// token.
var anchor, alias = regexp.MustCompile(`(?:^|[^!-~]|[\[{,:?!'"-])&[0-9A-Za-z_-]`),
	regexp.MustCompile(`(?:^|[^!-~]|[\[{,:?!'"-])\*[0-9A-Za-z_-]`)

// parsing is held while a source is parsed, because that takes much more memory than its text.
var parsing sync.Mutex

// source is a ConfigMap or a Secret of a set, as it was read.
type source struct {
	v1alpha1.LeaderResource
	data    map[string][]byte
	problem *v1alpha1.ResourceProblem // it could not be read
}

// object is one that a set wants. Its namespace may be empty: then it is in the namespace of the set.
type object struct {
	kind            schema.GroupVersionKind
	namespace, name string
	role            v1alpha1.ClusterRole
	content         map[string]any
	hash            string
	secret          bool // its content must not be shown
}

// id names an object in a member. Versions of one kind are the same objects.
type id struct {
	kind            schema.GroupKind
	namespace, name string
}

func (i id) String() string {
	if i.namespace == "" {
		return i.kind.Kind + " " + i.name
	}
	return i.kind.Kind + " " + i.namespace + "/" + i.name
}

// manifests are the objects of the sources of a set.
type manifests struct {
	objects  []object
	problems []v1alpha1.ResourceProblem // sources or documents that are left out: what they hold is not known
}

// parse reads the objects of sources, in their order. It goes on where something is wrong.
func parse(sources []source) (m manifests) {
	size, marks, kinds := 0, maxMarks, map[schema.GroupVersionKind]bool{}
	for _, s := range sources {
		name := string(s.Kind) + " " + s.Name
		if s.problem != nil {
			m.problems = append(m.problems, *s.problem)
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(s.data)) {
			if size += len(s.data[key]); size > maxSources {
				m.refuse(name, fmt.Errorf("the sources have more than %d bytes: make another set", maxSources))
				return m
			}
			where := name + ", key " + key
			n := 0
			err := documents(s.data[key], &marks, func(content map[string]any) error {
				n++
				o, err := newObject(content, s.For)
				o.secret = s.Kind == v1alpha1.SourceSecret || o.kind.Kind == "Secret"
				switch {
				case err != nil:
					m.refuse(fmt.Sprintf("%s, document %d", where, n), err)
				case len(m.objects) == maxObjects:
					return fmt.Errorf("the sources have more than %d objects: make another set", maxObjects)
				case !kinds[o.kind] && len(kinds) == maxKinds:
					return fmt.Errorf("the sources have objects of more than %d kinds: make another set", maxKinds)
				default:
					kinds[o.kind] = true
					m.objects = append(m.objects, o)
				}
				return nil
			})
			if err != nil {
				m.refuse(where, err)
			}
		}
	}
	return m
}

func (m *manifests) refuse(where string, err error) {
	m.problems = append(m.problems, problem(transport.Shorten(where), reason.InvalidSource, err.Error()))
}

func problem(object string, why reason.Reason, message string) v1alpha1.ResourceProblem {
	object = strings.ToValidUTF8(object[:min(len(object), maxObject)], "")
	return v1alpha1.ResourceProblem{Object: object, Reason: why, Message: transport.Shorten(message)}
}

// documents calls do with each document of a YAML stream. JSON is YAML. Empty documents do not count, and what comes
// after an object without a line between is refused. marks is how many of the characters that it counts are left, for
// this text and others.
func documents(text []byte, marks *int, do func(map[string]any) error) error {
	for _, c := range []byte(marking) {
		*marks -= bytes.Count(text, []byte{c})
	}
	switch {
	case *marks < 0:
		return fmt.Errorf("the sources have more than %d of the characters %s: make another set", maxMarks, marking)
	case anchor.Match(text) && alias.Match(text):
		return errors.New("it may have a YAML alias, which is refused: write out what it stands for")
	}
	parsing.Lock()
	defer parsing.Unlock()
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil { // the error quotes the line, which may be of a Secret
			return errors.New("a line begins with --- and goes on: divide objects by lines with --- alone")
		}
		content := map[string]any{}
		if err := utilyaml.Unmarshal(document, &content); err != nil {
			return errors.New("it is no object in YAML or JSON") // the error may quote a Secret
		}
		whole := goyaml.NewDecoder(bytes.NewReader(document))
		if _, rest := whole.Decode(&struct{}{}), whole.Decode(&struct{}{}); !errors.Is(rest, io.EOF) {
			return errors.New("something comes after an object: divide objects by lines with ---")
		}
		if len(content) == 0 {
			continue
		}
		if err := do(content); err != nil {
			return err
		}
	}
}

// into decodes what is needed of an object.
func into(o object, to any) error {
	text, err := json.Marshal(o.content)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

func isPath(segment string) bool { return len(content.IsPathSegmentName(segment)) == 0 }

// newObject checks a document, and drops from it what API servers write themselves.
func newObject(content map[string]any, role v1alpha1.ClusterRole) (object, error) {
	u := unstructured.Unstructured{Object: content}
	metadata, _ := content["metadata"].(map[string]any)
	o := object{kind: u.GroupVersionKind(), namespace: u.GetNamespace(), name: u.GetName(), role: role, content: content}
	switch {
	case o.kind.Kind == "" || o.kind.Version == "":
		return o, errors.New("it has no apiVersion and kind")
	case u.IsList() || strings.HasSuffix(o.kind.Kind, "List") && content["items"] != nil:
		return o, errors.New("it is a List: write its items as documents of their own")
	case o.name == "" && u.GetGenerateName() != "":
		return o, fmt.Errorf("%s has generateName, so each apply would create another object: give it a name", o.kind.Kind)
	case o.name == "":
		return o, fmt.Errorf("%s has no name", o.kind.Kind)
	case !isPath(o.kind.Group) || !isPath(o.kind.Version) || !isPath(o.name) || !isPath(o.namespace):
		return o, errors.New("its apiVersion, namespace or name cannot be part of a path")
	case metadata["labels"] != nil && u.GetLabels() == nil:
		return o, fmt.Errorf("%s has a label whose value is no text: put it in quotes", o.kind.Kind)
	}
	for _, key := range []string{
		"managedFields", "resourceVersion", "uid", "creationTimestamp", "generation", "selfLink", "generateName",
	} {
		delete(metadata, key)
	}
	delete(content, "status")
	text, err := json.Marshal(content)
	sum := sha256.Sum256(text)
	o.hash = hex.EncodeToString(sum[:8])
	return o, err
}
