package fleet

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/health"
)

func TestWhoIsWrittenTo(t *testing.T) {
	fine := func() state {
		return state{spec: spec{pin: "u"}, target: &transport.Target{UID: "u"}, cluster: struct{ cluster.Cluster }{}}
	}
	for name, tc := range map[string]struct {
		change func(*state)
		right  bool
		want   bool
	}{
		"a pinned, connected member":       {func(*state) {}, true, true},
		"nobody, without the right":        {func(*state) {}, false, false},
		"not one that is not pinned yet":   {func(s *state) { s.spec.pin = "" }, true, false},
		"not one pinned to another":        {func(s *state) { s.spec.pin = "v" }, true, false},
		"not one that could not be listed": {func(s *state) { s.cluster = nil }, true, false},
		"not one that has moved":           {func(s *state) { s.spec.moved = true }, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newTestMember(t)
			m.p.options.MayWrite = func() bool { return tc.right }
			s := fine()
			tc.change(&s)
			if got := (&probes{member: m}).mayWrite(s, c.Now()); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestProbesAreSentWhenDue(t *testing.T) {
	const interval = 5 * time.Second
	for name, tc := range map[string]struct {
		tracks      func(c *clocktest.Hand) health.Tracks
		asked       time.Duration // ago
		read, write bool
	}{
		"nothing is known": {func(*clocktest.Hand) health.Tracks { return firstTracks() }, 0, true, true},
		"all was answered just now": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, time.Second, time.Second)
		}, time.Second, false, false},
		"all was answered an interval ago": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, interval, interval)
		}, interval, true, true},
		"a renewal spares the write, a read spares nothing": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, time.Second, time.Second)
		}, interval, true, false},
		"what failed is tried again": {func(c *clocktest.Hand) health.Tracks {
			return answered(c, time.Second, time.Second).
				Observe(health.Observation{Kind: health.Read, At: c.Now(), Reason: reason.Unreachable}).
				Observe(health.Observation{Kind: health.Write, At: c.Now(), Reason: reason.Unreachable})
		}, time.Second, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			m, c := newTestMember(t)
			p := &prober{probes: &probes{member: m}, pace: pace{interval, defaultTimeout}, lastRead: c.Now()}
			c.Advance(tc.asked)
			s := state{tracks: tc.tracks(c)}
			if got := p.readDue(s, c.Now()); got != tc.read {
				t.Errorf("read: got %v, want %v", got, tc.read)
			}
			if got := p.writeDue(s, c.Now()); got != tc.write {
				t.Errorf("write: got %v, want %v", got, tc.write)
			}
		})
	}
}

// Answered is a member whose last read and write were sent that long ago.
func answered(c *clocktest.Hand, read, write time.Duration) health.Tracks {
	tracks := firstTracks()
	for kind, ago := range map[health.Kind]time.Duration{health.Read: read, health.Write: write} {
		at := c.Now()
		at.Boot -= ago
		tracks = tracks.Observe(health.Observation{Kind: kind, At: at, OK: true})
	}
	return tracks
}

func TestSwapEndsWatchesAndLetsRenewalsFinish(t *testing.T) {
	type arrival struct{ path, token string }
	arrived := make(chan arrival, 10)
	finish := make(chan struct{})
	s := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
		w.(http.Flusher).Flush()
		arrived <- arrival{r.URL.Path, r.Header.Get("Authorization")}
		select {
		case <-finish:
			replyNamespace(w, "renewed")
		case <-r.Context().Done():
		}
	})
	m, _ := newTestMember(t)
	c := &connection{member: m, lifetime: t.Context()}
	t.Cleanup(c.close)
	first := targetTo(t, accessTo(t, s, "", "the-old-identity"), nil)
	c.use(t.Context(), first)
	watch, begun := begin(m.informer, "/watch?watch=true")
	<-begun
	renewal := get(t, &http.Client{Transport: m.renewals}, "/renewal")
	for range 2 {
		<-arrived
	}

	changed := accessTo(t, s, "example.com", "the-new-identity")
	c.use(t.Context(), targetTo(t, changed, first))
	select {
	case got := <-watch:
		if got != "" {
			t.Errorf("the watch ended with %q, want a clean end", got)
		}
	case <-time.After(rotationPatience):
		t.Error("the watch goes on as the old identity")
	}
	get(t, &http.Client{Transport: m.renewals}, "/renewal")
	if got := <-arrived; got.token != "Bearer the-new-identity" {
		t.Errorf("the next renewal came with %q", got.token)
	}
	close(finish)
	select {
	case got := <-renewal:
		if !strings.Contains(got, "renewed") {
			t.Errorf("the renewal under way ended with %q", got)
		}
	case <-time.After(rotationPatience):
		t.Error("the renewal under way has no end")
	}
}

// rotationPatience bounds waits for what comes at once, or never: nothing here probes.
const rotationPatience = 10 * time.Second

func TestInformersCutOffBySwapGoOnAtOnce(t *testing.T) {
	arrived := make(chan struct{}, 10)
	s := plainServer(t, func(w http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		if r.Header.Get("Authorization") != "Bearer the-new-identity" {
			<-r.Context().Done() // without a word
			return
		}
		replyNamespace(w, "listed")
	})
	m, _ := newTestMember(t)
	c := &connection{member: m, lifetime: t.Context()}
	t.Cleanup(c.close)
	first := targetTo(t, accessTo(t, s, "", "the-old-identity"), nil)
	c.use(t.Context(), first)
	over := make(chan string, 1)
	go func() { over <- <-get(t, m.informer, "/list") }()
	<-arrived

	changed := accessTo(t, s, "example.com", "the-new-identity")
	c.use(t.Context(), targetTo(t, changed, first))
	select {
	case got := <-over:
		if !strings.Contains(got, "listed") {
			t.Error(got)
		}
	case <-time.After(rotationPatience):
		t.Error("it waits for a probe")
	}
}

// get sends a request. It returns where the body of the answer, or the error, will come.
func get(t *testing.T, client *http.Client, path string) (over <-chan string) {
	t.Helper()
	over, _ = begin(client, path)
	return over
}

// begin is get. It also returns what is closed when the header of the answer has come.
func begin(client *http.Client, path string) (over <-chan string, header <-chan struct{}) {
	result, begun := make(chan string, 1), make(chan struct{})
	go func() {
		resp, err := client.Get(fmt.Sprintf("https://%s.invalid/api/v1/namespaces%s", testKey.Identity(), path))
		close(begun)
		if err != nil {
			result <- err.Error()
			return
		}
		defer func() { _ = resp.Body.Close() }()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			result <- err.Error()
			return
		}
		result <- string(body)
	}()
	return result, begun
}
