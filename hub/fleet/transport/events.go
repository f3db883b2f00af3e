package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// prefix is how many bytes before each event of a watch say how long it is.
const prefix = 4

// events is the body of a watch. Of each event only what the hub uses is kept, before anybody decodes it.
type events struct {
	receipt
	source io.Closer
	from   *bufio.Reader
	paced  paced

	left []byte // what of the present event was not read yet
	err  error  // that ends the watch
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
	taken := share{room: e.room}
	if err := taken.grow(2 * int(n)); err != nil { // it is held twice
		return nil, fmt.Errorf("%s: %w", e.path, err)
	}
	defer taken.release()
	raw := make([]byte, n)
	if _, err := io.ReadFull(e.from, raw); err != nil {
		return nil, unexpected(err)
	}
	event, err := e.event(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: an event of a watch: %w", e.path, err)
	}
	return event, nil
}

// event returns what is kept of an event.
func (e *events) event(raw []byte) ([]byte, error) {
	var event metav1.WatchEvent
	if err := event.Unmarshal(raw); err != nil {
		return nil, errors.Join(errMalformed, err)
	}
	object := event.Object.Raw
	s := &sieve{from: bufio.NewReaderSize(bytes.NewReader(object), min(buffered, len(object))), most: e.most}
	_, err := s.envelope(int64(len(object)), func(kind string) message {
		if event.Type == string(watch.Error) {
			kind = statusKind
		}
		return e.fields(kind)
	})
	if err != nil {
		return nil, err
	}
	return e.shown(event.Type, s)
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
