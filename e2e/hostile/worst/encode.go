package worst

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// message is a field that is a message with a content, or a text.
func (f field) message(content []byte) []byte {
	if f.number == 0 {
		return nil
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, protowire.Number(f.number), protowire.BytesType), content)
}

// entry is an entry of a field that is a map of strings.
func (f field) entry(key, value string) []byte {
	return f.message(slices.Concat(field{number: 1}.message([]byte(key)), field{number: 2}.message([]byte(value))))
}

// elements is a field that repeats a message with this content, in so many bytes.
func (f field) elements(content []byte, size int) []byte {
	unit := f.message(content)
	return bytes.Repeat(unit, max(1, size/max(1, len(unit))))
}

// enclosed is a whole answer: a message of a kind.
func enclosed(of schema.GroupVersionKind, content []byte) []byte {
	unknown := runtime.Unknown{
		TypeMeta: runtime.TypeMeta{APIVersion: of.GroupVersion().String(), Kind: of.Kind},
		Raw:      content,
	}
	data, _ := unknown.Marshal() // plain data always marshals
	return append([]byte("k8s\x00"), data...)
}

// Event is one of a watch, with its length before it. It shows a message of a kind.
func Event(kind string, of schema.GroupVersionKind, content []byte) []byte {
	object := runtime.RawExtension{Raw: enclosed(of, content)}
	data, _ := (&metav1.WatchEvent{Type: kind, Object: object}).Marshal() // plain data, too
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// wrap puts the content of the last field of a path into the fields before it.
func wrap(p path, content []byte) []byte {
	for _, f := range slices.Backward(p) {
		content = f.message(content)
	}
	return content
}

// long is a text of so many bytes.
func long(size int) string { return strings.Repeat("x", max(0, size)) }

// key is a short one that no other number has.
func key(n int) string { return strconv.FormatInt(int64(n), 36) }
