package member_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
)

func TestARegistrationThatCannotHoldItsNamespacesIsNotMade(t *testing.T) {
	var all []string
	for i := range 2000 {
		all = append(all, fmt.Sprintf("%060d", i))
	}
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Namespaces: all, Registration: registration(t), Logger: l.logger()})
		defer r.start(t)()
		pass(time.Second)
		if wrote := r.written(); wrote > 0 {
			t.Errorf("%d writes", wrote)
		}
		l.expect(t, "it does not fit", 1, "Cannot register", "namespaces: has 121999 bytes, want at most 98304")
		l.expect(t, "it does not fit", 0, `"msg"="Registered"`)
	})
}

func TestWhatKeptARegistrationFromBeingMadeIsNoTroubleOfItsConfirmations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &logged{}
		r := newReaderWith(t, member.Options{Registration: registration(t), Logger: l.logger()})
		r.meet(forbidden)
		r.say(ns, us, 7)
		defer r.start(t)()
		pass(time.Second)
		l.expect(t, "at first", 1, "Cannot register: "+bindRegistration)
		r.meet(stored)
		pass(2 * confirm)
		l.expect(t, "it is registered", 1, `"msg"="Registered"`)
		l.expect(t, "and confirmed, which never failed", 0, "Confirms the registration again")
		r.cluster.clock.Suspend(lasts)
		if s := r.State(ns); s.Leads || s.Why != "its registration in namespace home was not confirmed in time" || s.Trouble != "" {
			t.Errorf("State = %+v", s)
		}
	})
}

func TestNothingIsLeftOfARegistrationThatIsDeletedBeforeItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.meet(unanswered)
		stop := r.start(t)
		synctest.Wait()
		r.do(&write{method: http.MethodDelete, namespace: home, name: r.registered()[0].Name})
		r.meet(stored)
		pass(5 * time.Second)
		if all := r.registered(); len(all) != 2 {
			t.Errorf("%d registrations, want another one beside that which is being deleted", len(all))
		}
		stop()
		if left := len(r.registered()); left > 0 {
			t.Errorf("%d registrations are left", left)
		}
	})
}
