package transport

import (
	"bytes"
	"mime"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// What is charged for the parts of an answer beside its bytes. A few bytes of it can become a whole struct, so
// that an answer of 8 MiB would take a gigabyte.
const (
	objectWeight = 512 // an object of Kubernetes, empty
	fieldWeight  = 64  // a field of it, or an element of one of its lists
	braceWeight  = 384 // a JSON object, which may become any of the two
	commaWeight  = 16  // an element of a JSON list or object
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	jsonType     = "application/json"
	textType     = "text/plain; charset=utf-8"
)

// protobufMagic begins each object that Kubernetes encodes in protobuf.
var protobufMagic = []byte("k8s\x00")

// The numbers of fields in Kubernetes' protobuf messages.
const (
	rawField        = 2 // runtime.Unknown.raw: the object
	eventTypeField  = 1 // WatchEvent.type
	eventRawField   = 2 // WatchEvent.object, a RawExtension
	extensionField  = 1 // RawExtension.raw
	itemsField      = 2 // the items of a list
	metadataField   = 1 // the metadata of an object or a list
	lastObjectField = 3 // of metadata, spec and status
)

// isProtobuf reports whether a Content-Type is that of Kubernetes' protobuf.
func isProtobuf(contentType string) bool {
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && t == protobufType
}

// isJSON reports whether a Content-Type is JSON, or not given.
func isJSON(contentType string) bool {
	if contentType == "" {
		return true
	}
	t, _, err := mime.ParseMediaType(contentType)
	return err == nil && (t == jsonType || strings.HasSuffix(t, "+json"))
}

// weigh estimates, without decoding it, how much memory an object or a list takes once it is decoded. The estimate is
// about right for honest answers, and never much too low. What is neither JSON nor protobuf cannot be decoded.
func weigh(data []byte, contentType string) int64 {
	if isProtobuf(contentType) {
		return weighProtobuf(data)
	}
	return weighJSON(data)
}

// weighJSON counts what begins an object and what separates elements.
func weighJSON(data []byte) int64 {
	w := int64(len(data)) + objectWeight
	w += braceWeight * int64(bytes.Count(data, []byte("{"))+bytes.Count(data, []byte("[")))
	return w + commaWeight*int64(bytes.Count(data, []byte(",")))
}

// weighProtobuf weighs an object, or a list of them, in Kubernetes' envelope.
func weighProtobuf(data []byte) int64 {
	w := int64(len(data)) + objectWeight
	envelope, ok := bytes.CutPrefix(data, protobufMagic)
	if !ok {
		return w // it cannot be decoded
	}
	eachField(envelope, func(n protowire.Number, content []byte) {
		if n == rawField {
			w += weighMessage(content)
		}
	})
	return w
}

// weighMessage weighs an object that may be a list. A list has its items where an object has its spec, and nothing
// tells the two apart: what is there is weighed as an item.
func weighMessage(message []byte) (w int64) {
	eachField(message, func(n protowire.Number, content []byte) {
		w += fieldWeight
		switch {
		case n == itemsField:
			w += objectWeight + weighObject(content)
		case n <= lastObjectField:
			w += weighFields(content)
		}
	})
	return w
}

// weighObject weighs the fields of an object, and theirs.
func weighObject(message []byte) (w int64) {
	eachField(message, func(n protowire.Number, content []byte) {
		w += fieldWeight
		if n >= metadataField && n <= lastObjectField {
			w += weighFields(content)
		}
	})
	return w
}

// weighFields weighs the fields of a message, whatever they hold.
func weighFields(message []byte) (w int64) {
	eachField(message, func(protowire.Number, []byte) { w += fieldWeight })
	return w
}

// eachField calls f with each field of a message, until something is no field. The content of a field that is no
// string, bytes or message is nil.
func eachField(message []byte, f func(protowire.Number, []byte)) {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return
		}
		message = message[n:]
		var content []byte
		if kind == protowire.BytesType {
			content, n = protowire.ConsumeBytes(message)
		} else {
			n = protowire.ConsumeFieldValue(number, kind, message)
		}
		if n < 0 {
			return
		}
		f(number, content)
		message = message[n:]
	}
}

// eventObject is what the event of a watch shows, in Kubernetes' envelope, and its type.
func eventObject(event []byte) (kind string, object []byte) {
	eachField(event, func(n protowire.Number, content []byte) {
		switch n {
		case eventTypeField:
			kind = string(content)
		case eventRawField:
			eachField(content, func(n protowire.Number, raw []byte) {
				if n == extensionField {
					object = raw
				}
			})
		}
	})
	return kind, object
}
