package publish

import (
	"testing"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/reason"
)

// Whoever decides who leads has to know where copies cannot be written, and where they can be again.
func TestWritesThatFail(t *testing.T) {
	unreachable := Facts{Failing: reason.Unreachable, Problem: reason.Unreachable}
	run(t, map[string]func(*rig){
		"are told of until one succeeds, whatever is read in between": func(r *rig) {
			r.assign(lease.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 stamp 0s for 15s").unanswered(false).facts(unreachable)
			r.next("read").answered().facts(unreachable)
			r.next("create west 20 stamp 0s for 15s").answered().facts(Facts{Problem: reason.Unreachable})
			r.next("wait").facts(Facts{InPlace: true})
		},
		"or until a read shows that one was carried out": func(r *rig) {
			r.assign(lease.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 stamp 0s for 15s").unanswered(true)
			r.next("read").answered().next("wait").facts(Facts{InPlace: true})
		},
		"reads that fail are none": func(r *rig) {
			r.assign(lease.Follow, term("west", 20))
			r.next("read").unanswered(false).facts(Facts{Problem: reason.Unreachable})
		},
		"nor are conflicts": func(r *rig) {
			r.follows()
			edited(r)
			r.edit()
			r.next("update west 20 stamp 0s for 15s").answered().facts(Facts{InPlace: true})
		},
		"are forgotten where nothing is to be written any more": func(r *rig) {
			r.assign(lease.Follow, term("west", 20))
			r.next("read").answered().next("create west 20 stamp 0s for 15s").unanswered(false)
			r.assign(lease.Absent, lease.Term{})
			r.next("read").answered().next("wait").facts(Facts{InPlace: true})
		},
		"are tried again at once, and once a second when that has not helped for long": func(r *rig) {
			r.assign(lease.Follow, term("west", 20))
			for range impatience {
				r.next("read").answered().next("create west 20 stamp 0s for 15s").failed(errTimeout, pauseSilent)
			}
			r.next("read").answered().next("create west 20 stamp 0s for 15s").failed(errTimeout, pauseRefused)
			r.next("read").answered().next("create west 20 stamp 0s for 15s").answered().next("wait")
			edited(r)
			r.next("update west 20 stamp 0s for 15s").failed(errTimeout, pauseSilent)
		},
	})
}

// Where a term is lost although the member answers, what is written is what stands already: it promises nothing.
func TestALostCopyIsToldOfOnceItIsKnownWhetherItCanBeWritten(t *testing.T) {
	const again = "update east 20 stamp 0s for 15s"
	fails := func(r *rig) {
		r.leads().at(14).next("update east 20 stamp 14s for 15s promise 29s").failed(errTimeout, pauseSilent)
		r.at(29).next("read").answered()
	}
	lost := Facts{Lost: true, Failing: reason.Unreachable}
	run(t, map[string]func(*rig){
		"it can: what failed was an outage that is over": func(r *rig) {
			fails(r)
			r.next(again).facts(Facts{Failing: reason.Unreachable, Problem: reason.Unreachable}).answered()
			r.next("wait").facts(Facts{Lost: true})
		},
		"it cannot, and that is found out again and again": func(r *rig) {
			fails(r)
			r.next(again).failed(errTimeout, pauseSilent).next("read").answered()
			r.next("wait 2s").facts(lost)
			r.at(31).next("read").answered().next(again).failed(errForbidden, pauseRefused)
			r.next("wait 2s").facts(Facts{Lost: true, Failing: reason.Forbidden})
			r.at(33).next("read").answered().next(again).answered().next("wait").facts(Facts{Lost: true})
		},
		"where there is no copy there is nothing to try": func(r *rig) {
			fails(r)
			deleted(r)
			r.next("read").answered().next("wait").facts(lost)
		},
		"nor where it is not this lane's own any more": func(r *rig) {
			fails(r)
			r.put(copyOf(stamped(0, term("west", 20))), lease.Key("another key"))
			r.show()
			r.next("read").answered().next("wait").facts(lost)
		},
		"in the next term it is found out anew": func(r *rig) {
			fails(r)
			r.next(again).failed(errTimeout, pauseSilent)
			r.assign(lease.Lead, term("east", 21))
			r.next("read").answered().next(again)
		},
	})
}
