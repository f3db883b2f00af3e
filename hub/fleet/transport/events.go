package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

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

// events is the body of a watch. Of each event only what the hub uses is handed on.
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
	if n > smallAnswer {
		ctx, cancel := context.WithTimeout(e.ctx, eventTimeout)
		defer cancel()
		defer context.AfterFunc(ctx, func() { _ = e.source.Close() })()
	}
	taken := &share{room: e.room}
	defer taken.release()
	if err := taken.grow(int(n)); err != nil {
		return nil, err
	}
	whole, err := readBytes(e.from, nil, int(n))
	if err != nil {
		return nil, err
	}
	event, err := e.event(whole)
	if err != nil {
		return nil, fmt.Errorf("%s: an event of a watch: %w", e.path, err)
	}
	return event, nil
}

// event returns what is kept of an event, which is a metav1.WatchEvent: nothing, if it is not to be shown.
func (e *events) event(whole []byte) ([]byte, error) {
	object, err := unwrap(textOf(textOf(whole, 2), 1)) // in a runtime.RawExtension
	if err != nil {
		return nil, err
	}
	event := watch.EventType(textOf(whole, 1))
	if event == watch.Error {
		status, _, err := ofStatus.sieve(nil, object)
		if err != nil {
			return nil, err
		}
		return e.failed(status)
	}
	kept, err := e.object(nil, object)
	if err != nil {
		return nil, err
	}
	switch event {
	case watch.Bookmark:
	case watch.Added, watch.Modified:
		if !e.held.admit(kept) {
			return nil, nil // of what is held, an older version stays: it has not ended
		}
	case watch.Deleted:
		held, again := e.held.remove(kept)
		switch {
		case again:
			return e.failed(expired)
		case !held:
			return nil, nil
		}
	default:
		return nil, fmt.Errorf("%w: its type is %.64q", errMalformed, event)
	}
	return framed(string(event), e.enclose(kept)), nil
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
	_, _ = e.MarshalTo(all[prefix:]) // plain data always marshals
	return all
}
