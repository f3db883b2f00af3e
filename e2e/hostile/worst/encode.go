package worst

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// encoding is how a body is written. A part of it is the content of a message or map, without what begins and ends it.
type encoding interface {
	// contentType is that of answers, watchType that of watches.
	contentType() string
	watchType() string
	// message is a field that is a message with a content.
	message(f field, content []byte) []byte
	// text is a field that is a string.
	text(f field, value string) []byte
	// entry is an entry of a field that is a map of strings, and entries the field with so many of them.
	entry(f field, key, value string) []byte
	entries(f field, all [][]byte) []byte
	// join puts fields beside each other.
	join(parts ...[]byte) []byte
	// elements is a field that repeats a message with this content, in so many bytes.
	elements(f field, content []byte, size int) []byte
	// object is a whole answer: a message of a kind.
	object(of schema.GroupVersionKind, content []byte) []byte
	// event is one of a watch.
	event(kind string, object []byte) []byte
}

type jsonEncoding struct{}

func (jsonEncoding) contentType() string { return "application/json" }
func (jsonEncoding) watchType() string   { return "application/json;stream=watch" }

func (jsonEncoding) message(f field, content []byte) []byte {
	switch {
	case f.name == "":
		return content
	case f.repeated:
		return fmt.Appendf(nil, `%q:[{%s}]`, f.name, content)
	}
	return fmt.Appendf(nil, `%q:{%s}`, f.name, content)
}

func (jsonEncoding) text(f field, value string) []byte {
	if f.repeated {
		return fmt.Appendf(nil, `%q:["%s"]`, f.name, value)
	}
	return fmt.Appendf(nil, `%q:"%s"`, f.name, value)
}

func (jsonEncoding) entry(_ field, key, value string) []byte {
	return slices.Concat([]byte(`"`), []byte(key), []byte(`":"`), []byte(value), []byte(`"`))
}

func (jsonEncoding) entries(f field, all [][]byte) []byte {
	return fmt.Appendf(nil, `%q:{%s}`, f.name, bytes.Join(all, []byte(",")))
}

func (jsonEncoding) join(parts ...[]byte) []byte {
	return bytes.Join(slices.DeleteFunc(parts, func(p []byte) bool { return len(p) == 0 }), []byte(","))
}

func (jsonEncoding) elements(f field, content []byte, size int) []byte {
	unit := slices.Concat([]byte(",{"), content, []byte("}"))
	return fmt.Appendf(nil, `%q:[%s]`, f.name, bytes.Repeat(unit, max(1, size/len(unit)))[1:])
}

func (jsonEncoding) object(of schema.GroupVersionKind, content []byte) []byte {
	head := fmt.Appendf(nil, `"kind":%q,"apiVersion":%q`, of.Kind, of.GroupVersion().String())
	return slices.Concat([]byte("{"), jsonEncoding{}.join(head, content), []byte("}"))
}

func (jsonEncoding) event(kind string, object []byte) []byte {
	return slices.Concat(fmt.Appendf(nil, `{"type":%q,"object":`, kind), object, []byte("}\n"))
}

type protobufEncoding struct{}

func (protobufEncoding) contentType() string { return runtime.ContentTypeProtobuf }
func (protobufEncoding) watchType() string   { return runtime.ContentTypeProtobuf + ";stream=watch" }

func (protobufEncoding) message(f field, content []byte) []byte {
	if f.number == 0 {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(f.number), protowire.BytesType), content)
}

func (e protobufEncoding) text(f field, value string) []byte { return e.message(f, []byte(value)) }

func (e protobufEncoding) entry(f field, key, value string) []byte {
	return e.message(f, slices.Concat(
		e.message(field{number: 1}, []byte(key)),
		e.message(field{number: 2}, []byte(value)),
	))
}

func (protobufEncoding) entries(_ field, all [][]byte) []byte { return slices.Concat(all...) }

func (protobufEncoding) join(parts ...[]byte) []byte { return slices.Concat(parts...) }

func (e protobufEncoding) elements(f field, content []byte, size int) []byte {
	unit := e.message(f, content)
	return bytes.Repeat(unit, max(1, size/max(1, len(unit))))
}

func (protobufEncoding) object(of schema.GroupVersionKind, content []byte) []byte {
	unknown := runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: of.GroupVersion().String(), Kind: of.Kind},
		Raw:      content,
	}
	data, _ := unknown.Marshal() // plain data always marshals
	return append([]byte("k8s\x00"), data...)
}

func (protobufEncoding) event(kind string, object []byte) []byte {
	data, _ := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}}).Marshal() // plain data, too
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// wrap puts the content of the last field of a path into the fields before it.
func wrap(e encoding, p path, content []byte) []byte {
	for _, f := range slices.Backward(p) {
		content = e.message(f, content)
	}
	return content
}

// long is a text of so many bytes.
func long(size int) string { return strings.Repeat("x", max(0, size)) }

// key is a short one that no other number has.
func key(n int) string { return strconv.FormatInt(int64(n), 36) }
