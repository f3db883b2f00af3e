package transport

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	// answerTimeout bounds how long an answer may take up to its last byte, watches aside.
	answerTimeout = 30 * time.Second
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
	pace    *pace
	room    *Room
	held    *Held // nil: what the answer shows is not cached
	clean   func(string) string
	refused func(words string)
}

// check reads an answer, or has each event of a watch read as it comes. Only what the hub uses is kept of it, before it
// is decoded. Errors are cleaned. No header makes the clients wait, leads them elsewhere or speaks to people.
func (r receipt) check(resp *http.Response) error {
	for _, name := range []string{"Warning", "Www-Authenticate", "Location"} {
		resp.Header.Del(name)
	}
	if wait := resp.Header.Get("Retry-After"); wait != "" {
		resp.Header.Set("Retry-After", shorterWait(wait))
	}
	slow := paced{r.ctx, resp.Body, r.pace}
	contentType := resp.Header.Get("Content-Type")
	if resp.StatusCode >= http.StatusMultipleChoices {
		return r.checkError(resp, slow)
	}
	if r.plain {
		return r.checkPlain(resp, slow)
	}
	if mediaType(contentType) != protobufType {
		_ = resp.Body.Close() // it is of no use
		return fmt.Errorf("%w: its type is %.64q", errMalformed, contentType)
	}
	if r.first {
		r.held.begin()
	}
	if r.watch {
		resp.Body = &events{receipt: r, source: resp.Body, from: bufio.NewReaderSize(slow, buffered), paced: slow}
		return nil
	}
	taken := &share{room: r.room}
	body, err := r.sieved(slow, taken)
	setBody(resp, body, protobufType)
	if err != nil {
		taken.release()
		return err
	}
	resp.Body = roomy{resp.Body, taken}
	return nil
}

// checkPlain reads an object in JSON. Who decodes it must skip what it does not use.
func (r receipt) checkPlain(resp *http.Response, slow io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(slow, maxLarge+1))
	contentType := resp.Header.Get("Content-Type")
	switch {
	case err != nil:
	case len(body) > maxLarge:
		err = fmt.Errorf("%s: %w: it has more than %d KiB", r.path, ErrTooLarge, maxLarge>>10)
	case mediaType(contentType) != Plain:
		err = fmt.Errorf("%w: its type is %.64q", errMalformed, contentType)
	}
	if err != nil {
		_ = resp.Body.Close() // it is of no use
		return err
	}
	setBody(resp, body, Plain)
	return nil
}

// checkError replaces an answer that is an error by a clean one.
func (r receipt) checkError(resp *http.Response, slow io.Reader) error {
	body, err := io.ReadAll(io.LimitReader(slow, maxError))
	if err != nil {
		_ = resp.Body.Close() // it is of no use
		return err
	}
	body, contentType := cleanStatus(body, resp.Header.Get("Content-Type"), resp.StatusCode, r.clean)
	if resp.StatusCode == http.StatusForbidden && r.refused != nil {
		r.refused(string(body))
	}
	setBody(resp, body, contentType)
	return nil
}

// setBody replaces a body that was read, or is of no use.
func setBody(resp *http.Response, body []byte, contentType string) {
	_ = resp.Body.Close()
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
	resp.Header.Set("Content-Type", contentType)
}

// scratch is what one answer after the other is read with.
type scratch struct {
	from *bufio.Reader
	kept []byte
}

var scratches = sync.Pool{New: func() any { return &scratch{from: bufio.NewReaderSize(nil, buffered)} }}

// sieved reads an answer, and returns what is kept of it.
func (r receipt) sieved(slow paced, taken *share) ([]byte, error) {
	with := scratches.Get().(*scratch)
	with.from.Reset(slow)
	s := &sieve{from: with.from, most: r.most, kept: with.kept[:0]}
	defer func() {
		if with.from.Reset(nil); cap(s.kept) <= smallAnswer {
			with.kept = s.kept
		}
		scratches.Put(with)
	}()
	if !r.list {
		s.longest, s.share = maxObject, taken
	} else if r.pace != nil {
		select {
		case r.pace.lists <- struct{}{}:
			defer func() { <-r.pace.lists }()
		case <-r.ctx.Done():
			return nil, r.ctx.Err()
		}
	}
	size := 0
	s.item = func(object []byte) (bool, error) {
		if size += len(object) + listOverhead; size > maxList {
			return false, fmt.Errorf("%w: the list has more than %d MiB, each object with %d bytes for itself",
				ErrTooLarge, maxList>>20, listOverhead)
		}
		if err := taken.grow(size); err != nil {
			return false, err
		}
		return r.held.admit(object), slow.wait(objectCost)
	}
	kind, err := s.envelope(endOfBody, r.fields)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	if !r.list && kind != statusKind {
		s.reduce(0)
	}
	return r.enclose(kind, s.kept), nil
}

// shorterWait is a Retry-After, or the longest that is heeded.
func shorterWait(wait string) string {
	if seconds, err := strconv.Atoi(wait); err == nil && seconds >= 0 && seconds <= longestRetryAfter {
		return wait
	}
	return strconv.Itoa(longestRetryAfter)
}
