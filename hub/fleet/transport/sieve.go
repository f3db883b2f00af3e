package transport

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"
)

// errMalformed is returned for a body that no API server sends.
var errMalformed = errors.New("the member's answer is no protobuf of Kubernetes")

// message lists the fields of a protobuf message that the hub uses. A sieve skips all others.
type message map[protowire.Number]field

// field is a field that is kept. The zero value is a number.
type field struct {
	text  int     // how many bytes a text may have
	of    message // a message; nil: a text or a number
	times int     // how often the field may come; zero: once, and what follows is skipped
	// key is that of the only entry that is kept of a map; empty: all are.
	key string
	// object is set for the items of a list. Each is bounded by itself.
	object bool
}

func (f field) wire() protowire.Type {
	if f.of == nil && f.text == 0 {
		return protowire.VarintType
	}
	return protowire.BytesType
}

// sieve copies from a body the fields that are listed, and bounds each of them. It reads the rest without keeping it. So
// what is decoded afterwards takes at most a small multiple of the bytes that were kept.
type sieve struct {
	from *bufio.Reader
	kept []byte
	// most is how many bytes may be kept of one object, and longest how many an object may have outside of a list. Zero:
	// there is no bound.
	most    int
	longest int64
	// over: a text is longer, or a field comes more often, than it may. That one was left out.
	over bool
	// grow asks for room for what is kept. nil: there is enough.
	grow func(bytes int) error
	// item reports whether an item of a list is kept, of which the content is what was kept from an index on. nil: it is.
	item func(from int) (bool, error)
}

// message sieves a message of n bytes.
func (s *sieve) message(n int64, of message) error {
	var seen [32]int
	for n > 0 {
		number, wire, used, err := s.tag(n)
		if err != nil {
			return unexpected(err)
		}
		n -= used
		f, listed := of[number]
		if listed && wire != f.wire() {
			return fmt.Errorf("%w: field %d has the wire type %d", errMalformed, number, wire)
		}
		skip := !listed || seen[number] >= max(1, f.times)
		s.over = s.over || listed && skip && f.times > 0
		before := len(s.kept)
		if used, err = s.value(n, number, wire, f, skip); err != nil {
			return err
		}
		n -= used
		if listed && (f.key == "" || len(s.kept) > before) {
			seen[number]++
		}
	}
	return nil
}

// value reads the value of a field, of which at most n bytes are there, and keeps it unless it is skipped.
func (s *sieve) value(n int64, number protowire.Number, wire protowire.Type, f field, skip bool) (used int64, err error) {
	switch wire {
	case protowire.VarintType:
		v, used, err := s.varint(n)
		if err == nil && !skip {
			err = s.keep(func(b []byte) []byte { return protowire.AppendVarint(protowire.AppendTag(b, number, wire), v) })
		}
		return used, err
	case protowire.Fixed32Type:
		return s.skip(n, 4)
	case protowire.Fixed64Type:
		return s.skip(n, 8)
	case protowire.BytesType:
		length, used, err := s.varint(n)
		if err != nil {
			return used, err
		}
		if length > uint64(n-used) || length > math.MaxInt32 {
			return used, fmt.Errorf("%w: field %d is longer than what holds it", errMalformed, number)
		}
		return used + int64(length), s.content(int64(length), number, f, skip)
	default:
		return 0, fmt.Errorf("%w: it has a group", errMalformed)
	}
}

// content reads the content of a text or a message.
func (s *sieve) content(length int64, number protowire.Number, f field, skip bool) error {
	tooLong := !skip && f.of == nil && length > int64(f.text)
	if skip || tooLong {
		s.over = s.over || tooLong
		_, err := s.skip(length, length)
		return err
	}
	if f.object && length > maxObject {
		return fmt.Errorf("%w: an object has %d bytes", ErrTooLarge, length)
	}
	begin := len(s.kept)
	if f.of == nil {
		return s.copy(number, int(length))
	}
	if err := s.keep(func(b []byte) []byte { return protowire.AppendTag(b, number, protowire.BytesType) }); err != nil {
		return err
	}
	was, from := s.over, len(s.kept)
	if f.object {
		s.over = false
	}
	if err := s.message(length, f.of); err != nil {
		return err
	}
	switch {
	case f.object:
		err := s.closeItem(begin, from)
		s.over = was
		return err
	case f.key != "" && (s.over || entryKey(s.kept[from:]) != f.key):
		s.kept, s.over = s.kept[:begin], was
		return nil
	}
	return s.insertLength(from)
}

// closeItem completes an item of a list. It begins at an index of what was kept, and its content at another.
func (s *sieve) closeItem(begin, from int) error {
	s.reduce(from)
	if s.item != nil {
		if kept, err := s.item(from); err != nil || !kept {
			s.kept = s.kept[:begin]
			return err
		}
	}
	return s.insertLength(from)
}

// reduce replaces an object that exceeds a bound by its name and version. The object was kept from an index on.
func (s *sieve) reduce(from int) {
	if !s.over && len(s.kept)-from <= s.most {
		return
	}
	small := sieve{from: bufio.NewReaderSize(bytes.NewReader(s.kept[from:]), 64)}
	if err := small.message(int64(len(s.kept)-from), nameOnly); err != nil {
		small.kept = nil // what was kept is well-formed
	}
	s.kept, s.over = append(s.kept[:from], small.kept...), false
}

// insertLength puts the length of a message before it, which was kept from an index on.
func (s *sieve) insertLength(from int) error {
	length := len(s.kept) - from
	if err := s.keep(func(b []byte) []byte { return protowire.AppendVarint(b, uint64(length)) }); err != nil {
		return err
	}
	copy(s.kept[len(s.kept)-length:], s.kept[from:from+length])
	protowire.AppendVarint(s.kept[:from], uint64(length))
	return nil
}

// keep appends to what is kept.
func (s *sieve) keep(appended func([]byte) []byte) error {
	before := len(s.kept)
	s.kept = appended(s.kept)
	if s.grow == nil {
		return nil
	}
	return s.grow(len(s.kept) - before)
}

// copy keeps a text of n bytes.
func (s *sieve) copy(number protowire.Number, n int) error {
	if err := s.keep(func(b []byte) []byte {
		b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.BytesType), uint64(n))
		return slices.Grow(b, n)[:len(b)+n]
	}); err != nil {
		return err
	}
	_, err := io.ReadFull(s.from, s.kept[len(s.kept)-n:])
	return unexpected(err)
}

// skip reads what is n bytes long, of which at most that many are there.
func (s *sieve) skip(most, n int64) (int64, error) {
	if n > most {
		return 0, fmt.Errorf("%w: it ends within a field", errMalformed)
	}
	_, err := s.from.Discard(int(n))
	return n, unexpected(err)
}

// tag reads the number and the type of a field. It returns io.EOF where the body ends before it.
func (s *sieve) tag(n int64) (number protowire.Number, wire protowire.Type, used int64, err error) {
	v, used, err := s.varint(n)
	if err != nil {
		if used > 0 {
			err = unexpected(err)
		}
		return 0, 0, used, err
	}
	number, wire = protowire.DecodeTag(v)
	if number < protowire.MinValidNumber {
		return 0, 0, used, fmt.Errorf("%w: it has a field without a number", errMalformed)
	}
	return number, wire, used, nil
}

// varint reads a number, of which at most n bytes are there.
func (s *sieve) varint(n int64) (v uint64, used int64, err error) {
	for shift := 0; shift < 64; shift += 7 {
		if used == n {
			return 0, used, fmt.Errorf("%w: it ends within a number", errMalformed)
		}
		b, err := s.from.ReadByte()
		if err != nil {
			return 0, used, err
		}
		used++
		if shift == 63 && b > 1 {
			break
		}
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v, used, nil
		}
	}
	return 0, used, fmt.Errorf("%w: it has a number of more than 64 bits", errMalformed)
}

// unexpected is an error of a body that ends too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// entryKey is the key of a kept entry of a map.
func entryKey(entry []byte) string {
	number, wire, n := protowire.ConsumeTag(entry)
	if n < 0 || number != 1 || wire != protowire.BytesType {
		return ""
	}
	key, _ := protowire.ConsumeString(entry[n:])
	return key
}

// envelope sieves an object in Kubernetes' envelope, of n bytes or up to the end of the body, and returns the kind that
// it says it is. of gets that kind, and returns the fields that are kept.
func (s *sieve) envelope(n int64, of func(kind string) message) (kind string, err error) {
	var magic [4]byte
	if n < int64(len(magic)) {
		return "", errMalformed
	}
	if _, err := io.ReadFull(s.from, magic[:]); err != nil || !bytes.Equal(magic[:], protobufMagic) {
		return "", errors.Join(errMalformed, err)
	}
	left(&n, int64(len(magic)))
	seen := false
	err = s.parts(n, func(number protowire.Number, length int64) (err error) {
		switch {
		case number == 1 && !seen:
			kind, err = s.typeMeta(length)
		case number == 2 && !seen && s.longest > 0 && length > s.longest:
			err = fmt.Errorf("%w: it has %d bytes", ErrTooLarge, length)
		case number == 2 && !seen:
			seen, err = true, s.message(length, of(kind))
		default:
			_, err = s.skip(length, length)
		}
		return err
	})
	return kind, err
}

// parts calls do for each field of a message of n bytes, or up to the end of the body, that has texts and messages only. do
// reads the content, which has a length.
func (s *sieve) parts(n int64, do func(number protowire.Number, length int64) error) error {
	for n > 0 {
		number, wire, used, err := s.tag(n)
		if errors.Is(err, io.EOF) && n == math.MaxInt64 {
			return nil
		}
		if err != nil {
			return unexpected(err)
		}
		left(&n, used)
		length, used, err := s.varint(n)
		if err != nil || wire != protowire.BytesType || length > uint64(n-used) || length > math.MaxInt32 {
			return errors.Join(errMalformed, unexpected(err))
		}
		left(&n, used+int64(length))
		if err := do(number, int64(length)); err != nil {
			return err
		}
	}
	return nil
}

// left takes what was used from what is left of an envelope.
func left(n *int64, used int64) {
	if *n != math.MaxInt64 {
		*n -= used
	}
}

// typeMeta reads the kind in an envelope.
func (s *sieve) typeMeta(length int64) (string, error) {
	meta := sieve{from: s.from}
	if err := meta.message(length, message{1: text(256), 2: text(256)}); err != nil {
		return "", err
	}
	var m runtime.TypeMeta
	if err := m.Unmarshal(meta.kept); err != nil {
		return "", errors.Join(errMalformed, err)
	}
	return m.Kind, nil
}

// enclose puts an object into Kubernetes' envelope.
func enclose(apiVersion, kind string, object []byte) []byte {
	meta := runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}
	unknown := runtime.Unknown{TypeMeta: meta, Raw: object}
	body := make([]byte, len(protobufMagic)+unknown.Size())
	if _, err := unknown.MarshalTo(body[copy(body, protobufMagic):]); err != nil {
		return nil // plain data always marshals
	}
	return body
}
