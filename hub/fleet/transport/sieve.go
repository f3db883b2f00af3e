package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// errMalformed is returned for a body that no API server sends.
var errMalformed = errors.New("the member's answer is no protobuf of Kubernetes")

// message lists the fields of a protobuf message that the hub uses. All others are skipped.
type message map[protowire.Number]field

// field is a field that is kept. The zero value is a number.
type field struct {
	text  int     // how many bytes a text may have
	of    message // a message; nil: a text or a number
	times int     // how often the field may come; zero: once, and what follows is skipped
	// key is that of the only entry that is kept of a map; empty: all are.
	key string
}

func (f field) wire() protowire.Type {
	if f.of == nil && f.text == 0 {
		return protowire.VarintType
	}
	return protowire.BytesType
}

// sieve appends the listed fields of a message to kept. So what is decoded afterwards takes at most a small multiple of
// the bytes that were kept. over: a text is longer, or a field comes more often, than it may. That one was left out.
func (m message) sieve(kept, from []byte) (all []byte, over bool, err error) {
	var seen [32]int
	for len(from) > 0 {
		number, wire, n := protowire.ConsumeField(from)
		if n < 0 {
			return nil, false, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		whole := from[:n]
		from = from[n:]
		f, listed := m[number]
		if !listed {
			continue
		}
		if wire != f.wire() {
			return nil, false, fmt.Errorf("%w: field %d has the wire type %d", errMalformed, number, wire)
		}
		if seen[number] >= max(1, f.times) {
			over = over || f.times > 0
			continue
		}
		begin, isOver := len(kept), false
		switch {
		case f.of != nil:
			kept, isOver, err = f.of.sieve(protowire.AppendTag(kept, number, wire), contentOf(whole))
			if err != nil {
				return nil, false, err
			}
			from := begin + protowire.SizeTag(number)
			if f.key != "" && (isOver || string(textOf(kept[from:], 1)) != f.key) {
				kept = kept[:begin]
				continue
			}
			kept = insertLength(kept, from)
		case f.text > 0 && len(contentOf(whole)) > f.text:
			over = true
			continue
		default:
			kept = append(kept, whole...)
		}
		over = over || isOver
		seen[number]++
	}
	return kept, over, nil
}

// insertLength puts the length of a message before it, which was kept from an index on.
func insertLength(kept []byte, from int) []byte {
	n := len(kept) - from
	kept = protowire.AppendVarint(kept, uint64(n))
	copy(kept[len(kept)-n:], kept[from:from+n])
	protowire.AppendVarint(kept[:from], uint64(n))
	return kept
}

// contentOf returns the content of a well-formed field that is a text or a message.
func contentOf(field []byte) []byte {
	_, _, tag := protowire.ConsumeTag(field)
	content, _ := protowire.ConsumeBytes(field[tag:])
	return content
}

// textOf returns the first text or message of that number in a message, or nil if there is none.
func textOf(message []byte, number protowire.Number) []byte {
	for len(message) > 0 {
		is, wire, n := protowire.ConsumeField(message)
		switch {
		case n < 0:
			return nil
		case is == number && wire == protowire.BytesType:
			return contentOf(message[:n])
		}
		message = message[n:]
	}
	return nil
}

// object appends what is kept of an object to kept, which is empty. An object that exceeds a bound is reduced to its
// name and version.
func (k kind) object(kept, raw []byte) ([]byte, error) {
	kept, over, err := k.of.sieve(kept, raw)
	if err == nil && (over || len(kept) > k.most) {
		kept, _, err = nameOnly.sieve(nil, kept)
	}
	return kept, err
}

// unwrap returns the object in Kubernetes' envelope.
func unwrap(body []byte) ([]byte, error) {
	envelope, is := bytes.CutPrefix(body, protobufMagic)
	object := textOf(envelope, 2)
	if !is || object == nil {
		return nil, fmt.Errorf("%w: it holds no object", errMalformed)
	}
	return object, nil
}

// open reads Kubernetes' envelope up to the object in it, which has n bytes.
func open(body *bufio.Reader) (n int, err error) {
	magic, err := readBytes(body, nil, len(protobufMagic))
	if err != nil || !bytes.Equal(magic, protobufMagic) {
		return 0, errors.Join(errMalformed, err)
	}
	for number := protowire.Number(0); err == nil && number != 2; {
		if _, err = body.Discard(n); err == nil {
			number, n, err = nextField(body)
		}
	}
	return n, unexpected(err)
}

// nextField reads the number and the length of a field that is a text or a message. It returns io.EOF where the body
// ends before it.
func nextField(body *bufio.Reader) (protowire.Number, int, error) {
	tag, err := binary.ReadUvarint(body)
	if err != nil {
		return 0, 0, err
	}
	number, wire := protowire.DecodeTag(tag)
	n, err := binary.ReadUvarint(body)
	if err == nil && (number < protowire.MinValidNumber || wire != protowire.BytesType || n > math.MaxInt32) {
		err = fmt.Errorf("%w: it has a field of the number %d and the type %d", errMalformed, number, wire)
	}
	return number, int(n), unexpected(err)
}

// readBytes reads n bytes, into a buffer if they fit.
func readBytes(body io.Reader, buffer []byte, n int) ([]byte, error) {
	if cap(buffer) < n {
		buffer = make([]byte, n)
	}
	_, err := io.ReadFull(body, buffer[:n])
	return buffer[:n], unexpected(err)
}

// unexpected is an error of a body that ends too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// enclose puts an object into Kubernetes' envelope.
func enclose(apiVersion, kind string, object []byte) []byte {
	meta := runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}
	if object == nil {
		object = []byte{} // an object without a field that is kept is an object
	}
	unknown := runtime.Unknown{TypeMeta: meta, Raw: object}
	body := make([]byte, len(protobufMagic)+unknown.Size())
	_, _ = unknown.MarshalTo(body[copy(body, protobufMagic):]) // plain data always marshals
	return body
}
