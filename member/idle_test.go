package member

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// serve starts a server that lists no Leases, and whose watches say nothing. The channels hold how many connections
// are open, whenever that changes, and a word for each watch.
func serve(t *testing.T) (cfg *rest.Config, open <-chan int, watches <-chan struct{}) {
	t.Helper()
	changes, watched := make(chan int, 100), make(chan struct{}, 100)
	states := make(chan int, 100)
	go func() {
		count := 0
		for d := range states {
			count += d
			changes <- count
		}
	}()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") != "" {
			w.(http.Flusher).Flush()
			watched <- struct{}{}
			<-r.Context().Done()
			return
		}
		_, _ = w.Write([]byte(`{"kind":"LeaseList","apiVersion":"coordination.k8s.io/v1","metadata":{"resourceVersion":"10"},"items":[]}`))
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			states <- 1
		case http.StateClosed:
			states <- -1
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return &rest.Config{Host: s.URL}, changes, watched
}

// await waits until so many connections are open.
func await(t *testing.T, open <-chan int, want int, when string) {
	t.Helper()
	limit := time.After(10 * time.Second)
	for last := -1; ; {
		select {
		case last = <-open:
			if last == want {
				return
			}
		case <-limit:
			t.Fatalf("%s: %d connections are open, want %d", when, last, want)
		}
	}
}

func TestTheConnectionsOfALineThatWasLeftAreClosedWhenItsWatchIsOver(t *testing.T) {
	cfg, open, _ := serve(t)
	m, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	w := m.watches[0]
	turn := func() {
		t.Helper()
		if err := w.turn(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	defer w.drop()
	turn()
	before := w.line
	if err := w.list(t.Context()); err != nil { // beside the watch, which takes one
		t.Fatal(err)
	}
	await(t, open, 2, "a watch, and a list")
	if err := m.link.leave(before); err != nil {
		t.Fatal(err)
	}
	turn()
	await(t, open, 1, "a watch on another line")
}

func TestNoConnectionIsLeftWhenStartReturns(t *testing.T) {
	cfg, open, watches := serve(t)
	m, err := New(cfg, Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	<-watches
	if _, err := m.watches[0].client.List(t.Context(), metav1.ListOptions{}); err != nil { // takes another
		t.Fatal(err)
	}
	await(t, open, 2, "a watch, and a list")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	await(t, open, 0, "stopped")
}
