package transport

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/leasecast/leasecast/hub/fleet/wake"
)

// marshaler is what Kubernetes encodes in protobuf.
type marshaler interface{ Marshal() ([]byte, error) }

// enveloped is an object as API servers send it.
func enveloped(t testing.TB, o marshaler) []byte {
	t.Helper()
	raw, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown := runtime.Unknown{Raw: raw}
	if raw, err = unknown.Marshal(); err != nil {
		t.Fatal(err)
	}
	return append(bytes.Clone(protobufMagic), raw...)
}

// event is one of a watch, with its length before it.
func event(t testing.TB, kind string, o marshaler) []byte {
	t.Helper()
	e := metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: enveloped(t, o)}}
	data, err := e.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(data))), data...)
}

// told says whether a meter has had enough.
type told struct {
	*Meter
	errs []error
}

// newTold is a meter that does not drain, however slow the machine is.
func newTold() *told { return newToldBy(clocktesting.NewFakePassiveClock(time.Time{})) }

func newToldBy(c clock.PassiveClock) *told {
	r := &told{}
	r.Meter = NewMeter(c, func(err error) { r.errs = append(r.errs, err) })
	return r
}

// answer is what a Swappable hands on of an answer.
func answer(t *testing.T, m *Meter, query string, handler http.HandlerFunc) (header http.Header, body []byte, err error) {
	t.Helper()
	s := apiServer(t, true, handler)
	l := NewSwappable("east.prod", "", MaxCachesBody)
	l.Meter, l.Timers = m, clock.RealClock{}
	tg := targetTo(t, accessTo(t, s, "", secretText), nil)
	l.set(tg, tg.caches)
	resp, err := (&http.Client{Transport: l}).Get("https://east.prod.invalid/api" + query)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	return resp.Header, body, err
}

func repeated(what string, n int) []byte { return bytes.Repeat([]byte(what), n) }

// What is refused would take much more memory decoded than it has bytes, or is simply large.
func TestAnAnswerThatWouldFillTheMemoryIsRefusedBeforeItIsDecoded(t *testing.T) {
	leases := coordinationv1.LeaseList{Items: make([]coordinationv1.Lease, 200_000)}
	owners := corev1.Namespace{ObjectMeta: metav1.ObjectMeta{OwnerReferences: make([]metav1.OwnerReference, 200_000)}}
	for name, tc := range map[string]struct {
		watch       bool
		contentType string
		body        []byte
	}{
		"a list of empty objects in JSON":            {false, jsonType, repeated("{},", 200_000)},
		"one in protobuf":                            {false, protobufType, enveloped(t, &leases)},
		"an object with a million owners":            {true, protobufType + ";stream=watch", event(t, "ADDED", &owners)},
		"one in JSON":                                {true, jsonType, append(repeated("{},", 50_000), '\n')},
		"an event without an end":                    {true, jsonType, repeated("x", maxEvent+1)},
		"an event that says that it is large":        {true, protobufType + ";stream=watch", []byte{0x7f, 0xff, 0xff, 0xff, 0}},
		"more bytes than a list may have":            {false, jsonType, repeated(" ", MaxCachesBody+1)},
		"lists within lists, as an event of a watch": {true, jsonType, append(repeated("[", 50_000), '\n')},
	} {
		t.Run(name, func(t *testing.T) {
			m, query := newTold(), ""
			if tc.watch {
				query = "?watch=true"
			}
			_, _, err := answer(t, m.Meter, query, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				_, _ = w.Write(tc.body) // the other side hangs up
			})
			if !errors.Is(err, ErrTooLarge) || len(m.errs) != 1 {
				t.Errorf("%v, told %v", err, m.errs)
			}
		})
	}
}

func TestHonestAnswersAreHandedOnAsTheyAre(t *testing.T) {
	leases := coordinationv1.LeaseList{Items: make([]coordinationv1.Lease, 500)}
	for i := range leases.Items {
		leases.Items[i].Name = fmt.Sprintf("lease-%d", i)
	}
	inJSON, err := json.Marshal(leases)
	if err != nil {
		t.Fatal(err)
	}
	events := append(event(t, "ADDED", &leases.Items[1]), event(t, "DELETED", &leases.Items[2])...)
	for name, tc := range map[string]struct {
		query, contentType string
		body               []byte
	}{
		"a list in protobuf":            {"", protobufType, enveloped(t, &leases)},
		"a list in JSON":                {"", jsonType, inJSON},
		"nothing":                       {"", "", nil},
		"a watch in protobuf":           {"?watch=true", protobufType + ";stream=watch", events},
		"a watch in JSON":               {"?watch=1", jsonType, []byte("{\"type\":\"ADDED\"}\n{\"type\":\"DELETED\"}\n")},
		"one without its last newline":  {"?watch=1", jsonType, []byte("{\"type\":\"ADDED\"}\n{\"type\":\"DELETED\"}")},
		"an event larger than a buffer": {"?watch=1", jsonType, append(repeated("x", 100_000), '\n')},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTold()
			_, body, err := answer(t, m.Meter, tc.query, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				_, _ = w.Write(tc.body)
			})
			if err != nil || !bytes.Equal(body, tc.body) || len(m.errs) > 0 {
				t.Errorf("%v, told %v: %d bytes, want %d", err, m.errs, len(body), len(tc.body))
			}
		})
	}
}

func TestAnEndlessWatchIsEndedByItsWeight(t *testing.T) {
	m := newTold()
	one := event(t, "MODIFIED", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"a": strings.Repeat("b", 1000)}}})
	_, body, err := answer(t, m.Meter, "?watch=true", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", protobufType+";stream=watch")
		for r.Context().Err() == nil {
			_, _ = w.Write(one)
		}
	})
	if !errors.Is(err, errTooMuch) || len(m.errs) != 1 || len(body) > meterBurst {
		t.Errorf("%v after %d bytes, told %v", err, len(body), m.errs)
	}
}

func TestAMeterDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newToldBy(clock.RealClock{})
		if err := m.add(meterBurst); err != nil {
			t.Fatal(err)
		}
		if err := m.add(1); !errors.Is(err, errTooMuch) || len(m.errs) != 1 {
			t.Fatalf("%v, told %v", err, m.errs)
		}
		<-time.After(time.Second)
		if err := m.add(meterRate - 1); err != nil {
			t.Error(err)
		}
		if err := m.add(1); !errors.Is(err, errTooMuch) || len(m.errs) != 1 {
			t.Errorf("%v, told %v: once is enough", err, m.errs)
		}
		m.Reset()
		if err := m.add(meterBurst); err != nil {
			t.Error(err)
		}
	})
}

// Tenants write them, and must not have their cluster disconnected.
func TestTooManyRegistrationsEndOnlyRequestsForThem(t *testing.T) {
	main := newTold()
	s := apiServer(t, true, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		_, _ = w.Write(repeated("{},", 100_000))
	})
	l := NewSwappable("east.prod", "", MaxCachesBody)
	l.Meter, l.Readers, l.ReadersSelector = main.Meter, NewReadersMeter(clocktesting.NewFakePassiveClock(time.Time{})), "reader=true"
	tg := targetTo(t, accessTo(t, s, "", "t"), nil)
	l.set(tg, tg.caches)
	get := func(query string) error {
		resp, err := (&http.Client{Transport: l}).Get("https://east.prod.invalid/api" + query)
		if err == nil {
			_ = resp.Body.Close()
		}
		return err
	}
	if err := get("?labelSelector=reader%3Dtrue"); !errors.Is(err, errTooMuch) {
		t.Error(err)
	}
	if err := get("?labelSelector=other"); err != nil || len(main.errs) > 0 {
		t.Errorf("%v, told %v", err, main.errs)
	}
}

// Their objects are large, and decoded into a type that is small.
func TestWhatTenantsFillEndsOnlyRequestsForIt(t *testing.T) {
	type asked []struct {
		size int // of the answer
		want error
	}
	for name, test := range map[string]asked{
		"an answer that weighs much":  {{MaxTenantsBody, nil}},
		"an answer that is too large": {{MaxTenantsBody + 1, ErrTooLarge}, {1, nil}},
		"answers without end": append(slices.Repeat(asked{{MaxTenantsBody, nil}}, readersBurst/MaxTenantsBody),
			asked{{MaxTenantsBody, errTooMuch}, {1, errTooMuch}}...),
	} {
		t.Run(name, func(t *testing.T) {
			main := newTold()
			s := apiServer(t, true, func(w http.ResponseWriter, r *http.Request) {
				size, _ := strconv.Atoi(r.URL.Query().Get("size"))
				w.Header().Set("Content-Type", jsonType)
				_, _ = w.Write(repeated("{},", size)[:size])
			})
			l := NewSwappable("east.prod", "", MaxCachesBody)
			l.Meter, l.Timers = main.Meter, clocktesting.NewFakeClock(time.Time{})
			tg := targetTo(t, accessTo(t, s, "", "t"), nil)
			l.set(tg, tg.caches)
			client := &http.Client{Transport: l.ForTenants()}
			for i, a := range test {
				resp, err := client.Get(fmt.Sprintf("https://east.prod.invalid/api?size=%d", a.size))
				if err == nil {
					_ = resp.Body.Close()
				}
				if !errors.Is(err, a.want) {
					t.Errorf("answer %d: %v, want %v", i, err, a.want)
				}
			}
			if len(main.errs) > 0 || main.level > 0 {
				t.Errorf("the member has sent %d bytes, told %v", main.level, main.errs)
			}
		})
	}
}

func TestNoHeaderMakesTheHubWaitOrSpeaksToPeople(t *testing.T) {
	for says, want := range map[string]string{
		"": "", "0": "0", "1": "1", "2": "2", "3": "2", "3600": "2", "-1": "2", "Wed, 21 Oct 2099 07:28:00 GMT": "2", "99999999999999999999": "2",
	} {
		header, _, err := answer(t, nil, "", func(w http.ResponseWriter, _ *http.Request) {
			if says != "" {
				w.Header().Set("Retry-After", says)
			}
			w.Header().Set("Warning", `299 - "`+secretText+`"`)
			w.WriteHeader(http.StatusTooManyRequests)
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := header.Get("Retry-After"); got != want || header.Get("Warning") != "" {
			t.Errorf("Retry-After %q: %q, want %q; warning %q", says, got, want, header.Get("Warning"))
		}
	}
}

// hostile is what a member could say to be read by people.
var hostile = "I got " + secretText + " \x1b[31mred\u202egnorw\n" + strings.Repeat("x", 100_000)

func TestWhatAMemberSaysIsCleanedWhereverItSaysIt(t *testing.T) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   "Failure", Message: hostile, Reason: metav1.StatusReason(hostile), Code: 410,
		Details: &metav1.StatusDetails{Name: hostile, Kind: hostile, Group: hostile, RetryAfterSeconds: 3600,
			Causes: []metav1.StatusCause{{Message: hostile, Field: hostile, Type: metav1.CauseType(hostile)}}},
	}
	inJSON, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		query, contentType string
		code               int
		body               []byte
	}{
		"a Status in JSON":         {"", jsonType, 500, inJSON},
		"a Status in protobuf":     {"", protobufType, 500, enveloped(t, &status)},
		"a text":                   {"", "text/html", 502, []byte(hostile)},
		"no Status":                {"", jsonType, 409, []byte(`["` + secretText + `"]`)},
		"an event in JSON":         {"?watch=true", jsonType, 200, []byte(`{"type":"ERROR","object":` + string(inJSON) + "}\n")},
		"an event in protobuf":     {"?watch=true", protobufType, 200, event(t, "ERROR", &status)},
		"an event that is escaped": {"?watch=true", jsonType, 200, []byte(`{"type":"\u0045RROR","object":` + string(inJSON) + "}\n")},
		"a watch that is refused":  {"?watch=true", jsonType, 410, inJSON},
	} {
		t.Run(name, func(t *testing.T) {
			_, body, err := answer(t, nil, tc.query, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.contentType)
				w.WriteHeader(tc.code)
				_, _ = w.Write(tc.body)
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{secretText, "\x1b", "\u202e", "3600"} {
				if strings.Contains(string(body), bad) {
					t.Errorf("%q is in it", bad)
				}
			}
			if len(body) > 5*maxText || len(body) == 0 {
				t.Errorf("it has %d bytes", len(body))
			}
		})
	}
}

func TestAnErrorOfAConnectionIsCleanedAndStaysWhatItIs(t *testing.T) {
	err := cleanError(fmt.Errorf("%w: %s", errNoTarget, hostile), (&Target{Access: Access{token: secretText}}).scrub)
	if text := err.Error(); !errors.Is(err, errNoTarget) || strings.Contains(text, secretText) || strings.Contains(text, "\x1b") || len(text) > 2*maxText {
		t.Error(text)
	}
}

// An informer asks at once for a watch that ends. One that its server ends at once would be asked for all the time.
func TestWhatFailsAgainAndAgainIsAskedForAfterPausesThatGrow(t *testing.T) {
	for name, test := range map[string]struct {
		query  string
		status int
	}{
		"watches that end at once": {"?watch=true", 200},
		"watches that are refused": {"?watch=true", 410},
		"lists that are refused":   {"", 403},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked atomic.Int64
				r := &Retry{Answered: &wake.Signal{}, Clock: clock.RealClock{}, Next: roundTripper(func(*http.Request) (*http.Response, error) {
					asked.Add(1)
					return &http.Response{StatusCode: test.status, Body: http.NoBody}, nil
				})}
				client := &http.Client{Transport: r}
				for began := time.Now(); time.Since(began) < time.Minute && asked.Load() < 100; { // no time passes without a pause
					resp, err := client.Get("https://east.prod.invalid/api" + test.query)
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
				if n := asked.Load(); n < 8 || n > 24 {
					t.Errorf("asked %d times in a minute", n)
				}
				if r.Unwatched() < 50*time.Second {
					t.Errorf("the watch has not stood for %v", r.Unwatched())
				}
			})
		})
	}
}
