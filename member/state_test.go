package member_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

const (
	missingRights = "bind the ClusterRoles of config/reader to the account of this program: leasecast-reader in each of " +
		"its Options.Namespaces, or by a ClusterRoleBinding if it follows all or more than 16, and leasecast-registration " +
		"where it registers"
	notStarted = "the Member is not started: add it to the manager by mgr.Add, or call Start"
)

func TestMember_NamesWhatKeepsItFromRegistering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const unregistered = "its registration in namespace home is not confirmed; " + missingRights
		r := newTestMember(t, registering(t, ns))
		r.write(ns, us, 7)
		r.become(forbidden)
		r.start()
		r.expectState(t, "no rights at the start", false, unregistered, unregistered)
		r.log.expect(t, "no rights", 1, "Cannot register, or confirm the registration: "+missingRights)
		pass(staleAfter)
		r.expectHealthz(t, "it starts")
		pass(time.Second)
		r.expectHealthz(t, "it is not made",
			"member: the registration in namespace home was not confirmed for 41s, want at most 40s; "+missingRights)
		r.become(works)
		pass(5 * time.Second)
		r.expectState(t, "with rights", true, "", "")
		r.expectHealthz(t, "with rights")
		r.log.expect(t, "with rights", 1, "Confirms the registration again")
		if d := r.State(ns).Duration; d != lasts { // and not an hour, as the Lease does
			t.Errorf("a term lasts %v after a renewal, want %v", d, lasts)
		}
		r.become(forbidden)
		pass(lasts)
		for range 10 { // it is lost, and made again in vain
			r.expectState(t, "without them again", false, unregistered, unregistered)
			pass(time.Second)
		}
		r.log.expect(t, "it is lost", 1, `"level"=0 "msg"="Registers again, and does not lead until then"`,
			"it was not confirmed in time")
		pass(staleAfter)
		r.expectHealthz(t, "not confirmed any more", "member: the registration in namespace home was not confirmed for ",
			"s, want at most 40s; "+missingRights)
		r.become(works)
		r.delay(1500 * time.Millisecond)
		for !strings.Contains(r.State(ns).Why, "not been listed yet") {
			pass(100 * time.Millisecond)
		}
		pass(2 * time.Second)
		r.expectState(t, "with rights again", true, "", "")
		r.clock.Suspend(staleAfter)
		r.expectHealthz(t, "just after a suspend", "member: the registration in namespace home was not confirmed for ")
	})
}

func TestMember_ReportsThatItIsNotStarted(t *testing.T) {
	musttest.Each(t, map[string]member.Options{"alone": {}, "and would register": registering(t)},
		func(t *testing.T, o member.Options) {
			r := newTestMember(t, o)
			pass(10*time.Second - time.Millisecond)
			r.log.expect(t, "before 10 s", 0, "not started")
			pass(time.Millisecond)
			r.log.expect(t, "after 10 s", 1, "is not started, so nothing is led: add it to the manager by mgr.Add")
			r.expectState(t, "", false, notStarted, notStarted)
			pass(2 * staleAfter)
			r.expectHealthz(t, "", "nothing was seen for 1m30s", notStarted)
		})
	started(t, member.Options{}, func(t *testing.T, r *testMember) {
		pass(time.Minute)
		r.log.expect(t, "started", 0, "not started")
	})
}
