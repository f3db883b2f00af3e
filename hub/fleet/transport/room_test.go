package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What several members send at once has one bound. What is small needs no room: no renewal waits.
func TestLargeListsOfAllMembersShareOneRoom(t *testing.T) {
	room := NewRoom()
	east := NewSwappable("east.prod", Options{Room: room})
	large := func(w http.ResponseWriter, r *http.Request) {
		list := &corev1.NamespaceList{Items: make([]corev1.Namespace, 1_000)}
		says(protobufType, enclose("v1", "NamespaceList", marshalled(list)))(w, r)
	}
	small := says(protobufType, enclose("v1", "NamespaceList", marshalled(&corev1.NamespaceList{})))
	if !room.TryAcquire(maxRead) { // others take all of it
		t.Fatal("there is less room")
	}
	if _, _, err := answer(t, east, Namespaces, large); !errors.Is(err, errNoRoom) {
		t.Errorf("a large list without room: %v, want %v", err, errNoRoom)
	}
	if _, _, err := answer(t, east, Namespaces, small); err != nil {
		t.Errorf("a small answer without room: %v", err)
	}
	room.Release(maxRead)
	if _, _, err := answer(t, east, Namespaces, large); err != nil {
		t.Errorf("a large list with room: %v", err)
	}
	if !room.TryAcquire(maxRead) {
		t.Error("a list that is closed still takes room")
	}
}

// A member that announces a large event and sends nothing takes no room from others.
func TestAnEventTakesRoomForWhatIsKept(t *testing.T) {
	skipped := namespace("shop", nil)
	skipped.Annotations = map[string]string{"large": string(make([]byte, 1<<20))}
	kept := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: "reader", Annotations: map[string]string{"large": string(make([]byte, annotation))},
	}}
	for name, tc := range map[string]struct {
		path  string
		event []byte
		want  error
	}{
		"nothing large is kept":      {Namespaces, eventOf("ADDED", "Namespace", skipped), nil},
		"a large annotation is kept": {Leases, eventOf("ADDED", "Lease", kept), errNoRoom},
	} {
		t.Run(name, func(t *testing.T) {
			room := NewRoom()
			if !room.TryAcquire(maxRead) { // others take all of it
				t.Fatal("there is less room")
			}
			east := NewSwappable("east.prod", Options{Room: room})
			_, _, err := answer(t, east, tc.path+"?watch=true", says(watchType, tc.event))
			if !errors.Is(err, tc.want) {
				t.Errorf("%v, want %v", err, tc.want)
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
