package controller

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// registry is as much of an API server as a watch of registrations sees.
type registry struct {
	cluster.Cluster

	mu      sync.Mutex
	lists   int
	version int
	items   []coordinationv1.Lease
	watch   *io.PipeWriter // the one that is open
}

func (r *registry) GetConfig() *rest.Config { return &rest.Config{Host: "http://east"} }

func (r *registry) GetHTTPClient() *http.Client { return &http.Client{Transport: r} }

// RoundTrip answers lists at once, and keeps one watch open.
func (r *registry) RoundTrip(req *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: req}, nil
	}
	switch query := req.URL.Query(); {
	case query.Get("sendInitialEvents") != "":
		return answer(http.StatusUnprocessableEntity, io.NopCloser(bytes.NewReader(encoded(failure(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)))))
	case query.Get("watch") == "":
		r.lists++
		return answer(http.StatusOK, io.NopCloser(bytes.NewReader(encoded(coordinationv1.LeaseList{
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "LeaseList"},
			ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(r.version)}, Items: r.items,
		}))))
	}
	body, w := io.Pipe()
	r.watch = w
	return answer(http.StatusOK, body)
}

// tell sends an event to the open watch.
func (r *registry) tell(kind string, object any) {
	r.mu.Lock()
	w := r.watch
	r.mu.Unlock()
	_, _ = w.Write(encoded(map[string]any{"type": kind, "object": object}))
	synctest.Wait()
}

func encoded(object any) []byte {
	raw, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return append(raw, '\n')
}

func failure(code int32, why metav1.StatusReason) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: why, Code: code,
	}
}

// A reader whose registration a new list merely lacks may still act: its end may have been a restore of the member's etcd.
// One whose end is shown has stopped.
func TestWhatANewListOfReadersLacksIsNoEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t)
		s.decided(s.publisher(), s.leading(reason.Elected), true)
		p := s.publisher()
		s.clock.pass(20 * time.Second) // from then on readers are believed
		copied := s.east.leases[shopCopy.Name]
		c, _ := wire.Read(copied)
		c.RenewTime = s.clock.now.Wall
		if err := wire.Write(testKey, c, copied); err != nil {
			t.Fatal(err)
		}
		s.east.put(copied)
		p.ObserveGone(shopCopy)
		reader := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "reader"}}
		if err := wire.WriteRegistration(lease.Registration{
			Identity: "reader", Account: "reader", Confirmed: s.clock.now.Wall, Duration: 3 * time.Second,
		}, reader); err != nil {
			t.Fatal(err)
		}
		reader.TypeMeta = metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"}
		reader = s.east.put(reader)
		r := s.leading(reason.PriorityChanged)
		r.State, r.Epoch, r.Revoked, r.AcquireTime = election.Draining, 21, 20, c.AcquireTime
		s.decided(p, r, false)
		releases := func(want bool, when string) {
			t.Helper()
			if released := p.SyncStatus(shopCopy).Released == 20; released != want {
				t.Fatalf("%s: all readers have released the term: %v, want %v", when, released, want)
			}
		}
		releases(false, "the one reader has not said so")

		shown := &registry{version: s.east.version, items: []coordinationv1.Lease{*reader}}
		stop := watchReaders(t.Context(), engagement{cluster: shown}, p, logr.Discard())
		pass := func() { <-time.After(10 * time.Second); synctest.Wait() }
		pass()
		if shown.watch == nil {
			t.Fatal("readers are not watched")
		}
		shown.mu.Lock()
		shown.items, shown.version = nil, shown.version+1
		lists := shown.lists
		shown.mu.Unlock()
		shown.tell("ERROR", failure(http.StatusGone, metav1.StatusReasonExpired))
		pass()
		if shown.lists == lists {
			t.Fatal("readers were not listed anew")
		}
		releases(false, "a new list lacks it")
		shown.tell("ADDED", reader)
		releases(false, "it is shown again")
		shown.tell("DELETED", reader)
		releases(true, "its end is shown")
		_ = shown.watch.Close()
		stop()
	})
}
