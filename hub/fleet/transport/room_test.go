package transport

import (
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
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
