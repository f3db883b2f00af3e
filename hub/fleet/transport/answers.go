package transport

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// answerTimeout bounds how long an answer may take up to its last byte, watches aside.
	answerTimeout = 30 * time.Second
	// longestRetryAfter is how long a server may make the clients wait before they try again, in seconds.
	longestRetryAfter = 2
	// maxError is how much is read of an answer that is an error.
	maxError = 32 << 10
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
	if r.dropped {
		readRest(resp.Body)
		setBody(resp, nil, protobufType)
		return nil
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
		resp.Body = &events{receipt: r, source: resp.Body, from: bufio.NewReader(slow), paced: slow}
		return nil
	}
	taken := &share{room: r.room}
	body, err := r.sieved(slow, taken)
	if err == nil {
		readRest(resp.Body)
	}
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

// readRest reads a body to its end, unless too much is left. Otherwise HTTP/1 ends the connection.
func readRest(body io.Reader) { _, _ = io.CopyN(io.Discard, body, smallAnswer) }

// sieved reads an answer, and returns what is kept of it.
func (r receipt) sieved(slow paced, taken *share) (kept []byte, err error) {
	body := bufio.NewReaderSize(slow, 512) // what is larger is read past it
	n, err := open(body)
	switch {
	case err != nil:
	case r.list:
		kept, err = r.sieveList(body, n, taken, slow)
	case n > maxObject:
		err = fmt.Errorf("%w: it has %d bytes", ErrTooLarge, n)
	default:
		var whole []byte
		if err = taken.grow(n); err == nil {
			whole, err = readBytes(body, nil, n)
		}
		if err == nil {
			kept, err = r.object(nil, whole)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.path, err)
	}
	return r.enclose(kept), nil
}

// sieveList reads a list of n bytes, one object after the other.
func (r receipt) sieveList(body io.Reader, n int, taken *share, slow paced) (list []byte, err error) {
	limited := &io.LimitedReader{R: body, N: int64(n)}
	parts, of := bufio.NewReader(limited), map[protowire.Number]kind{1: {of: listMeta, most: maxKept}, 2: r.kind}
	var whole, kept []byte
	for size := 0; ; {
		number, n, err := nextField(parts)
		switch {
		case errors.Is(err, io.EOF) && limited.N == 0:
			return list, nil
		case err != nil:
			return nil, unexpected(err)
		case n > maxObject:
			return nil, fmt.Errorf("%w: an object has %d bytes", ErrTooLarge, n)
		}
		if err = taken.grow(size + n); err == nil {
			whole, err = readBytes(parts, whole, n)
		}
		if err == nil {
			kept, err = of[number].object(kept[:0], whole)
		}
		if size += len(kept) + listOverhead; err == nil && size > maxList {
			err = fmt.Errorf("%w: the list has more than %d MiB, each object with %d bytes for itself",
				ErrTooLarge, maxList>>20, listOverhead)
		}
		if err == nil {
			err = slow.wait(objectCost)
		}
		if err != nil {
			return nil, err
		}
		if number == 1 || number == 2 && r.held.admit(kept) {
			list = protowire.AppendBytes(protowire.AppendTag(list, number, protowire.BytesType), kept)
		}
	}
}

// shorterWait is a Retry-After, or the longest that is heeded.
func shorterWait(wait string) string {
	if seconds, err := strconv.Atoi(wait); err == nil && seconds >= 0 && seconds <= longestRetryAfter {
		return wait
	}
	return strconv.Itoa(longestRetryAfter)
}
