package transport

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/utils/clock"
)

const (
	// bodyTimeout bounds how long an answer may take from its first byte to its last, watches aside.
	bodyTimeout = 30 * time.Second
	// longestRetryAfter is how long a server may make the clients wait before they try again, in seconds.
	longestRetryAfter = 2
	// maxError is how much is read of an answer that is an error.
	maxError = 32 << 10
	// buffered is how much is read of a body at once.
	buffered = 8 << 10
)

// receipt is what an answer is checked against.
type receipt struct {
	question
	ctx     context.Context
	pace    *rate.Limiter
	room    *Room
	held    *Held
	first   bool // it begins a list of all that is held
	clean   func(string) string
	refused func(words string)
	timers  clock.WithDelayedExecution
}

// check reads an answer, or has each event of a watch read as it comes. Only what the hub uses is kept of it, before it
// is decoded. Errors are cleaned, and no header makes the clients wait or speaks to people.
func (r receipt) check(resp *http.Response) error {
	resp.Header.Del("Warning") // client-go would log it
	resp.Header.Del("Www-Authenticate")
	if wait := resp.Header.Get("Retry-After"); wait != "" {
		resp.Header.Set("Retry-After", shorterWait(wait))
	}
	contentType := resp.Header.Get("Content-Type")
	slow := paced{r.ctx, resp.Body, r.pace}
	if resp.StatusCode >= http.StatusMultipleChoices {
		return r.checkError(resp, slow)
	}
	if !isProtobuf(contentType) {
		_ = resp.Body.Close() // it is of no use
		return fmt.Errorf("%w: its type is %.64q", errMalformed, contentType)
	}
	if r.held != nil && r.first {
		r.held.begin()
	}
	from := bufio.NewReaderSize(slow, buffered)
	if r.watch {
		resp.Body = &events{receipt: r, source: resp.Body, from: from, paced: slow}
		return nil
	}
	s := &share{of: r.room}
	body, err := r.read(resp.Body, func() ([]byte, error) { return r.sieved(from, s, slow) })
	if err != nil {
		s.release()
		return err
	}
	setBody(resp, body, protobufType)
	resp.Body = released{resp.Body, s}
	return nil
}

// checkError replaces an answer that is an error by a clean one.
func (r receipt) checkError(resp *http.Response, slow io.Reader) error {
	body, err := r.read(resp.Body, func() ([]byte, error) { return io.ReadAll(io.LimitReader(slow, maxError)) })
	if err != nil {
		return err
	}
	body, contentType := cleanStatus(body, resp.Header.Get("Content-Type"), resp.StatusCode, r.clean)
	if resp.StatusCode == http.StatusForbidden && r.refused != nil {
		r.refused(string(body))
	}
	setBody(resp, body, contentType)
	return nil
}

func setBody(resp *http.Response, body []byte, contentType string) {
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	resp.Header.Set("Content-Type", contentType)
}

// released is a body that gives back its room when it is closed.
type released struct {
	io.ReadCloser
	share *share
}

func (b released) Close() error {
	b.share.release()
	return b.ReadCloser.Close()
}

// read has a body read within bodyTimeout, and closes it.
func (r receipt) read(body io.Closer, do func() ([]byte, error)) ([]byte, error) {
	if r.timers != nil {
		timer := r.timers.AfterFunc(bodyTimeout, func() { _ = body.Close() })
		defer timer.Stop()
	}
	defer func() { _ = body.Close() }() // it was read, or is of no use
	return do()
}

// sieved reads an answer, and returns what is kept of it.
func (r receipt) sieved(from *bufio.Reader, room *share, slow paced) ([]byte, error) {
	s := &sieve{from: from, most: r.most, grow: room.grow}
	if !r.list {
		s.longest = maxObject
	} else {
		s.item = func(from int) (bool, error) {
			kept := r.held == nil || r.held.admit(nameOf(s.kept[from:]), len(s.kept)-from)
			return kept, slow.wait(objectCost)
		}
	}
	kind, err := s.envelope(math.MaxInt64, r.fields)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", r.path, err)
	case r.list && kind != statusKind && s.over:
		return nil, fmt.Errorf("%s: %w: the list has more than %d objects", r.path, ErrTooLarge, maxItems)
	case !r.list && kind != statusKind:
		s.reduce(0)
	}
	return r.enclose(kind, s.kept), nil
}

// nameOf is the namespace and the name of an object that was kept.
func nameOf(object []byte) string {
	metadata := textOf(object, 1)
	return string(textOf(metadata, 3)) + "/" + string(textOf(metadata, 1))
}

// textOf is the first text or message of that number in a message that was kept.
func textOf(kept []byte, number protowire.Number) []byte {
	for len(kept) > 0 {
		n, wire, used := protowire.ConsumeTag(kept)
		if used < 0 {
			return nil
		}
		kept = kept[used:]
		if wire == protowire.BytesType && n == number {
			text, _ := protowire.ConsumeBytes(kept)
			return text
		}
		if used = protowire.ConsumeFieldValue(n, wire, kept); used < 0 {
			return nil
		}
		kept = kept[used:]
	}
	return nil
}

// shorterWait is a Retry-After, or the longest that is heeded.
func shorterWait(wait string) string {
	if seconds, err := strconv.Atoi(wait); err == nil && seconds >= 0 && seconds <= longestRetryAfter {
		return wait
	}
	return strconv.Itoa(longestRetryAfter)
}
