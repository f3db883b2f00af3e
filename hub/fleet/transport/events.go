package transport

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"google.golang.org/protobuf/encoding/protowire"
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
	event, err := e.event(int64(n))
	if err != nil {
		return nil, fmt.Errorf("%s: an event of a watch: %w", e.path, unexpected(err))
	}
	return event, nil
}

// event reads an event of n bytes.
func (e *events) event(n int64) ([]byte, error) {
	s := &sieve{from: e.from, most: e.most}
	var kind string // of the event
	seen := false
	err := s.parts(n, func(number protowire.Number, length int64) (err error) {
		switch {
		case number == 1 && kind == "" && length <= mark:
			text := make([]byte, length)
			_, err = io.ReadFull(e.from, text)
			kind = string(text)
		case number == 2 && kind != "" && !seen:
			seen, err = true, e.object(s, length, kind)
		default:
			_, err = s.skip(length, length)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return e.shown(kind, s)
}

// object reads the object of an event of a kind.
func (e *events) object(s *sieve, n int64, event string) error {
	seen := false
	return s.parts(n, func(number protowire.Number, length int64) (err error) {
		if number != 1 || seen {
			_, err = s.skip(length, length)
			return err
		}
		seen = true
		_, err = s.envelope(length, func(kind string) message {
			if event == eventError {
				kind = statusKind
			}
			return e.fields(kind)
		})
		return err
	})
}

// shown is an event of a kind as it is handed on. It is nil for one that is not.
func (e *events) shown(event string, s *sieve) ([]byte, error) {
	switch watch.EventType(event) {
	case watch.Error:
		object, err := cleanWatchError(s.kept, e.clean)
		return framed(event, object), err
	case watch.Bookmark:
		return framed(event, e.enclose("", s.kept)), nil
	case watch.Added, watch.Modified, watch.Deleted:
	default:
		return nil, fmt.Errorf("%w: its type is %.64q", errMalformed, event)
	}
	s.reduce(0)
	switch {
	case e.held == nil:
	case event != string(watch.Deleted):
		if !e.held.admit(nameOf(s.kept), len(s.kept)) {
			return nil, nil
		}
	case !e.held.remove(nameOf(s.kept)):
		return nil, nil
	case e.held.hasRoomAgain():
		object, err := cleanWatchError(nil, e.clean)
		return framed(eventError, object), err
	}
	return framed(event, e.enclose("", s.kept)), nil
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
