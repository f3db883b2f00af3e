package member_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// A promoted listener may act at once. So no listener is promoted before the first registration, or after it has run
// out, however fresh the Leases are.
func TestNobodyIsPromotedWithoutARegistration(t *testing.T) {
	const (
		tick  = recheck / 2
		again = 8 * time.Second // a request that hangs for 3 s, and the longest pause after it
	)
	for name, f := range map[string]fate{
		"nobody answers":        silent,
		"the connection breaks": dropped,
		"the answer is lost":    unanswered,
		"it is forbidden":       forbidden,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, heard := newRegistered(t), &calls{}
				defer r.Listen(heard.listener())()
				renewed := func(d time.Duration) {
					for range d / tick {
						r.say(ns, us, 7)
						pass(tick)
					}
				}
				r.meet(f)
				defer r.start(t)()
				renewed(lasts)
				heard.expect(t, "not registered yet")
				r.meet(stored)
				renewed(again)
				heard.expect(t, "registered", ns+" promoted in 7")
				r.meet(f)
				renewed(2 * lasts)
				heard.expect(t, "not confirmed any more", ns+" demoted")
				r.meet(stored)
				renewed(again)
				heard.expect(t, "registered anew", ns+" promoted in 7")
			})
		})
	}
}
