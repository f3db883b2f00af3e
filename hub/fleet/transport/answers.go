package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"k8s.io/utils/clock"
)

const (
	// bodyTimeout bounds how long an answer may take from its first byte to its last, watches aside.
	bodyTimeout = 30 * time.Second
	// longestRetryAfter is how long a server may make the clients wait before they try again, in seconds.
	longestRetryAfter = 2
	// keptFrame is how large a buffer a watch keeps between two events.
	keptFrame = 64 << 10
)

// receipt is what an answer is checked against.
type receipt struct {
	maxBody int64
	meter   *Meter
	light   bool // what it decodes to takes no more memory than its bytes
	clean   func(string) string
	refused func(words string)
	timers  clock.WithDelayedExecution
}

// check reads an answer, or has each event of a watch read as it comes. What comes is counted and bounded before it is
// decoded, errors are cleaned, and no header makes the clients wait or speaks to people.
func (r receipt) check(resp *http.Response, watch bool) error {
	resp.Header.Del("Warning") // client-go would log it
	resp.Header.Del("Www-Authenticate")
	if wait := resp.Header.Get("Retry-After"); wait != "" {
		resp.Header.Set("Retry-After", shorterWait(wait))
	}
	failed := resp.StatusCode >= http.StatusBadRequest
	contentType := resp.Header.Get("Content-Type")
	if watch && !failed {
		resp.Body = &events{
			source: resp.Body, from: bufio.NewReaderSize(resp.Body, 4<<10),
			protobuf: isProtobuf(contentType), receipt: r,
		}
		return nil
	}
	limit := r.maxBody
	if failed {
		limit = maxAnswer
	}
	body, whole, err := r.read(resp.Body, limit)
	switch {
	case err != nil:
		return err
	case failed: // what is left of a long one is no Status, and cleaned as a text
		body, contentType = cleanStatus(body, contentType, resp.StatusCode, r.clean)
		resp.Header.Set("Content-Type", contentType)
		if resp.StatusCode == http.StatusForbidden && r.refused != nil {
			r.refused(string(body))
		}
	case !whole:
		return r.meter.refuse(fmt.Errorf("%w: it has more than %d MiB", ErrTooLarge, limit>>20))
	}
	weight := int64(len(body))
	if !r.light {
		weight = weigh(body, contentType)
	}
	if weight > maxAnswerWeight {
		return r.meter.refuse(fmt.Errorf("%w: what it decodes to takes about %d MiB", ErrTooLarge, weight>>20))
	}
	if err := r.meter.add(max(0, weight-int64(len(body)))); err != nil {
		return err
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	return nil
}

// read reads a body, or the beginning of one that is longer than limit, and closes it.
func (r receipt) read(body io.ReadCloser, limit int64) (content []byte, whole bool, err error) {
	if r.timers != nil {
		timer := r.timers.AfterFunc(bodyTimeout, func() { _ = body.Close() })
		defer timer.Stop()
	}
	defer func() { _ = body.Close() }() // it was read, or is of no use
	var all bytes.Buffer
	n, err := io.Copy(&all, io.LimitReader(counted{body, r.meter}, limit+1))
	if err != nil {
		return nil, false, err
	}
	return all.Bytes()[:min(n, limit)], n <= limit, nil
}

// shorterWait is a Retry-After, or the longest that is heeded.
func shorterWait(wait string) string {
	if seconds, err := strconv.Atoi(wait); err == nil && seconds >= 0 && seconds <= longestRetryAfter {
		return wait
	}
	return strconv.Itoa(longestRetryAfter)
}

// counted counts what is read.
type counted struct {
	io.Reader
	meter *Meter
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if over := c.meter.add(int64(n)); over != nil {
		return n, over
	}
	return n, err
}

// events is the body of a watch. Each event is read as a whole and weighed before anybody decodes it.
type events struct {
	source   io.Closer
	from     *bufio.Reader
	protobuf bool
	receipt

	event []byte // the present one
	left  []byte // what of it was not read yet
	err   error  // that ends the watch
}

func (e *events) Close() error { return e.source.Close() }

func (e *events) Read(p []byte) (int, error) {
	for len(e.left) == 0 {
		if e.err != nil {
			return 0, e.err
		}
		e.err = e.next()
	}
	n := copy(p, e.left)
	e.left = e.left[n:]
	return n, nil
}

// next reads the next event. It may return an error beside the last one.
func (e *events) next() error {
	if cap(e.event) > keptFrame {
		e.event = nil
	}
	e.event = e.event[:0]
	var weight int64
	var err error
	if e.protobuf {
		weight, err = e.nextProtobuf()
	} else {
		weight, err = e.nextLine()
	}
	e.left = e.event
	if over := e.meter.add(weight); over != nil {
		e.left = nil
		return over
	}
	if weight > maxEventWeight {
		e.left = nil
		return e.meter.refuse(fmt.Errorf("%w: an event of a watch decodes to about %d MiB", ErrTooLarge, weight>>20))
	}
	return err
}

// prefix is how many bytes before each event in protobuf say how long it is.
const prefix = 4

func (e *events) nextProtobuf() (weight int64, err error) {
	e.event = append(e.event, make([]byte, prefix)...)
	if _, err := io.ReadFull(e.from, e.event); err != nil {
		e.event = e.event[:0]
		return 0, err
	}
	length := binary.BigEndian.Uint32(e.event)
	if length > maxEvent {
		e.event = e.event[:0]
		return 0, e.meter.refuse(fmt.Errorf("%w: an event of a watch has %d bytes", ErrTooLarge, length))
	}
	var body bytes.Buffer // it grows with what comes, not with what is announced
	if _, err := io.CopyN(&body, e.from, int64(length)); err != nil {
		e.event = e.event[:0]
		return 0, err
	}
	kind, object := eventObject(body.Bytes())
	if kind == eventError {
		cleaned, err := cleanEvent(body.Bytes(), e.clean)
		if err != nil {
			e.event = e.event[:0]
			return 0, err
		}
		body = *bytes.NewBuffer(cleaned)
		binary.BigEndian.PutUint32(e.event, uint32(len(cleaned)))
	}
	e.event = append(e.event, body.Bytes()...)
	return int64(length) + weighProtobuf(object), nil
}

// nextLine reads an event in JSON. API servers end each with a newline.
func (e *events) nextLine() (weight int64, err error) {
	for {
		part, err := e.from.ReadSlice('\n')
		e.event = append(e.event, part...)
		switch {
		case len(e.event) > maxEvent:
			e.event = e.event[:0]
			return 0, e.meter.refuse(fmt.Errorf("%w: an event of a watch has more than %d MiB", ErrTooLarge, maxEvent>>20))
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case len(bytes.TrimSpace(e.event)) == 0:
			e.event = e.event[:0]
			return 1, err
		}
		weight = weighJSON(e.event)
		if weight <= maxEventWeight {
			e.event = cleanJSONEvent(e.event, e.clean)
		}
		return weight, err
	}
}
