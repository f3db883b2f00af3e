package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
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

// sieve copies from a body the fields that are listed, and bounds each of them. It reads the rest without keeping it.
// So what is decoded afterwards takes at most a small multiple of the bytes that were kept. Methods take the position
// at which a message ends: endOfBody if its length is not known.
type sieve struct {
	from *bufio.Reader
	at   int64 // how many bytes were read
	kept []byte
	// most is how many bytes are kept of one object, and longest how many an object may have outside of a list. Zero:
	// there is no bound.
	most    int
	longest int64
	// over: a text is longer, or a field comes more often, than it may. That one was left out.
	over bool
	// share, if set, takes room for what is kept.
	share *share
	// item reports whether an item of a list is kept, with what was kept of it. nil: all are.
	item func(object []byte) (bool, error)
}

const endOfBody = math.MaxInt64

// ReadByte implements io.ByteReader.
func (s *sieve) ReadByte() (byte, error) {
	b, err := s.from.ReadByte()
	if err == nil {
		s.at++
	}
	return b, err
}

// varint reads a number. It returns io.EOF where the body ends before it.
func (s *sieve) varint(end int64) (uint64, error) {
	began := s.at
	v, err := binary.ReadUvarint(s)
	switch {
	case s.at > end, err != nil && s.at-began == binary.MaxVarintLen64:
		return 0, fmt.Errorf("%w: it has a number that is too long", errMalformed)
	}
	return v, err
}

// next reads the number and the type of a field, and its value or, for a text or message, the length of that. It
// returns io.EOF where the body ends before the field.
func (s *sieve) next(end int64) (number protowire.Number, wire protowire.Type, value uint64, err error) {
	tag, err := s.varint(end)
	if err != nil {
		return 0, 0, 0, err
	}
	number, wire = protowire.DecodeTag(tag)
	if number < protowire.MinValidNumber {
		return 0, 0, 0, fmt.Errorf("%w: it has a field without a number", errMalformed)
	}
	switch wire {
	case protowire.VarintType, protowire.BytesType:
		value, err = s.varint(end)
	case protowire.Fixed32Type:
		err = s.skip(4)
	case protowire.Fixed64Type:
		err = s.skip(8)
	default:
		err = fmt.Errorf("%w: it has a group", errMalformed)
	}
	if err == nil && (s.at > end || wire == protowire.BytesType && value > uint64(min(end-s.at, math.MaxInt32))) {
		err = fmt.Errorf("%w: field %d is longer than what holds it", errMalformed, number)
	}
	return number, wire, value, unexpected(err)
}

// message sieves a message of n bytes.
func (s *sieve) message(n int64, of message) error {
	var seen [32]int
	for end := s.at + n; s.at < end; {
		number, wire, value, err := s.next(end)
		if err != nil {
			return unexpected(err)
		}
		f, listed := of[number]
		if listed && wire != f.wire() {
			return fmt.Errorf("%w: field %d has the wire type %d", errMalformed, number, wire)
		}
		skip := !listed || seen[number] >= max(1, f.times)
		s.over = s.over || listed && skip && f.times > 0
		before := len(s.kept)
		switch {
		case wire == protowire.BytesType:
			err = s.content(int64(value), number, f, skip)
		case !skip:
			s.kept = protowire.AppendVarint(protowire.AppendTag(s.kept, number, wire), value)
		}
		if err != nil {
			return err
		}
		if listed && (f.key == "" || len(s.kept) > before) {
			seen[number]++
		}
	}
	return nil
}

// content reads the content of a text or a message, which has n bytes.
func (s *sieve) content(n int64, number protowire.Number, f field, skip bool) error {
	tooLong := f.of == nil && n > int64(f.text)
	switch {
	case skip, tooLong:
		s.over = s.over || !skip
		return s.skip(n)
	case f.object && n > maxObject:
		return fmt.Errorf("%w: an object has %d bytes", ErrTooLarge, n)
	}
	begin, was := len(s.kept), s.over
	s.kept = protowire.AppendTag(s.kept, number, protowire.BytesType)
	from := len(s.kept)
	if f.of == nil {
		if err := s.share.grow(len(s.kept) + int(n)); err != nil {
			return err
		}
		s.kept = protowire.AppendVarint(s.kept, uint64(n))
		s.kept = slices.Grow(s.kept, int(n))[:len(s.kept)+int(n)]
		s.at += n
		_, err := io.ReadFull(s.from, s.kept[len(s.kept)-int(n):])
		return unexpected(err)
	}
	s.over = was && !f.object
	err := s.message(n, f.of)
	keep := f.key == "" || !s.over && string(textOf(s.kept[from:], 1)) == f.key
	if err == nil && f.object {
		s.reduce(from)
		if s.item != nil {
			keep, err = s.item(s.kept[from:])
		}
	}
	if !keep || f.object {
		s.over = was
	}
	if err != nil || !keep {
		s.kept = s.kept[:begin]
		return err
	}
	s.insertLength(from)
	return nil
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
func (s *sieve) insertLength(from int) {
	n := len(s.kept) - from
	s.kept = protowire.AppendVarint(s.kept, uint64(n))
	copy(s.kept[len(s.kept)-n:], s.kept[from:from+n])
	protowire.AppendVarint(s.kept[:from], uint64(n))
}

// skip reads n bytes.
func (s *sieve) skip(n int64) error {
	s.at += n
	_, err := s.from.Discard(int(n))
	return unexpected(err)
}

// unexpected is an error of a body that ends too early.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// textOf returns the first text or message of that number in a message that was kept, and so is well-formed.
func textOf(kept []byte, number protowire.Number) []byte {
	for len(kept) > 0 {
		n, wire, tag := protowire.ConsumeTag(kept)
		if n == number && wire == protowire.BytesType {
			text, _ := protowire.ConsumeBytes(kept[tag:])
			return text
		}
		kept = kept[tag+protowire.ConsumeFieldValue(n, wire, kept[tag:]):]
	}
	return nil
}

// envelope sieves an object in Kubernetes' envelope, and returns the kind that it says it is. of gets that kind, and
// returns the fields that are kept.
func (s *sieve) envelope(end int64, of func(kind string) message) (kind string, err error) {
	magic := make([]byte, len(protobufMagic))
	if s.at += int64(len(magic)); s.at > end {
		return "", errMalformed
	}
	if _, err := io.ReadFull(s.from, magic); err != nil || !bytes.Equal(magic, protobufMagic) {
		return "", errors.Join(errMalformed, err)
	}
	seen := false
	err = s.parts(end, func(number protowire.Number, n int64) (err error) {
		switch {
		case number == 1 && !seen:
			kind, err = s.typeMeta(n)
		case number == 2 && !seen && s.longest > 0 && n > s.longest:
			err = fmt.Errorf("%w: it has %d bytes", ErrTooLarge, n)
		case number == 2 && !seen:
			seen, err = true, s.message(n, of(kind))
		default:
			err = s.skip(n)
		}
		return err
	})
	return kind, err
}

// parts calls do for each field of a message that has texts and messages only. do reads the content of n bytes.
func (s *sieve) parts(end int64, do func(number protowire.Number, n int64) error) error {
	for s.at < end {
		number, wire, n, err := s.next(end)
		switch {
		case errors.Is(err, io.EOF) && end == endOfBody:
			return nil
		case err != nil:
			return unexpected(err)
		case wire != protowire.BytesType:
			return errMalformed
		}
		if err := do(number, int64(n)); err != nil {
			return err
		}
	}
	return nil
}

// word reads a text of n bytes that says little.
func (s *sieve) word(n int64) (string, error) {
	if n > mark {
		return "", fmt.Errorf("%w: a word has %d bytes", errMalformed, n)
	}
	text := make([]byte, n)
	s.at += n
	_, err := io.ReadFull(s.from, text)
	return string(text), unexpected(err)
}

// typeMeta reads the kind in an envelope.
func (s *sieve) typeMeta(n int64) (string, error) {
	meta := sieve{from: s.from}
	err := meta.message(n, message{2: text(256)})
	s.at += meta.at
	return string(textOf(meta.kept, 2)), err
}

// enclose puts an object into Kubernetes' envelope.
func enclose(apiVersion, kind string, object []byte) []byte {
	meta := runtime.TypeMeta{APIVersion: apiVersion, Kind: kind}
	if len(object) == 0 {
		object = nil // an empty field is none
	}
	unknown := runtime.Unknown{TypeMeta: meta, Raw: object}
	body := make([]byte, len(protobufMagic)+unknown.Size())
	if _, err := unknown.MarshalTo(body[copy(body, protobufMagic):]); err != nil {
		return nil // plain data always marshals
	}
	return body
}
