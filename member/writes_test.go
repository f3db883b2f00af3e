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

	"github.com/leasecast/leasecast/member"
)

// transport is what the writes of a controller pass through.
type transport func(req *http.Request) (*http.Response, error)

func (f transport) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

func answering(code int) (*http.Response, error) {
	return &http.Response{StatusCode: code, Body: http.NoBody}, nil
}

// act sends a write in the term, and returns its error.
func act(ctx context.Context, t *testing.T, next transport) error {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://member/apis/v1/things/x", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := member.CapWrites(next).RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	return err
}

// A write may take effect until its answer is there, or, without one, for as long as the API server may try.
func TestATermIsReleasedWhenNoWriteOfItCanTakeEffect(t *testing.T) {
	const leaves = 6 * time.Second // of the term, at the revocation
	cases := map[string]struct {
		write    func(req *http.Request) (*http.Response, error)
		released []time.Duration // since the revocation: not before the first, and by the second
	}{
		"it was done before": {
			write:    func(*http.Request) (*http.Response, error) { return answering(200) },
			released: []time.Duration{0, 0},
		},
		"it was refused": {
			write:    func(*http.Request) (*http.Response, error) { return answering(409) },
			released: []time.Duration{0, 0},
		},
		"the server failed": {
			write:    func(*http.Request) (*http.Response, error) { return answering(500) },
			released: []time.Duration{leaves, leaves + confirm},
		},
		"the server timed out": {
			write:    func(*http.Request) (*http.Response, error) { return answering(504) },
			released: []time.Duration{leaves, leaves + confirm},
		},
		"the connection broke": {
			write:    func(*http.Request) (*http.Response, error) { return nil, errBroken },
			released: []time.Duration{leaves, leaves + confirm},
		},
		"the answer comes in time": {
			write:    func(*http.Request) (*http.Response, error) { pass(3 * time.Second); return answering(200) },
			released: []time.Duration{2 * time.Second, 2 * time.Second},
		},
		"it fails in the end": {
			write:    func(*http.Request) (*http.Response, error) { pass(3 * time.Second); return answering(503) },
			released: []time.Duration{leaves, leaves + confirm},
		},
		"there is no answer": {
			write:    func(req *http.Request) (*http.Response, error) { <-req.Context().Done(); return nil, errBroken },
			released: []time.Duration{leaves, leaves + confirm},
		},
		"it does not listen, and is late": {
			write:    func(*http.Request) (*http.Response, error) { pass(20 * time.Second); return answering(200) },
			released: []time.Duration{19 * time.Second, 19 * time.Second},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistered(t)
				r.put(r.cluster.leaseOf(ns, us, 7)) // lasts 15 s
				defer r.start(t)()
				synctest.Wait()
				pass(duration - leaves - time.Second)
				ctx, done, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				returned := make(chan time.Time, 1)
				go func() {
					defer done()
					_ = act(ctx, t, tc.write)
					returned <- time.Now()
				}()
				pass(time.Second)
				r.put(r.cluster.leaseOf(ns, none, 8))
				revoked := time.Now()
				synctest.Wait()
				select {
				case <-returned:
				default:
					t.Fatal("the caller is not told that its term is over")
				}
				if early := tc.released[0] - time.Millisecond; early > 0 {
					pass(early)
					if r.released(t) {
						t.Fatalf("released %v after the revocation", time.Since(revoked))
					}
				}
				pass(tc.released[1] - time.Since(revoked) + time.Millisecond)
				if !r.released(t) {
					t.Errorf("not released %v after the revocation", time.Since(revoked))
				}
			})
		})
	}
}

// An act that was cut off in its middle has another error than one that nobody has begun, and than a program that
// stops.
func TestAWriteThatTheEndOfItsTermCutsOffSaysSo(t *testing.T) {
	late := func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	halfway := func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(readUntil(req.Context().Done()))}, nil
	}
	for name, tc := range map[string]struct {
		next transport
		ends func(r *reader, stop func())
		lost bool
	}{
		"another cluster leads":    {late, func(r *reader, _ func()) { r.put(r.cluster.leaseOf(ns, them, 8)) }, true},
		"the term runs out":        {late, func(*reader, func()) {}, true},
		"while the answer is read": {halfway, func(r *reader, _ func()) { r.put(r.cluster.leaseOf(ns, them, 8)) }, true},
		"the program stops":        {late, func(_ *reader, stop func()) { stop() }, false},
		"it stops as it is read":   {halfway, func(_ *reader, stop func()) { stop() }, false},
		"the term goes on, it breaks": {
			next: func(*http.Request) (*http.Response, error) { return nil, errBroken },
			ends: func(*reader, func()) {},
		},
	} {
		for _, registers := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, registered %v", name, registers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := member.Options{Logger: (&logged{}).logger()}
					if registers {
						o.Registration = registration(t)
					}
					r := newReaderWith(t, o)
					r.put(r.cluster.leaseOf(ns, us, 7))
					defer r.start(t)()
					synctest.Wait()
					parent, stop := context.WithCancel(t.Context())
					defer stop()
					ctx, done, err := r.Context(parent, ns)
					if err != nil {
						t.Fatal(err)
					}
					defer done()
					failed := make(chan error, 1)
					go func() { failed <- read(ctx, t, tc.next) }()
					pass(time.Second)
					tc.ends(r, stop)
					err = <-failed
					if errors.Is(err, member.ErrLost) != tc.lost || errors.Is(err, member.ErrNotBegun) || err == nil {
						t.Errorf("err = %v, want ErrLost: %v", err, tc.lost)
					}
					pass(duration) // so long is the answer waited for
				})
			})
		}
	}
}

// read sends a write and reads its answer.
func read(ctx context.Context, t *testing.T, next transport) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, "http://member/apis/v1/things/x", http.NoBody)
	if err != nil {
		t.Error(err)
		return nil
	}
	resp, err := (&http.Client{Transport: member.CapWrites(next)}).Do(req)
	if err != nil {
		return err
	}
	_, err = io.ReadAll(resp.Body)
	return errors.Join(err, resp.Body.Close())
}

// readUntil blocks until then, as the answer of a request does whose context ends.
type readUntil <-chan struct{}

func (r readUntil) Read([]byte) (int, error) {
	<-r
	return 0, context.Canceled
}

// The caller's own patience counts, also where the answer is waited for behind its back.
func TestAWriteOfARegisteredReaderEndsWithItsCallersContext(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		ctx, done, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		began := time.Now()
		err = act(short, t, func(*http.Request) (*http.Response, error) { pass(time.Minute); return answering(200) })
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took != time.Second {
			t.Errorf("err = %v after %v, want the deadline's after 1s", err, took)
		}
		pass(time.Minute)
	})
}

// The body of an answer is read under the caller's context, and nothing is left behind when it is closed.
func TestTheAnswerOfAWriteIsReadUnderItsCallersContext(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		ctx, done, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		var sent context.Context
		send := func(ctx context.Context) *http.Response {
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://member/apis/v1/things", http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := member.CapWrites(transport(func(req *http.Request) (*http.Response, error) {
				sent = req.Context()
				return answering(201)
			})).RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			return resp
		}
		_ = send(ctx).Body.Close()
		if sent.Err() == nil {
			t.Error("the request goes on after its body was closed")
		}
		short, cancel := context.WithCancel(ctx)
		resp := send(short)
		if sent.Err() != nil {
			t.Error("the body cannot be read")
		}
		cancel()
		synctest.Wait()
		if sent.Err() == nil {
			t.Error("the body is read on although the caller has given up")
		}
		_ = resp.Body.Close()
	})
}

func TestNothingIsLeftOfAWriteWhenItIsOver(t *testing.T) {
	for name, tc := range map[string]struct {
		takes time.Duration // until the answer; the caller waits for a second
		err   error
	}{
		"it failed":                             {0, errBroken},
		"its caller had left before the answer": {2 * time.Second, nil},
		"its caller had left before it failed":  {2 * time.Second, errBroken},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				ctx, done, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				defer done()
				short, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				var sent context.Context
				answered := &body{}
				if err := act(short, t, func(req *http.Request) (*http.Response, error) {
					sent = req.Context()
					pass(tc.takes)
					if tc.err != nil {
						return nil, tc.err
					}
					return &http.Response{StatusCode: http.StatusOK, Body: answered}, nil
				}); err == nil {
					t.Fatal("the write succeeded")
				}
				pass(tc.takes)
				synctest.Wait()
				if sent.Err() == nil {
					t.Error("the request goes on")
				}
				if answered.closed != (tc.err == nil) {
					t.Error("the body of the answer is left open")
				}
			})
		})
	}
}

// stuck is a body that cannot be closed.
type stuck struct{ io.Reader }

func (stuck) Close() error { return errBroken }

func TestWhoClosesTheAnswerOfAWriteHearsOfItsError(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		ctx, done, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		defer done()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://member/apis/v1/things", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := member.CapWrites(transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusCreated, Body: stuck{}}, nil
		})).RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		if err := resp.Body.Close(); !errors.Is(err, errBroken) {
			t.Errorf("Close = %v, want %v", err, errBroken)
		}
	})
}
