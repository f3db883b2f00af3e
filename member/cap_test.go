package member_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// body records whether it was closed, and fails then if it has an error.
type body struct {
	io.Reader
	closed bool
	err    error
}

func (b *body) Close() error {
	b.closed = true
	return b.err
}

// request returns a request whose body is a *body.
func request(ctx context.Context, t *testing.T, method, query string) *http.Request {
	t.Helper()
	req := musttest.Get(http.NewRequestWithContext(ctx, method, "http://member/apis/v1/things/x"+query,
		&body{Reader: strings.NewReader("{}")}))(t)
	return req
}

// put sends a write through CapWrites, and reads its answer.
func put(ctx context.Context, t *testing.T, next transport) error {
	resp, err := (&http.Client{Transport: member.CapWrites(next)}).Do(request(ctx, t, http.MethodPut, ""))
	if err != nil {
		return err
	}
	_, err = io.ReadAll(resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// answering answers some time later.
func answering(code int, after time.Duration) transport {
	return func(*http.Request) (*http.Response, error) {
		pass(after)
		return &http.Response{StatusCode: code, Body: http.NoBody}, nil
	}
}

func breaking(*http.Request) (*http.Response, error) { return nil, errBroken }

// hanging gives no answer before the end of the request's context.
func hanging(req *http.Request) (*http.Response, error) {
	<-req.Context().Done()
	return nil, req.Context().Err()
}

func TestCapWrites_LowersTheTimeoutToWhatRemains(t *testing.T) {
	type row struct {
		method, query string
		gated         bool
		want          string
	}
	musttest.Each(t, map[string]row{
		"a create":                             {http.MethodPost, "", true, "timeout=10s"},
		"an update":                            {http.MethodPut, "", true, "timeout=10s"},
		"a timeout that is none":               {http.MethodPut, "?timeout=soon", true, "timeout=10s"},
		"a patch with parameters":              {http.MethodPatch, "?force=true", true, "force=true&timeout=10s"},
		"a deletion":                           {http.MethodDelete, "", true, "timeout=10s"},
		"a longer timeout":                     {http.MethodPost, "?timeout=30s", true, "timeout=10s"},
		"no timeout at all":                    {http.MethodPost, "?timeout=0s", true, "timeout=10s"},
		"a shorter timeout":                    {http.MethodPost, "?timeout=3s", true, "timeout=3s"},
		"a read":                               {http.MethodGet, "", true, ""},
		"work without a term":                  {http.MethodPost, "", false, ""},
		"work without a term, and its timeout": {http.MethodPost, "?timeout=30s", false, "timeout=30s"},
	}, func(t *testing.T, row row) {
		c, ctx := newTestTerms(t), t.Context()
		c.write(ns, us, 7)
		if row.gated {
			gated, done := contextOf(t, c, ns)
			defer done()
			ctx = gated
		}
		pass(duration / 2)
		c.write(ns, us, 7) // a renewal counts
		pass(duration - 10*time.Second - 999*time.Microsecond)
		req := request(ctx, t, row.method, row.query)
		resp, err := member.CapWrites(transport(func(sent *http.Request) (*http.Response, error) {
			if got := sent.URL.RawQuery; got != row.want {
				t.Errorf("sent with %q, want %q", got, row.want)
			}
			return answering(http.StatusOK, 0)(sent)
		})).RoundTrip(req)
		musttest.Do(t, err)
		_ = resp.Body.Close()
		if got := req.URL.RawQuery; got != strings.TrimPrefix(row.query, "?") {
			t.Errorf("the caller's request was changed to %q", got)
		}
	})
}

func TestCapWrites_SendsNothingAfterTheTerm(t *testing.T) {
	type row struct {
		happens func(c *testTerms)
		why     string
	}
	musttest.Each(t, map[string]row{
		"demoted":                {func(c *testTerms) { c.write(ns, them, 8) }, "west.fleet leads in epoch 8"},
		"another term has begun": {func(c *testTerms) { c.write(ns, us, 8) }, "the next one has begun in epoch 8"},
		"suspended just before":  {func(c *testTerms) { c.clock.Suspend(duration) }, "it ran out"},
		"less than 1ms is left":  {func(*testTerms) { pass(duration - 999*time.Microsecond) }, "it ran out"},
	}, func(t *testing.T, row row) {
		c := newTestTerms(t)
		c.write(ns, us, 7)
		ctx, done := contextOf(t, c, ns)
		defer done()
		row.happens(c)
		req := request(ctx, t, http.MethodPut, "")
		resp, err := member.CapWrites(transport(func(req *http.Request) (*http.Response, error) {
			t.Error("sent")
			return breaking(req)
		})).RoundTrip(req)
		if err == nil {
			_ = resp.Body.Close()
		}
		if !errors.Is(err, member.ErrLost) || !errors.Is(err, member.ErrNotBegun) || !req.Body.(*body).closed {
			t.Errorf("err = %v, body %+v; want ErrNotBegun with ErrLost, and the body closed", err, req.Body)
		}
		text := "not begun: the term is over: namespace shop, epoch 7: " + row.why
		if prefix := "PUT /apis/v1/things/x: " + text; !strings.HasPrefix(fmt.Sprint(err), prefix) {
			t.Errorf("err = %v, want %q", err, prefix)
		}
		if err := member.Check(ctx); !strings.HasPrefix(fmt.Sprint(err), text) {
			t.Errorf("Check after that: %v, want %q", err, text)
		}
	})
}

// A write may take effect until its answer is there, or, without one, for as long as the API server may try.
func TestRelease_WaitsForWritesThatMayTakeEffect(t *testing.T) {
	const leaves = 6 * time.Second // of the term, at the revocation
	type row struct {
		write       transport
		after, upTo time.Duration // the revocation it is released
	}
	musttest.Each(t, map[string]row{
		"it was done before":       {answering(200, 0), 0, 0},
		"it was refused":           {answering(409, 0), 0, 0},
		"the server failed":        {answering(500, 0), leaves, leaves + confirm},
		"the server timed out":     {answering(504, 0), leaves, leaves + confirm},
		"the connection broke":     {breaking, leaves, leaves + confirm},
		"the answer comes in time": {answering(200, 3*time.Second), 2 * time.Second, 2 * time.Second},
		"it fails in the end":      {answering(503, 3*time.Second), leaves, leaves + confirm},
		"there is no answer":       {hanging, leaves, leaves + confirm},
		"it ignores its context":   {answering(200, 20*time.Second), 19 * time.Second, 19 * time.Second},
	}, func(t *testing.T, row row) {
		r := startTestMember(t, registering(t))
		r.write(ns, us, 7, lasting(15))
		synctest.Wait()
		pass(duration - leaves - time.Second)
		ctx, done := contextOf(t, r, ns)
		returned := make(chan error, 1)
		go func() {
			defer done()
			returned <- put(ctx, t, row.write)
		}()
		pass(time.Second)
		r.write(ns, none, 8)
		revoked := time.Now()
		synctest.Wait()
		select {
		case <-returned:
		default:
			t.Fatal("the write does not return at the end of its term")
		}
		if early := row.after - time.Millisecond; early > 0 {
			if pass(early); r.released(t) {
				t.Fatalf("released %v after the revocation", time.Since(revoked))
			}
		}
		pass(row.upTo - time.Since(revoked) + time.Millisecond)
		if !r.released(t) {
			t.Errorf("not released %v after the revocation", time.Since(revoked))
		}
	})
}

// A write that was cut off has another error than one that was not begun, and than that of a program that stops.
func TestCapWrites_ReportsAWriteThatTheEndOfItsTermCutOff(t *testing.T) {
	demoted := func(r *testMember, _ func()) { r.write(ns, them, 8) }
	stops := func(_ *testMember, stop func()) { stop() }
	goesOn := func(*testMember, func()) {}
	for name, row := range map[string]struct {
		next     transport
		ends     func(r *testMember, stop func())
		lost     bool
		answered bool // in the end: a registered Member's caller has left by then
	}{
		"another cluster leads":                       {hanging, demoted, true, false},
		"the term runs out":                           {hanging, goesOn, true, false},
		"the program stops":                           {hanging, stops, false, false},
		"the term goes on, and the connection breaks": {breaking, goesOn, false, false},
		"the answer comes after the term":             {answering(http.StatusOK, 2*time.Second), demoted, true, true},
	} {
		musttest.Each(t, map[string]member.Options{name: {}, name + ", registered": registering(t)},
			func(t *testing.T, o member.Options) {
				r := startTestMember(t, o)
				r.write(ns, us, 7, lasting(15))
				synctest.Wait()
				parent, stop := context.WithCancel(t.Context())
				defer stop()
				ctx, done, err := r.Context(parent, ns)
				musttest.Do(t, err)
				defer done()
				failed := make(chan error, 1)
				go func() { failed <- put(ctx, t, row.next) }()
				pass(time.Second)
				row.ends(r, stop)
				err = <-failed
				if row.answered && o.Registration == nil {
					if err != nil {
						t.Errorf("err = %v of a write that was answered", err)
					}
					return
				}
				if errors.Is(err, member.ErrLost) != row.lost || errors.Is(err, member.ErrNotBegun) || err == nil {
					t.Errorf("err = %v, want ErrLost: %v", err, row.lost)
				}
				if row.lost && !strings.Contains(err.Error(), "the term is over: namespace shop, epoch 7: ") {
					t.Errorf("err = %v, want the namespace in it", err)
				}
				pass(duration) // so long is the answer waited for
			})
	}
}

// Client-go repeats a request by itself if its answer has a Retry-After. After a server error the first one may still
// take effect.
func TestCapWrites_SendsAWriteOnceWhoseOutcomeIsUnknown(t *testing.T) {
	type row struct{ code, sends int }
	musttest.Each(t, map[string]row{
		"the server failed":          {http.StatusInternalServerError, 1},
		"the server is unavailable":  {http.StatusServiceUnavailable, 1},
		"the server refused for now": {http.StatusTooManyRequests, 2},
	}, func(t *testing.T, row row) {
		c, sends := newTestTerms(t), 0
		c.write(ns, us, 7)
		ctx, done := contextOf(t, c, ns)
		defer done()
		next := transport(func(req *http.Request) (*http.Response, error) {
			if sends++; sends > 1 {
				return answering(http.StatusOK, 0)(req)
			}
			header := http.Header{"Retry-After": {"1"}}
			return &http.Response{StatusCode: row.code, Header: header, Body: http.NoBody}, nil
		})
		clients := musttest.Get(kubernetes.NewForConfigAndClient(&rest.Config{Host: "http://member", QPS: -1},
			&http.Client{Transport: member.CapWrites(next)}))(t)
		err := clients.CoreV1().ConfigMaps(ns).Delete(ctx, "book", metav1.DeleteOptions{})
		if repeated := row.sends > 1; sends != row.sends || (err == nil) != repeated || errors.Is(err, member.ErrNotBegun) {
			t.Errorf("%d sends, err = %v; want %d, and no ErrNotBegun", sends, err, row.sends)
		}
	})
}

// A registered Member waits for the answer, but its caller does not.
func TestCapWrites_OfARegisteredMemberLeavesNothingBehind(t *testing.T) {
	errClose := errors.New("the body could not be closed")
	type row struct {
		takes, until time.Duration // until the answer, and until the caller has a result: it waits for 1 s
		fails        bool
		want         error
	}
	musttest.Each(t, map[string]row{
		"it was answered":                       {0, 0, false, errClose},
		"it failed":                             {0, 0, true, errBroken},
		"its caller had left before the answer": {2 * time.Second, time.Second, false, context.DeadlineExceeded},
		"its caller had left before it failed":  {2 * time.Second, time.Second, true, context.DeadlineExceeded},
	}, func(t *testing.T, row row) {
		r := startRegistered(t)
		ctx, done := contextOf(t, r, ns)
		defer done()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var sent context.Context
		answered, began := &body{Reader: http.NoBody, err: errClose}, time.Now()
		err := put(short, t, func(req *http.Request) (*http.Response, error) {
			sent = req.Context()
			if pass(row.takes); row.fails {
				return nil, errBroken
			}
			return &http.Response{StatusCode: http.StatusOK, Body: answered}, nil
		})
		if took := time.Since(began); !errors.Is(err, row.want) || took != row.until {
			t.Errorf("err = %v after %v, want %v after %v", err, took, row.want, row.until)
		}
		pass(row.takes)
		synctest.Wait()
		if sent.Err() == nil || answered.closed == row.fails {
			t.Errorf("the request's context: %v, the answer is closed = %v", sent.Err(), answered.closed)
		}
	})
}
