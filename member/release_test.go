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

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

// released reports whether the reader has released epoch 7 of the namespace of these tests.
func (r *reader) released(t *testing.T) bool {
	t.Helper()
	synctest.Wait()
	return r.registration(t).HasReleased(ns, 7)
}

// Whatever kind of work it is: the term is released when it has finished, and not before.
func TestATermIsReleasedWhenItsWorkHasFinished(t *testing.T) {
	const works = 10 * time.Second // on after the revocation
	kinds := map[string]func(t *testing.T, r *reader){
		"none": nil,
		"work in a context": func(t *testing.T, r *reader) {
			ctx, done, err := r.Context(t.Context(), ns)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-ctx.Done()
				pass(works)
				done()
			}()
		},
		"two of them, one of which takes longer": func(t *testing.T, r *reader) {
			for _, takes := range []time.Duration{works, 0} {
				ctx, done, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					<-ctx.Done()
					pass(takes)
					done()
				}()
			}
		},
		"Lead": func(_ *testing.T, r *reader) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				_ = r.Lead(ctx, ns, func(ctx context.Context) error {
					<-ctx.Done()
					pass(works)
					cancel()
					return nil
				})
			}()
		},
		"a listener": func(_ *testing.T, r *reader) {
			r.Listen(member.Listener{Demoted: func(string, error) { pass(works) }})
		},
		"a listener that was removed as it heard of the end": func(_ *testing.T, r *reader) {
			var remove func()
			remove = r.Listen(member.Listener{Demoted: func(string, error) { remove(); pass(works) }})
		},
		"a listener beside one that was removed as it heard of the end": func(_ *testing.T, r *reader) {
			var remove func()
			remove = r.Listen(member.Listener{Demoted: func(string, error) { remove() }})
			r.Listen(member.Listener{Demoted: func(string, error) { pass(works) }})
		},
		"a listener that is still being promoted": func(_ *testing.T, r *reader) {
			r.Listen(member.Listener{Promoted: func(string, member.Term) { pass(works) }})
		},
	}
	for name, begin := range kinds {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				if begin != nil {
					begin(t, r)
				}
				synctest.Wait()
				if r.released(t) {
					t.Fatal("released while it leads")
				}
				r.say(ns, none, 8)
				if begin != nil {
					for range 2 {
						pass(works/2 - time.Millisecond)
						if r.released(t) {
							t.Fatal("released while the work goes on")
						}
					}
					pass(2 * time.Millisecond)
				}
				if !r.released(t) {
					t.Error("not released although the work has finished")
				}
			})
		})
	}
}

func TestAListenerThatIsRemovedHoldsNothingUp(t *testing.T) {
	for name, listen := range map[string]func(r *reader){
		"while it leads": func(r *reader) {
			remove := r.Listen(member.Listener{})
			synctest.Wait() // it has been told that this cluster leads
			for range 2 {   // again does no harm
				remove()
			}
		},
		"as it is promoted": func(r *reader) {
			var remove func()
			remove = r.Listen(member.Listener{Promoted: func(string, member.Term) { remove() }})
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				listen(r)
				r.say(ns, none, 8)
				if !r.released(t) {
					t.Error("not released although nobody listens")
				}
			})
		})
	}
}

func TestWhatIsReleasedAndWhatIsNot(t *testing.T) {
	for name, tc := range map[string]struct {
		happens  func(r *reader)
		released bool
	}{
		"nobody leads":           {func(r *reader) { r.say(ns, none, 8) }, true},
		"in a far higher epoch":  {func(r *reader) { r.say(ns, none, 9000) }, true},
		"the term stands":        {func(*reader) {}, false},
		"the Lease is gone":      {func(r *reader) { r.remove(ns, v1alpha1.DefaultLeaseName) }, false},
		"an edit of no weight":   {func(r *reader) { r.say(ns, none, 6) }, false},
		"an absurd epoch":        {func(r *reader) { r.say(ns, none, 2e9) }, false},
		"another namespace's":    {func(r *reader) { r.say("other", none, 8) }, false},
		"another cluster leads":  {func(r *reader) { r.say(ns, them, 8) }, false}, // nobody waits any more
		"after nobody did":       {func(r *reader) { r.say(ns, none, 8); synctest.Wait(); r.say(ns, them, 9); pass(confirm) }, false},
		"this one leads anew":    {func(r *reader) { r.say(ns, none, 8); synctest.Wait(); r.say(ns, us, 9); pass(confirm) }, false},
		"the term has run out":   {func(r *reader) { l := r.cluster.copyOf(ns, us, 7); r.put(l); pass(2 * time.Hour) }, false},
		"nobody, and it is gone": {func(r *reader) { r.say(ns, none, 8); r.remove(ns, v1alpha1.DefaultLeaseName) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				tc.happens(r)
				if r.released(t) != tc.released {
					t.Errorf("released = %v, want %v: %v", !tc.released, tc.released, r.registration(t).Released)
				}
			})
		})
	}
}

// A controller that has nothing to do in a namespace is waited for like any other.
func TestWhoNeverLedReleasesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.say(ns, none, 8)
		defer r.start(t)()
		if !r.released(t) {
			t.Errorf("released %v", r.registration(t).Released)
		}
	})
}

func TestAReleasedEpochIsNeverTrustedAgain(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		r.say(ns, none, 8)
		if !r.released(t) {
			t.Fatal("not released")
		}
		for range 3 {
			r.say(ns, us, 7)
			if r.leads(ns) {
				t.Fatal("leads in an epoch that it has released")
			}
			r.remove(ns, v1alpha1.DefaultLeaseName)
			synctest.Wait()
		}
		r.say(ns, us, 9)
		if !r.leads(ns) {
			t.Error("does not lead in the next epoch")
		}
	})
}

// What an earlier registration has not finished, the next one has not released.
func TestWorkOutlastsARegistration(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		_, done, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		l := r.registered()[0]
		r.remove(home, l.Name)
		pass(confirm + time.Second)
		r.say(ns, none, 8)
		pass(time.Hour)
		if r.released(t) {
			t.Fatal("released while work of an earlier registration goes on")
		}
		done()
		if !r.released(t) {
			t.Error("not released although the work has finished")
		}
	})
}

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
		"it was done before":            {func(*http.Request) (*http.Response, error) { return answering(200) }, []time.Duration{0, 0}},
		"it was refused":                {func(*http.Request) (*http.Response, error) { return answering(409) }, []time.Duration{0, 0}},
		"the server failed":             {func(*http.Request) (*http.Response, error) { return answering(500) }, []time.Duration{leaves, leaves + confirm}},
		"the server timed out":          {func(*http.Request) (*http.Response, error) { return answering(504) }, []time.Duration{leaves, leaves + confirm}},
		"the connection broke":          {func(*http.Request) (*http.Response, error) { return nil, errBroken }, []time.Duration{leaves, leaves + confirm}},
		"the answer comes in time":      {func(*http.Request) (*http.Response, error) { pass(3 * time.Second); return answering(200) }, []time.Duration{2 * time.Second, 2 * time.Second}},
		"it fails in the end":           {func(*http.Request) (*http.Response, error) { pass(3 * time.Second); return answering(503) }, []time.Duration{leaves, leaves + confirm}},
		"there is no answer":            {func(req *http.Request) (*http.Response, error) { <-req.Context().Done(); return nil, errBroken }, []time.Duration{leaves, leaves + confirm}},
		"it heeds nothing, and is late": {func(*http.Request) (*http.Response, error) { pass(20 * time.Second); return answering(200) }, []time.Duration{19 * time.Second, 19 * time.Second}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRegistered(t)
				r.put(r.cluster.copyOf(ns, us, 7)) // lasts 15 s
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
				r.put(r.cluster.copyOf(ns, none, 8))
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

// So many names fit into a registration, however long they are.
func TestReleasesThatDoNotFitAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		const fit = 1000
		name := func(i int) string { return fmt.Sprintf("team-%04d", i) }
		for i := range fit + 1 {
			r.say(name(i), none, 8)
		}
		defer r.start(t)()
		synctest.Wait()
		if got := r.registration(t); len(got.Released) != fit || got.HasReleased(name(fit), 7) {
			t.Errorf("%d releases, want the first %d", len(got.Released), fit)
		}
		r.say(name(0), them, 9) // granted, so nobody asks any more
		pass(confirm)
		synctest.Wait()
		if got := r.registration(t); len(got.Released) != fit || !got.HasReleased(name(fit), 7) {
			t.Errorf("%d releases when there is room for the last, want %d", len(got.Released), fit)
		}
	})
}

// Many namespaces change hands at once when a cluster is drained.
func TestWhatIsReleasedIsWrittenInOneGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		const many = 200
		for i := range many {
			r.say(fmt.Sprint("team-", i), us, 7)
		}
		defer r.start(t)()
		synctest.Wait()
		r.meet(late) // a write takes longer than the hub for all
		before := r.written()
		for i := range many {
			r.say(fmt.Sprint("team-", i), none, 8)
			pass(time.Millisecond)
		}
		pass(2*slow + time.Second)
		if got := r.registration(t); len(got.Released) != many {
			t.Errorf("released %d of %d", len(got.Released), many)
		}
		if writes := r.written() - before; writes > 3 {
			t.Errorf("%d writes for %d releases", writes, many)
		}
		r.meet(stored)
		r.say("team-0", them, 9) // granted, so nobody asks any more
		pass(confirm)
		if got := r.registration(t); len(got.Released) != many-1 || got.HasReleased("team-0", 7) {
			t.Errorf("%d releases are left, want %d", len(got.Released), many-1)
		}
	})
}
