// Package worst makes the worst answers that an API server could give within so many bytes: those that take most memory
// or time once they are decoded. It finds them in the Go type that they are decoded into, so a new type needs nothing
// written here.
package worst

import (
	"bytes"
	"reflect"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Body is one answer.
type Body struct {
	// Name says what is in it.
	Name string
	// Object is the answer. It is made by each call.
	Object func() []byte
	// Event is the event of a watch that shows it.
	Event func(kind string) []byte
}

// shape fills a message with about so many bytes.
type shape struct {
	name string
	fill func(size int) []byte
}

// Bodies are the worst of a type in protobuf, the worst first.
func Bodies(of schema.GroupVersionKind, message reflect.Type, size int) (all []Body) {
	if !hasProtobuf(message) {
		return nil
	}
	for _, s := range shapes(message) {
		all = append(all, Body{
			Name:   of.Kind + " of " + s.name,
			Object: func() []byte { return enclosed(of, s.fill(size)) },
			Event:  func(kind string) []byte { return Event(kind, of, s.fill(size)) },
		})
	}
	return all
}

func hasProtobuf(message reflect.Type) bool {
	return reflect.PointerTo(message).Implements(reflect.TypeFor[interface{ Unmarshal([]byte) error }]())
}

// shapes are the ways to fill a message, the worst first.
func shapes(message reflect.Type) (all []shape) {
	for _, p := range heaviest(message, 3) {
		content := dense(p.last().of)
		all = append(all, shape{"elements in " + p.String(), func(size int) []byte {
			return wrap(p[:len(p)-1], p.last().elements(content.encode(), size))
		}})
	}
	all = append(all, shape{"long texts", func(size int) []byte {
		rest := size - len(texts(message, 0, nil))
		return texts(message, max(0, rest/countTexts(message, nil)), nil)
	}})
	maps, taken := []path{}, map[string]bool{}
	walk(message, func(p path) {
		if f := p.last(); isMap(f.of) && !taken[f.name] {
			maps, taken[f.name] = append(maps, slices.Clone(p)), true
		}
	})
	for _, p := range maps[:min(2, len(maps))] {
		all = append(all, shape{"entries in " + p.String(), func(size int) []byte {
			return wrap(p[:len(p)-1], many(p.last(), size))
		}}, shape{"one entry in " + p.String(), func(size int) []byte {
			return wrap(p[:len(p)-1], p.last().entry("example.com/long", long(size)))
		}})
	}
	if p := managedFields(message); p != nil {
		all = append(all, shape{"managedFields", func(size int) []byte { return wrap(p, managed(size)) }})
	}
	return append(all, shape{"what nobody knows", unknown})
}

// encode is the content of an element.
func (c element) encode() (content []byte) {
	for _, f := range c.children {
		content = append(content, f.message(dense(f.of).encode())...)
	}
	return content
}

// many is a map with so many bytes of entries.
func many(f field, size int) (all []byte) {
	for n := 0; len(all) < size; n++ {
		all = append(all, f.entry(key(n), "")...)
	}
	return all
}

// countTexts counts what texts fills.
func countTexts(message reflect.Type, on []reflect.Type) (n int) {
	for _, f := range fields(message) {
		switch {
		case isString(f.of):
			n++
		case isMessage(f.of) && !slices.Contains(on, f.of):
			n += countTexts(f.of, append(slices.Clip(on), message, f.of))
		}
	}
	return max(1, n)
}

// texts is a message with a text of so many bytes wherever one may be.
func texts(message reflect.Type, size int, on []reflect.Type) (content []byte) {
	for _, f := range fields(message) {
		switch {
		case f.name != "" && isString(f.of) && message != reflect.TypeFor[metav1.TypeMeta]():
			content = append(content, f.message([]byte(long(size)))...)
		case isMessage(f.of) && f.of != reflect.TypeFor[metav1.TypeMeta]() && !slices.Contains(on, f.of):
			content = append(content, f.message(texts(f.of, size, append(slices.Clip(on), message, f.of)))...)
		}
	}
	return content
}

// managedFields is the path to the first managedFields of a message, without the last two steps; nil if it has none.
func managedFields(message reflect.Type) (found path) {
	walk(message, func(p path) {
		if found == nil && p.last().of == reflect.TypeFor[metav1.ManagedFieldsEntry]() {
			found = slices.Clone(p)
		}
	})
	return found
}

// managed is the content of an entry of managedFields that names fields without end.
func managed(size int) []byte {
	set := bytes.Repeat([]byte(`"f:x":{},`), max(1, size/9))
	set = slices.Concat([]byte(`{`), set, []byte(`"f:y":{}}`))
	for _, f := range fields(reflect.TypeFor[metav1.ManagedFieldsEntry]()) {
		if f.name == "fieldsV1" {
			return f.message(field{number: 1}.message(set))
		}
	}
	return nil
}

// unknown is a field that no version of the type has, with fields that nobody knows in it.
func unknown(size int) []byte {
	f := field{number: 4_000}
	return f.message(f.elements(nil, size))
}
