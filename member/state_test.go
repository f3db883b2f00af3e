package member_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const (
	adviceReader = "bind leasecast-reader (config/reader) to the account of this program " +
		"in each of its Options.Namespaces, or by a ClusterRoleBinding if it follows all, or more than 16"
	adviceRegistration = "bind leasecast-registration (config/reader) to the account of this program " +
		"in the namespace of its registration"
	cannotFollow = "; its Leases cannot be followed: "
	checkTheWay  = "check the address of the API server, its CA and the way to it"
)

func TestState_NamesWhatKeepsItFromRegistering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const unregistered = "its registration in namespace home is not confirmed: "
		r := newTestMember(t, registering(t, ns))
		r.write(ns, us, 7)
		r.become(forbidden)
		r.start()
		r.expectState(t, "no rights at the start", false,
			unregistered+adviceRegistration, adviceRegistration)
		r.log.expect(t, "no rights", 1, "Cannot register, or confirm the registration: "+adviceRegistration)
		r.become(works)
		pass(5 * time.Second)
		r.expectState(t, "with rights", true, "", "")
		r.log.expect(t, "with rights", 1, "Confirms the registration again")
		if d := r.State(ns).Duration; d != lasts { // and not an hour, as the Lease does
			t.Errorf("a term lasts %v after a renewal, want %v", d, lasts)
		}
		r.become(forbidden)
		pass(lasts)
		for range 10 { // it is lost, and made again in vain
			r.expectState(t, "without them again", false,
				unregistered+adviceRegistration, adviceRegistration)
			pass(time.Second)
		}
		r.log.expect(t, "it is lost", 1, `"level"=0 "msg"="Registers again, and does not lead until then"`,
			"it was not confirmed in time")
		r.become(works)
		r.delay(1500 * time.Millisecond)
		for !strings.Contains(r.State(ns).Why, "not been listed yet") {
			pass(100 * time.Millisecond)
		}
		pass(2 * time.Second)
		r.expectState(t, "with rights again", true, "", "")
	})
}
