package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A member can send all but the last byte of a list, and of a list of registrations, and keep what they take.
func TestAMemberThatHoldsBackItsListsLeavesRoomForThoseOfOthers(t *testing.T) {
	leases := func(n int, of coordinationv1.Lease) []byte {
		list := &coordinationv1.LeaseList{Items: slices.Repeat([]coordinationv1.Lease{of}, n)}
		return enclose("coordination.k8s.io/v1", "LeaseList", marshalled(list))
	}
	large := coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		"large": string(make([]byte, maxKept-listOverhead)),
	}}}
	most := maxList / (len(marshalled(&large)) + listOverhead)
	held, finish := leases(most, large), make(chan struct{})
	var all atomic.Int64
	hostile := NewSwappable("east.prod", Options{Room: NewRoom(&all)})
	hostile.Lead(targetTo(t, accessTo(t, apiServer(t, true, func(w http.ResponseWriter, _ *http.Request) {
		says(protobufType, held[:len(held)-1])(w, nil)
		w.(http.Flusher).Flush()
		<-finish
	}), "", "t"), nil))
	var refused atomic.Bool
	var group sync.WaitGroup
	for _, query := range []string{"", "?labelSelector=" + OfReaders} {
		group.Go(func() {
			r, err := (&http.Client{Transport: hostile.Caches()}).Get("https://east.prod.invalid" + Leases + query)
			if err == nil {
				_ = r.Body.Close()
			}
			if errors.Is(err, errNoRoom) {
				refused.Store(true)
			}
		})
	}
	defer group.Wait()
	defer close(finish)
	late := time.Now().Add(20 * time.Second)
	for !refused.Load() && all.Load() < 2*(maxList-2*smallAnswer) {
		if time.Now().After(late) {
			t.Fatal("the lists are not read as far as they are sent")
		}
		runtime.Gosched()
	}
	honest := NewSwappable("east.prod", Options{Room: NewRoom(&all)})
	own := says(protobufType, leases(500, coordinationv1.Lease{}))
	if _, _, err := answer(t, honest, Leases, own); err != nil {
		t.Errorf("500 Leases of another member: %v", err)
	}
}

// What several members send at once has one bound. What is small needs no room: no renewal waits.
func TestAnEventOrASingleObjectOrAListThatIsLargeTakesRoom(t *testing.T) {
	large := namespace("shop", nil)
	large.Annotations = map[string]string{"large": string(make([]byte, smallAnswer))}
	event := func(o marshaler) http.HandlerFunc { return says(watchType, eventOf("ADDED", "Namespace", o)) }
	object := func(o marshaler) http.HandlerFunc {
		return says(protobufType, enclose("v1", "Namespace", marshalled(o)))
	}
	list := func(n int) http.HandlerFunc {
		l := &corev1.NamespaceList{Items: make([]corev1.Namespace, n)}
		return says(protobufType, enclose("v1", "NamespaceList", marshalled(l)))
	}
	for name, tc := range map[string]struct {
		path string
		says http.HandlerFunc
		want error // without room
	}{
		"a small event":  {Namespaces + "?watch=true", event(namespace("shop", nil)), nil},
		"a large event":  {Namespaces + "?watch=true", event(large), errNoRoom},
		"a small object": {Namespaces + "/shop", object(namespace("shop", nil)), nil},
		"a large object": {Namespaces + "/shop", object(large), errNoRoom},
		"a small list":   {Namespaces, list(0), nil},
		"a large list":   {Namespaces, list(1_000), errNoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			var all atomic.Int64
			east := NewSwappable("east.prod", Options{Room: NewRoom(&all)})
			for of, want := range map[int64]error{0: nil, maxRead: tc.want} { // what others take
				all.Store(of)
				_, _, err := answer(t, east, tc.path, tc.says)
				if left := all.Load(); !errors.Is(err, want) || left != of {
					t.Errorf("%v, want %v; %d bytes of room are taken afterwards, and were %d before", err, want, left, of)
				}
			}
		})
	}
}

func TestALargeEventThatDoesNotComeEndsItsWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body, member := io.Pipe()
		e := &events{receipt: receipt{question: ask(Namespaces), ctx: t.Context()}, source: body, from: bufio.NewReader(body)}
		go func() { _, _ = member.Write(binary.BigEndian.AppendUint32(nil, smallAnswer+1)) }()
		began := time.Now()
		if _, err := io.ReadAll(e); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("it ends with %v", err)
		}
		if took := time.Since(began); took != eventTimeout {
			t.Errorf("it ends after %v, want %v", took, eventTimeout)
		}
	})
}

func TestWhatIsUnreadOfAHundredAnswersIsBounded(t *testing.T) {
	const answers, part = 100, 8 << 10
	var sent [answers]atomic.Int64
	s := apiServer(t, true, func(w http.ResponseWriter, r *http.Request) {
		i, err := strconv.Atoi(r.URL.Path[1:])
		for err == nil {
			w.(http.Flusher).Flush()
			if _, err = w.Write(make([]byte, part)); err == nil {
				sent[i].Add(part)
			}
		}
	})
	unread := &http.Client{Transport: targetTo(t, accessTo(t, s, "", "t"), nil).renewals.transport}
	for i := range answers {
		resp, err := unread.Get(s.URL + "/" + strconv.Itoa(i))
		if err != nil || resp.ProtoMajor != 2 {
			t.Fatal(err, "or it is not HTTP/2")
		}
		defer func() { _ = resp.Body.Close() }()
	}
	late := time.Now().Add(20 * time.Second)
	for i := range answers {
		for sent[i].Load() < maxUnread-2*part {
			if time.Now().After(late) {
				t.Fatalf("%d KiB have come of an answer: less than may", sent[i].Load()>>10)
			}
			runtime.Gosched()
		}
	}
	for i := range answers {
		if n := sent[i].Load(); n > maxUnread+2*part {
			t.Fatalf("%d KiB have come of an answer that is not read", n>>10)
		}
	}
}
