package member_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
)

const (
	adviceReader = "bind leasecast-reader (config/reader) to the account of this program " +
		"in each of its Options.Namespaces, or by a ClusterRoleBinding if it follows all, or more than 16"
	adviceRegistration = "bind leasecast-registration (config/reader) to the account of this program " +
		"in the namespace of its registration"
	cannotFollow = "; its Leases cannot be followed: "
	checkTheWay  = "check the address of the API server, its CA and the way to it"
)

func TestState_NamesWhatKeepsLeasesFromComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestMember(t, member.Options{Namespaces: []string{ns}})
		until := func(refused bool) { // lists are tried again after a time that is drawn
			for range int(staleAfter / time.Second) {
				synctest.Wait()
				if s := r.State(ns); strings.Contains(s.Why+s.Trouble, adviceReader) == refused && (refused || s.Trouble == "") {
					return
				}
				pass(time.Second)
			}
		}
		follows := func() { r.become(works); until(false) }
		refused := func() { r.become(refuses); r.fail(); until(true) }
		r.write(ns, us, 1)
		r.become(refuses)
		for _, step := range []struct {
			when         string
			happens      func()
			leads        bool
			why, trouble string
		}{
			{"no rights at the start", r.start, false, "the Leases of namespace shop have not been listed yet: " + adviceReader,
				adviceReader},
			{"with rights", follows, true, "", ""},
			{"without rights in its term", refused, true, "", adviceReader},
			{"after its term", func() { pass(duration) }, false,
				" s old on arrival, and lasts 15 s" + cannotFollow + adviceReader, adviceReader},
			{"a follower", func() { r.write(ns, them, 2); follows(); refused() }, false,
				"west.fleet leads in epoch 2" + cannotFollow + adviceReader, adviceReader},
			{"without a Lease", func() { follows(); r.remove(ns, leaseName); pass(time.Second); refused() }, false,
				gone + cannotFollow + adviceReader, adviceReader},
			{"without an answer", func() { r.become(hangs); pass(staleAfter) }, false,
				gone + cannotFollow + checkTheWay, checkTheWay},
		} {
			step.happens()
			r.expectState(t, step.when, step.leads, step.why, step.trouble)
		}
	})
}

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
