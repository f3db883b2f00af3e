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
	// ContentType is that of an answer, WatchType that of a watch that shows it.
	ContentType, WatchType string
	// Object is the answer. It is made by each call.
	Object func() []byte
	// Event is the event of a watch that shows it.
	Event func(kind string) []byte
}

// shape fills a message with about so many bytes.
type shape struct {
	name string
	fill func(e encoding, size int) []byte
}

// Bodies are the worst of a type, each in JSON and in protobuf, the worst first.
func Bodies(of schema.GroupVersionKind, message reflect.Type, size int) (all []Body) {
	for _, s := range shapes(message) {
		for _, e := range []encoding{protobufEncoding{}, jsonEncoding{}} {
			if _, isProto := e.(protobufEncoding); isProto && !hasProtobuf(message) {
				continue
			}
			object := func() []byte { return e.object(of, s.fill(e, size)) }
			all = append(all, Body{
				Name:        of.Kind + " of " + s.name + " in " + e.contentType(),
				ContentType: e.contentType(), WatchType: e.watchType(),
				Object: object,
				Event:  func(kind string) []byte { return e.event(kind, object()) },
			})
		}
	}
	return all
}

// Errors are the worst Statuses.
func Errors(size int) []Body {
	return Bodies(schema.GroupVersionKind{Version: "v1", Kind: "Status"}, reflect.TypeFor[metav1.Status](), size)
}

func hasProtobuf(message reflect.Type) bool {
	return reflect.PointerTo(message).Implements(reflect.TypeFor[interface{ Unmarshal([]byte) error }]())
}

// shapes are the ways to fill a message, the worst first.
func shapes(message reflect.Type) (all []shape) {
	for _, p := range heaviest(message, 3) {
		content := dense(p.last().of)
		all = append(all, shape{"elements in " + p.String(), func(e encoding, size int) []byte {
			return wrap(e, p[:len(p)-1], e.elements(p.last(), content.encode(e), size))
		}})
	}
	all = append(all, shape{"long texts", func(e encoding, size int) []byte {
		rest := size - len(texts(e, message, 0, nil))
		return texts(e, message, max(0, rest/countTexts(message, nil)), nil)
	}})
	maps, taken := []path{}, map[string]bool{}
	walk(message, func(p path) {
		if f := p.last(); isMap(f.of) && !taken[f.name] {
			maps, taken[f.name] = append(maps, slices.Clone(p)), true
		}
	})
	for _, p := range maps[:min(2, len(maps))] {
		all = append(all, shape{"entries in " + p.String(), func(e encoding, size int) []byte {
			return wrap(e, p[:len(p)-1], many(e, p.last(), size))
		}}, shape{"one entry in " + p.String(), func(e encoding, size int) []byte {
			f := p.last()
			return wrap(e, p[:len(p)-1], e.entries(f, [][]byte{e.entry(f, "example.com/long", long(size))}))
		}})
	}
	if p := managedFields(message); p != nil {
		all = append(all, shape{"managedFields", func(e encoding, size int) []byte { return wrap(e, p, managed(e, size)) }})
	}
	return append(all, shape{"what nobody knows", unknown})
}

// encode is the content of an element.
func (c element) encode(e encoding) []byte {
	var parts [][]byte
	for _, f := range c.children {
		parts = append(parts, e.message(f, dense(f.of).encode(e)))
	}
	return e.join(parts...)
}

// many is a map with so many bytes of entries.
func many(e encoding, f field, size int) []byte {
	var all [][]byte
	for n, written := 0, 0; written < size; n++ {
		entry := e.entry(f, key(n), "")
		all, written = append(all, entry), written+len(entry)+1
	}
	return e.entries(f, all)
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
func texts(e encoding, message reflect.Type, size int, on []reflect.Type) []byte {
	var parts [][]byte
	for _, f := range fields(message) {
		switch {
		case f.name != "" && isString(f.of) && message != reflect.TypeFor[metav1.TypeMeta]():
			parts = append(parts, e.text(f, long(size)))
		case isMessage(f.of) && f.of != reflect.TypeFor[metav1.TypeMeta]() && !slices.Contains(on, f.of):
			parts = append(parts, e.message(f, texts(e, f.of, size, append(slices.Clip(on), message, f.of))))
		}
	}
	return e.join(parts...)
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
func managed(e encoding, size int) []byte {
	set := bytes.Repeat([]byte(`"f:x":{},`), max(1, size/9))
	set = slices.Concat([]byte(`{`), set, []byte(`"f:y":{}}`))
	for _, f := range fields(reflect.TypeFor[metav1.ManagedFieldsEntry]()) {
		if f.name != "fieldsV1" {
			continue
		}
		if _, isProto := e.(protobufEncoding); isProto {
			return e.message(f, e.message(field{number: 1}, set))
		}
		return slices.Concat([]byte(`"fieldsV1":`), set)
	}
	return nil
}

// unknown is a field that no version of the type has, with fields that nobody knows in it.
func unknown(e encoding, size int) []byte {
	f := field{name: "nobodyKnowsThis", number: 4_000}
	inner := field{name: "a", number: 4_000, repeated: true}
	return e.message(f, e.elements(inner, nil, size))
}
