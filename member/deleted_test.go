package member_test

import (
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/member"
)

const leavesDeleted = `"msg"="Leaves a registration that was deleted to the hub"`

// What somebody else has made of a registration is not this Member's to take away.
func TestOnlyADeletedRegistrationOfItsOwnIsFreedAtTheEnd(t *testing.T) {
	do := func(r *reader, method string, l *coordinationv1.Lease) {
		r.do(&write{method: method, namespace: home, name: l.Name, sent: l.DeepCopy()})
	}
	for name, tc := range map[string]struct {
		happens func(r *reader, l *coordinationv1.Lease)
		ends    fate
		left    int // with a finalizer
		told    []string
	}{
		"it is deleted": {happens: func(r *reader, l *coordinationv1.Lease) { do(r, http.MethodDelete, l) }},
		"it is edited": {
			happens: func(r *reader, l *coordinationv1.Lease) {
				l.Annotations["reader.leasecast.dev/account"] = "erin"
				do(r, http.MethodPut, l)
			},
			left: 1,
		},
		"it is gone": {happens: func(r *reader, l *coordinationv1.Lease) { r.remove(home, l.Name) }},
		"another is deleted that has its name": {
			happens: func(r *reader, l *coordinationv1.Lease) {
				r.remove(home, l.Name)
				l.ResourceVersion, l.UID = "", ""
				do(r, http.MethodPost, l)
				do(r, http.MethodDelete, l)
			},
			left: 1,
		},
		"it is deleted, and cannot be looked at": {
			happens: func(r *reader, l *coordinationv1.Lease) { do(r, http.MethodDelete, l) },
			ends:    unseen,
			left:    1,
			told:    []string{leavesDeleted},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &logged{}
				r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
				stop := r.start(t)
				synctest.Wait()
				first := r.registered()[0].DeepCopy()
				tc.happens(r, first.DeepCopy())
				pass(2 * confirm)
				r.meet(tc.ends)
				stop()
				left := slices.DeleteFunc(r.registered(), func(l *coordinationv1.Lease) bool { return len(l.Finalizers) == 0 })
				if tc.ends == unseen { // the new registration may have to be looked at, too
					left = slices.DeleteFunc(left, func(l *coordinationv1.Lease) bool { return l.Name != first.Name })
				} else {
					l.expect(t, "at the end", len(tc.told), "to the hub")
				}
				if len(left) != tc.left {
					t.Errorf("%d registrations are left, want %d", len(left), tc.left)
				}
				for _, text := range tc.told {
					l.expect(t, "at the end", 1, text)
				}
			})
		})
	}
}

func TestARegistrationThatIsChangedUnseenIsToldAsChangedOrDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
		stop := r.start(t)
		synctest.Wait()
		edited := r.registered()[0].DeepCopy()
		edited.Annotations["reader.leasecast.dev/account"] = "erin"
		r.do(&write{method: http.MethodPut, namespace: home, name: edited.Name, sent: edited})
		r.meet(unseen)
		pass(confirm + time.Second)
		l.expect(t, "it cannot be looked at", 1, "Registers anew", "somebody has changed or deleted it")
		r.meet(stored)
		stop()
	})
}
