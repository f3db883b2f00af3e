package fleet

import (
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/health"
	"github.com/leasecast/leasecast/hub/skew"
)

// dated answers with the Date that a clock shows which is that far ahead of the hub's.
func dated(c lease.Clock, ahead *time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Date", c.Now().Wall.Add(*ahead).UTC().Format(http.TimeFormat))
		answerWith(w, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "fine"}})
	}
}

// ask asks for a Namespace, and waits for the answer.
func ask(t *testing.T, via http.RoundTripper) {
	t.Helper()
	resp, err := (&http.Client{Transport: via}).Get("https://" + testKey.Identity() + ".invalid/api/v1/namespaces/a")
	musttest.Do(t, err)
	_ = resp.Body.Close()
}

// Every request on either connection measures.
func TestAnswersMeasureTheClock(t *testing.T) {
	m, clock := newTestMember(t)
	ahead := 10 * time.Second
	s := apiServer(t, dated(clock, &ahead))
	c := connectionOf(t, m)
	c.use(targetTo(t, accessTo(t, s), nil))
	m.setProbing([]Probing{
		{Clusters: labels.Everything(), Interval: time.Second, Timeout: time.Second, Skew: time.Second},
	})
	offset := func() (skew.Interval, bool) { return m.skew.Offset(clock.Now()) }
	if i, ok := offset(); ok {
		t.Fatalf("%+v before any answer", i)
	}
	ask(t, m.requests.Caches())
	if i, ok := offset(); !ok || i.Lo > ahead || i.Hi < ahead || i.Hi-i.Lo > 1100*time.Millisecond {
		t.Errorf("after an answer to the caches: %+v, %v", i, ok)
	}
	announced(m)
	if got := (Member{live: m}).Clock(clock.Now(), time.Second).State; got == skew.Beyond {
		t.Errorf("one answer is not a proof: %v", got)
	}
	clock.Advance(300 * time.Millisecond)
	ask(t, m.requests.Renewals())
	if got := (Member{live: m}).Clock(clock.Now(), time.Second); got.State != skew.Beyond {
		t.Errorf("after an answer on each connection: %+v", got)
	}
	if v, eps := (Member{live: m}).Skewed(); v.State != skew.Beyond || eps != time.Second {
		t.Errorf("worst: %+v, %v", v, eps)
	}
	if n := announced(m); n != 1 {
		t.Errorf("subscribers are notified %d times of the change of the verdict", n)
	}
	clock.Advance(300 * time.Millisecond)
	ask(t, m.requests.Renewals())
	if n := announced(m); n != 0 {
		t.Errorf("subscribers are notified %d times, but nothing has changed", n)
	}
	c.reset()
	if i, ok := offset(); ok {
		t.Errorf("%+v of a cluster that is not there any more", i)
	}
}

// Reads are a little early, at varying phases of the second, and never late.
func TestProbesMeasureTheClockClosely(t *testing.T) {
	const interval = 5 * time.Second
	m, c := newTestMember(t)
	p := newProber(m)
	ahead := 300 * time.Millisecond
	sent := 0
	m.state.tracks = answered(c, 0, 0)
	for range 300 * 100 { // 5 minutes in steps of 10 ms
		if p.isDue(m.get(), health.Read, c.Now()) {
			p.noteSent(health.Read, interval, c.Now())
			sent++
			m.requestSent()(http.StatusOK, http.Header{"Date": {c.Now().Wall.Add(ahead).UTC().Format(http.TimeFormat)}})
		}
		c.Advance(10 * time.Millisecond)
	}
	if sent < 60 || sent > 64 {
		t.Errorf("%d reads in 300 s, want one each 4.75 to 5 s", sent)
	}
	if i, _ := m.skew.Offset(c.Now()); i.Lo > ahead || i.Hi < ahead || i.Hi-i.Lo > 600*time.Millisecond {
		t.Errorf("measured %+v after %d reads, want %v", i, sent, ahead)
	}
}

// A refusal shows that a cluster is not off. What may come from a gateway shows nothing.
func TestWhichAnswersShowThatAMemberIsNotOff(t *testing.T) {
	for status, counts := range map[int]bool{
		http.StatusOK: true, http.StatusForbidden: true, http.StatusTooManyRequests: true,
		http.StatusInternalServerError: false, http.StatusBadGateway: false,
	} {
		m, clock := newTestMember(t)
		answer := m.requestSent()
		clock.Advance(time.Second)
		answer(status, http.Header{})
		if got := (Member{live: m}).LastAnswer(); (got == clock.Now()) != counts {
			t.Errorf("after an answer %d: %+v", status, got)
		}
	}
}
