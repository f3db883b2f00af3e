package transport

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/utils/clock"

	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/fleet/wake"
)

// eventOf is an event of a watch, with its length before it.
func eventOf(event, kind string, o marshaler) []byte {
	return framed(event, enclose("v1", kind, marshalled(o)))
}

// answer is what a Swappable hands on of an answer. path is that of the resource, with its query.
func answer(t *testing.T, l *Swappable, path string, handler http.HandlerFunc) (header http.Header, body []byte,
	err error) {
	t.Helper()
	s := apiServer(t, true, handler)
	l.Lead(targetTo(t, accessTo(t, s, "", secretText), nil))
	resp, err := (&http.Client{Transport: l.Caches()}).Get("https://east.prod.invalid" + path)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(resp.Body)
	return resp.Header, body, err
}

func newTestTransport() *Swappable { return NewSwappable("east.prod", Options{}) }

// says answers with a body of a type.
func says(contentType string, body []byte) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_, _ = w.Write(body) // the other side hangs up
	}
}

const watchType = protobufType + ";stream=watch"

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

func TestWhatNoAPIServerSendsIsNotDecoded(t *testing.T) {
	many := &corev1.NamespaceList{Items: make([]corev1.Namespace, maxList/listOverhead)}
	for name, tc := range map[string]struct {
		query, contentType string
		body               []byte
		want               error
	}{
		"a list in JSON":           {"", jsonType, []byte(`{"items":[{},{}]}`), errMalformed},
		"a watch in JSON":          {"?watch=true", jsonType, []byte("{}\n"), errMalformed},
		"a web site":               {"", "text/html", []byte("<html>"), errMalformed},
		"another protobuf":         {"", protobufType, []byte("abcdefgh"), errMalformed},
		"a field without a number": {"", protobufType, enclose("v1", "NamespaceList", []byte{0, 0}), errMalformed},
		"metadata as a number":     {"", protobufType, enclose("v1", "NamespaceList", []byte{8, 1}), errMalformed},
		"a list with too many":     {"", protobufType, enclose("v1", "NamespaceList", marshalled(many)), ErrTooLarge},
		"a list with one of 4 MB":  {"", protobufType, sized(2*maxObject, maxObject+1), ErrTooLarge},
		"an object of 8 MB":        {"/a", protobufType, sized(2 * maxObject), ErrTooLarge},
		"a list that ends early": {
			"", protobufType, enclose("v1", "NamespaceList", marshalled(many))[:1000], io.ErrUnexpectedEOF,
		},
		"an event of 2 GB": {"?watch=true", watchType, []byte{0x7f, 0xff, 0xff, 0xff, 0}, ErrTooLarge},
		"an event of another type": {
			"?watch=true", watchType, eventOf("PLANTED", "Namespace", namespace("a", nil)), errMalformed,
		},
		"an event without an object": {"?watch=true", watchType, framed("ADDED", nil), errMalformed},
		"an event with a long type": {
			"?watch=true", watchType, eventOf(strings.Repeat("A", 65), "Namespace", namespace("a", nil)), errMalformed,
		},
		"an event that ends early": {
			"?watch=true", watchType, eventOf("ADDED", "Namespace", namespace("a", nil))[:30], io.ErrUnexpectedEOF,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, body, err := answer(t, newTestTransport(), Namespaces+tc.query, says(tc.contentType, tc.body))
			if !errors.Is(err, tc.want) || len(body) > 0 {
				t.Errorf("%v, and %d bytes", err, len(body))
			}
		})
	}
}

// sized begins with messages of these lengths, each in the one before it.
func sized(lengths ...uint64) []byte {
	body := bytes.Clone(protobufMagic)
	for _, n := range lengths {
		body = protowire.AppendVarint(append(body, 2<<3|2), n)
	}
	return body
}

func TestHonestAnswersSayTheSameAsBefore(t *testing.T) {
	list := &corev1.NamespaceList{
		ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: "more"},
		Items:    []corev1.Namespace{*namespace("a", nil), *namespace("b", map[string]string{"x": "y"})},
	}
	inProtobuf := enclose("v1", "NamespaceList", marshalled(list))
	_, body, err := answer(t, newTestTransport(), Namespaces, says(protobufType, inProtobuf))
	if err != nil {
		t.Fatal(err)
	}
	got, ok := decoded(t, body).(*corev1.NamespaceList)
	if !ok || got.ResourceVersion != "7" || got.Continue != "more" || len(got.Items) != 2 ||
		got.Items[1].Labels["x"] != "y" {
		t.Errorf("%+v", got)
	}
	bookmark := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: "9", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	events := slices.Concat(eventOf("ADDED", "Namespace", namespace("a", nil)),
		eventOf("BOOKMARK", "Namespace", bookmark), eventOf("DELETED", "Namespace", namespace("a", nil)))
	_, body, err = answer(t, newTestTransport(), Namespaces+"?watch=true", says(watchType, events))
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for len(body) > 0 {
		length := binary.BigEndian.Uint32(body)
		var e metav1.WatchEvent
		musttest.Do(t, e.Unmarshal(body[prefix:prefix+length]))
		ns, ok := decoded(t, e.Object.Raw).(*corev1.Namespace)
		if !ok {
			t.Fatalf("%s shows %q", e.Type, e.Object.Raw)
		}
		ends := ns.Annotations[metav1.InitialEventsAnnotationKey]
		shown = append(shown, fmt.Sprint(e.Type, " ", ns.Name, ns.ResourceVersion, ends))
		body = body[prefix+length:]
	}
	if want := []string{"ADDED a", "BOOKMARK 9true", "DELETED a"}; !slices.Equal(shown, want) {
		t.Errorf("shown are %q, want %q", shown, want)
	}
}

// What the envelope says decides nothing: a member could have anything decoded.
func TestAnAnswerIsOfTheKindThatWasAskedFor(t *testing.T) {
	claimed := enclose("batch/v1", "CronJob", marshalled(namespace("a", nil)))
	_, body, err := answer(t, newTestTransport(), Namespaces+"/a", says(protobufType, claimed))
	if err != nil {
		t.Fatal(err)
	}
	if got, ok := decoded(t, body).(*corev1.Namespace); !ok || got.Name != "a" {
		t.Errorf("%+v", got)
	}
}

// The caches go on with what they hold, and the hub says so.
func TestCachesHoldNoMoreThanFits(t *testing.T) {
	large := map[string]string{"a": strings.Repeat("a", 300), "b": strings.Repeat("b", 300)}
	var reported []error
	h := NewHeld("Namespaces", func(err error) { reported = append(reported, err) })
	h.begin()
	object := func(n int) []byte { return marshalled(namespace(fmt.Sprintf("%0980d", n), nil)) }
	fits := maxHeld / (len(object(0)) + heldOverhead)
	for n := range fits + 10 {
		if got := h.admit(object(n)); got != (n < fits) {
			t.Fatalf("object %d: %v", n, got)
		}
	}
	if len(reported) != 1 || !strings.Contains(reported[0].Error(), "Namespaces") {
		t.Errorf("reported %v", reported)
	}
	l := newTestTransport()
	l.Held = map[string]*Held{HeldBy(Namespaces, ""): h}
	events := slices.Concat(eventOf("ADDED", "Namespace", namespace("new", large)),
		eventOf("MODIFIED", "Namespace", namespace("new", large)), eventOf("DELETED", "Namespace", namespace("new", nil)))
	_, body, err := answer(t, l, Namespaces+"?watch=true", says(watchType, events))
	if err != nil || len(body) > 0 {
		t.Errorf("%v, and %d bytes of what does not fit", err, len(body))
	}
	h.remove(object(0))
	h.admit(marshalled(namespace("grown", nil)))
	grown := namespace("grown", map[string]string{})
	for _, shown := range []string{"MODIFIED", ""} { // the reserve is used up by the second time, and what is held stays
		for range 10 {
			grown.Labels[fmt.Sprint(len(grown.Labels))] = strings.Repeat("a", 300)
		}
		_, body, err = answer(t, l, Namespaces+"?watch=true", says(watchType, eventOf("MODIFIED", "Namespace", grown)))
		if err != nil || !bytes.Contains(body, []byte(shown)) || bytes.Contains(body, []byte("grown")) != (shown != "") {
			t.Errorf("%v: a held object that has grown is to be shown as %q: %.100q", err, shown, body)
		}
		for n := 1; h.admit(append(object(n), make([]byte, 2<<10)...)); n++ {
		}
	}
	for n := 1; n < fits; n += 2 {
		if held, _ := h.remove(object(n)); !held {
			t.Fatalf("object %d was not held", n)
		}
	}
	h.admit(marshalled(namespace("old", nil)))
	deleted := eventOf("DELETED", "Namespace", namespace("old", nil))
	_, body, err = answer(t, l, Namespaces+"?watch=true", says(watchType, deleted))
	if err != nil || !bytes.Contains(body, []byte("Expired")) {
		t.Errorf("%v: with room again, nothing is listed again: %q", err, body)
	}
	list := &corev1.NamespaceList{Items: []corev1.Namespace{*namespace("new", large)}}
	_, body, err = answer(t, l, Namespaces, says(protobufType, enclose("v1", "NamespaceList", marshalled(list))))
	if err != nil || len(decoded(t, body).(*corev1.NamespaceList).Items) != 1 || len(reported) != 2 || reported[1] != nil {
		t.Errorf("%v: a new list is not shown; reported %v", err, reported)
	}
}

func TestAnObjectThatIsTooLargeIsReducedToItsName(t *testing.T) {
	many := map[string]string{}
	for n := range 200 {
		many[fmt.Sprint("label-", n)] = "x"
	}
	large := namespace("large", many)
	list := &corev1.NamespaceList{Items: []corev1.Namespace{*namespace("small", nil), *large}}
	for name, tc := range map[string]struct {
		path, contentType string
		body              []byte
	}{
		"in a list":   {Namespaces, protobufType, enclose("v1", "NamespaceList", marshalled(list))},
		"by itself":   {Namespaces + "/large", protobufType, enclose("v1", "Namespace", marshalled(large))},
		"in an event": {Namespaces + "?watch=true", watchType, eventOf("ADDED", "Namespace", large)},
	} {
		t.Run(name, func(t *testing.T) {
			_, body, err := answer(t, newTestTransport(), tc.path, says(tc.contentType, tc.body))
			if err != nil || !bytes.Contains(body, []byte("large")) || bytes.Contains(body, []byte("label-")) {
				t.Errorf("%v: %q", err, body)
			}
		})
	}
}

// Whoever floods the hub is read slowly.
func TestAFloodIsReadAtAPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := eventOf("MODIFIED", "Namespace", namespace("shop", nil))
		e := &events{receipt: receipt{question: ask(Namespaces)}, source: http.NoBody}
		e.paced = paced{t.Context(), endless{one}, newPace()}
		e.from = bufio.NewReader(e.paced)
		began, n := time.Now(), 0
		for time.Since(began) < 10*time.Second {
			_ = musttest.Get(io.CopyN(io.Discard, e, int64(len(one))))(t)
			n++
		}
		if most := (paceBurst + 10*paceRate) / (objectCost + len(one)); n > most || n < most*3/4 {
			t.Errorf("%d events in 10 s, at most %d", n, most)
		}
	})
}

// endless repeats a text.
type endless struct{ text []byte }

func (r endless) Read(p []byte) (int, error) { return copy(p, r.text), nil }

func TestNoHeaderMakesTheHubWaitOrSpeaksToPeople(t *testing.T) {
	for says, want := range map[string]string{
		"": "", "0": "0", "1": "1", "2": "2", "3": "2", "3600": "2", "-1": "2",
		"Wed, 21 Oct 2099 07:28:00 GMT": "2", "99999999999999999999": "2",
	} {
		header, _, err := answer(t, newTestTransport(), Namespaces, func(w http.ResponseWriter, _ *http.Request) {
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
	inJSON := musttest.Get(json.Marshal(status))(t)
	for name, tc := range map[string]struct {
		query, contentType string
		code               int
		body               []byte
	}{
		"a Status in JSON":        {"", jsonType, 500, inJSON},
		"a Status in protobuf":    {"", protobufType, 500, enclose("v1", "Status", marshalled(&status))},
		"a text":                  {"", "text/html", 502, []byte(hostile)},
		"no Status":               {"", jsonType, 409, []byte(`["` + secretText + `"]`)},
		"an event":                {"?watch=true", protobufType, 200, eventOf("ERROR", "Status", &status)},
		"a watch that is refused": {"?watch=true", jsonType, 410, inJSON},
	} {
		t.Run(name, func(t *testing.T) {
			_, body, err := answer(t, newTestTransport(), Namespaces+tc.query, func(w http.ResponseWriter, _ *http.Request) {
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
	err := cleanError(fmt.Errorf("%w: %s", errNoTarget, hostile), NewTarget(Access{token: secretText}, nil).scrub)
	text := err.Error()
	if !errors.Is(err, errNoTarget) || strings.Contains(text, secretText) || strings.Contains(text, "\x1b") ||
		len(text) > 2*maxText {
		t.Error(text)
	}
}

// An informer asks at once for a watch that ends. One that its server ends at once would be asked for all the time.
func TestWhatFailsAgainAndAgainIsAskedForAfterPausesThatGrow(t *testing.T) {
	for name, test := range map[string]struct {
		query   string
		status  int // 0: no answer
		relists bool
	}{
		"watches that end at once":      {"?watch=true", 200, true},
		"watches that are refused":      {"?watch=true", 410, true},
		"watches that are not answered": {"?watch=true", 0, true},
		"lists that are refused":        {"", 403, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var asked, relists atomic.Int64
				var answered wake.Signal
				r := NewRetry(roundTripper(func(*http.Request) (*http.Response, error) {
					asked.Add(1)
					if test.status == 0 {
						answered.Fire() // another request is answered
						return nil, os.ErrDeadlineExceeded
					}
					return &http.Response{StatusCode: test.status, Body: http.NoBody}, nil
				}), &answered, clock.RealClock{})
				client := &http.Client{Transport: r, Timeout: time.Minute}
				for began := time.Now(); time.Since(began) < time.Minute && asked.Load() < 100; { // no time passes without a pause
					resp, err := client.Get("https://east.prod.invalid" + Namespaces + test.query)
					if errors.Is(err, errRelist) && !utilnet.IsTimeout(err) {
						relists.Add(1)
						continue
					}
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.ReadAll(resp.Body)
					_ = resp.Body.Close()
				}
				n, again := asked.Load(), relists.Load()
				if n < 8 || n > 24 && test.status > 0 {
					t.Errorf("asked %d times in a minute", n)
				}
				if test.relists != (again > 0) || test.relists && n-again > 2 {
					t.Errorf("asked %d times, and listed again %d times", n, again)
				}
			})
		})
	}
}
