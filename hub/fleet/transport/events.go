package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// prefix is how many bytes before each event of a watch say how long it is.
	prefix = 4
	// eventTimeout bounds how long a large event may take up to its last byte: it takes room from other members.
	eventTimeout = 10 * time.Second
)

// events is the body of a watch. Of each event only what the hub uses is kept, as it is read.
type events struct {
	receipt
	source io.Closer
	from   *bufio.Reader
	paced  paced

	left []byte // what of the present event was not read yet
	err  error  // that ends the watch
	kept []byte // the buffer of the sieve
}

func (e *events) Close() error { return e.source.Close() }

func (e *events) Read(p []byte) (int, error) {
	for len(e.left) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.left, e.err = e.next()
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

// next reads the next event, and returns what is kept of it: nothing, if it is not to be shown.
func (e *events) next() ([]byte, error) {
	var length [prefix]byte
	if _, err := io.ReadFull(e.from, length[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(length[:])
	if n > maxObject {
		return nil, fmt.Errorf("%s: %w: an event of a watch has %d bytes", e.path, ErrTooLarge, n)
	}
	if err := e.paced.wait(objectCost); err != nil {
		return nil, err
	}
	if n > smallAnswer {
		ctx, cancel := context.WithTimeout(e.ctx, eventTimeout)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = e.source.Close() })()
	}
	taken := &share{room: e.room}
	defer taken.release()
	event, err := e.event(int64(n), taken)
	if err != nil {
		return nil, fmt.Errorf("%s: an event of a watch: %w", e.path, err)
	}
	return event, nil
}

// event reads an event of n bytes, which is a metav1.WatchEvent, and returns what is kept of it.
func (e *events) event(n int64, taken *share) ([]byte, error) {
	s := &sieve{from: e.from, most: e.most, kept: e.kept[:0], share: taken}
	kind, seen := "", false
	object := func(number protowire.Number, n int64) error {
		if number != 1 || seen {
			return s.skip(n)
		}
		seen = true
		_, err := s.envelope(s.at+n, func(of string) message {
			if kind == string(watch.Error) {
				of = statusKind
			}
			return e.fields(of)
		})
		return err
	}
	err := s.parts(n, func(number protowire.Number, n int64) (err error) {
		switch {
		case number == 1 && kind == "":
			kind, err = s.word(n)
		case number == 2 && kind != "": // a runtime.RawExtension
			err = s.parts(s.at+n, object)
		default:
			err = s.skip(n)
		}
		return err
	})
	if err == nil && !seen {
		err = fmt.Errorf("%w: it has no object after its type", errMalformed)
	}
	if err != nil {
		return nil, err
	}
	shown, err := e.shown(kind, s)
	if cap(s.kept) <= smallAnswer {
		e.kept = s.kept
	}
	return shown, err
}

// shown is an event of a type as it is handed on. It is nil for one that is not.
func (e *events) shown(event string, s *sieve) ([]byte, error) {
	switch watch.EventType(event) {
	case watch.Error:
		return e.failed(s.kept)
	case watch.Bookmark:
		return framed(event, e.enclose("", s.kept)), nil
	case watch.Added, watch.Modified:
		if s.reduce(0); !e.held.admit(s.kept) {
			return nil, nil
		}
	case watch.Deleted:
		s.reduce(0)
		held, again := e.held.remove(s.kept)
		switch {
		case again:
			return e.failed(expired)
		case !held:
			return nil, nil
		}
	default:
		return nil, fmt.Errorf("%w: its type is %.64q", errMalformed, event)
	}
	return framed(event, e.enclose("", s.kept)), nil
}

// failed is the event that ends a watch, with a clean Status.
func (e *events) failed(status []byte) ([]byte, error) {
	object, err := cleanWatchError(status, e.clean)
	return framed(string(watch.Error), object), err
}

// framed is an event of a watch, behind its length.
func framed(event string, object []byte) []byte {
	e := metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: object}}
	all := make([]byte, prefix+e.Size())
	binary.BigEndian.PutUint32(all, uint32(len(all)-prefix))
	if _, err := e.MarshalTo(all[prefix:]); err != nil {
		return nil // plain data always marshals
	}
	return all
}
