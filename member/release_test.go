package member_test

import (
	"context"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/member"
	"github.com/leasecast/leasecast/member/internal/musttest"
)

// released reports whether the Member has released epoch 7 of the namespace of these tests.
func (r *testMember) released(t *testing.T) bool {
	t.Helper()
	synctest.Wait()
	return r.registration(t).Released[ns] >= 7
}

// A term is released when its work has finished, of whatever kind, and not before.
func TestRelease_WaitsForWork(t *testing.T) {
	const goesOn = 10 * time.Second // after the revocation
	work := func(r *testMember, goesOn time.Duration) {
		ctx, done := contextOf(r.t, r, ns)
		time.AfterFunc(0, func() { <-ctx.Done(); pass(goesOn); done() })
	}
	demoted := func(f func()) member.Listener { return member.Listener{Demoted: func(string, error) { f() }} }
	slow := func() { pass(goesOn) }
	type row struct {
		begin func(r *testMember)
		takes time.Duration
	}
	musttest.Each(t, map[string]row{
		"none":                     {func(*testMember) {}, 0},
		"in a context":             {func(r *testMember) { work(r, goesOn) }, goesOn},
		"in two, one takes longer": {func(r *testMember) { work(r, goesOn); work(r, 0) }, goesOn},
		"in Lead": {func(r *testMember) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				_ = r.Lead(ctx, ns, func(ctx context.Context) error { <-ctx.Done(); slow(); cancel(); return nil })
			}()
		}, goesOn},
		"of a listener": {func(r *testMember) { r.Listen(demoted(slow)) }, goesOn},
		"of a listener that is removed in the call": {func(r *testMember) {
			var remove func()
			remove = r.Listen(demoted(func() { remove(); slow() }))
		}, goesOn},
		"of a listener beside one that is removed": {func(r *testMember) {
			var remove func()
			remove = r.Listen(demoted(func() { remove() }))
			r.Listen(demoted(slow))
		}, goesOn},
		"of a listener that is being promoted": {
			func(r *testMember) { r.Listen(member.Listener{Promoted: func(string, member.Term) { slow() }}) }, goesOn,
		},
		"of a listener that was removed in the term": {func(r *testMember) {
			remove := r.Listen(member.Listener{})
			synctest.Wait() // it has been promoted
			for range 2 {   // again does no harm
				remove()
			}
		}, 0},
		"of a listener that was removed as it was promoted": {func(r *testMember) {
			removes := make(chan func(), 1)
			removes <- r.Listen(member.Listener{Promoted: func(string, member.Term) { (<-removes)() }})
		}, 0},
	}, func(t *testing.T, row row) {
		r := startRegistered(t)
		row.begin(r)
		if r.released(t) {
			t.Fatal("released while it leads")
		}
		r.write(ns, none, 8)
		if row.takes > 0 {
			for range 2 {
				pass(row.takes/2 - time.Millisecond)
				if r.released(t) {
					t.Fatal("released while the work goes on")
				}
			}
			pass(2 * time.Millisecond)
		}
		if !r.released(t) {
			t.Error("not released although the work has finished")
		}
	})
}

func TestRelease_OfTermsThatAreOver(t *testing.T) {
	type epochs = map[string]int64
	revokedThen := func(happens func(r *testMember)) func(r *testMember) {
		return func(r *testMember) { r.write(ns, none, 8); synctest.Wait(); happens(r); pass(confirm) }
	}
	type row struct {
		happens  func(r *testMember)
		released epochs
	}
	musttest.Each(t, map[string]row{
		"no cluster leads":            {func(r *testMember) { r.write(ns, none, 8) }, epochs{ns: 7}},
		"in a far higher epoch":       {func(r *testMember) { r.write(ns, none, 9000) }, epochs{ns: 8999}},
		"no cluster, and it is gone":  {revokedThen(func(r *testMember) { r.remove(ns, leaseName) }), epochs{ns: 7}},
		"where it never led":          {func(r *testMember) { r.write("other", none, 8) }, epochs{"other": 7}},
		"where no cluster ever led":   {func(r *testMember) { r.write("other", none, 1); pass(2 * lasts) }, nil},
		"where a Lease is blank":      {func(r *testMember) { r.write("other", none, 1, blank); pass(2 * lasts) }, nil},
		"the term goes on":            {func(*testMember) {}, nil},
		"the Lease is gone":           {func(r *testMember) { r.remove(ns, leaseName) }, nil},
		"another cluster leads again": {revokedThen(func(r *testMember) { r.write(ns, them, 9) }), nil},
		"this cluster leads again":    {revokedThen(func(r *testMember) { r.write(ns, us, 9) }), nil},
		"the term has run out":        {func(r *testMember) { r.write(ns, us, 7, lasting(15)); pass(2 * time.Hour) }, nil},
	}, func(t *testing.T, row row) {
		r := startRegistered(t)
		row.happens(r)
		synctest.Wait()
		if got := r.registration(t).Released; !maps.Equal(got, row.released) {
			t.Errorf("released %v, want %v", got, row.released)
		}
	})
}

func TestRelease_AfterTheRegistrationWasLost(t *testing.T) {
	lose := func(r *testMember) {
		r.remove(home, r.registered()[0].Name)
		pass(confirm + time.Second)
	}
	registered(t, func(t *testing.T, r *testMember) { // what was not finished before is not released after
		_, done := contextOf(t, r, ns)
		lose(r)
		r.write(ns, none, 8)
		if pass(time.Hour); r.released(t) {
			t.Fatal("released while work of an earlier registration goes on")
		}
		if done(); !r.released(t) {
			t.Error("not released although the work has finished")
		}
	})
	registered(t, func(t *testing.T, r *testMember) { // what was seen before is not released after
		if r.write(ns, none, 8); !r.released(t) {
			t.Fatal("not released")
		}
		r.delay(time.Hour) // of the list that has to come first
		if lose(r); r.released(t) {
			t.Error("released before the Leases were listed again")
		}
	})
}

// Many namespaces change hands at once when a cluster is drained. So many names fit into a registration, however long
// they are, and the others wait.
func TestRelease_OfManyTermsTakesFewWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestMember(t, registering(t))
		const room, many = 1000, 1002
		for i := range many {
			r.write(name(i), us, 7)
		}
		r.start()
		synctest.Wait()
		r.become(late) // a write takes longer than the hub for all
		before := len(r.wrote(0))
		for i := range many {
			r.write(name(i), none, 8)
			pass(time.Millisecond)
		}
		pass(2*slow + time.Second)
		if got, writes := r.registration(t), len(r.wrote(before)); len(got.Released) != room ||
			got.Released[name(room)] > 0 || writes > 3 {
			t.Errorf("%d releases in %d writes, want the first %d", len(got.Released), writes, room)
		}
		r.become(works)
		r.write(name(0), them, 9) // granted, so the hub waits no more
		pass(confirm)
		if got := r.registration(t); len(got.Released) != room || got.Released[name(0)] > 0 ||
			got.Released[name(room)] != 7 {
			t.Errorf("%d releases when there is room for another, want %d", len(got.Released), room)
		}
		before = len(r.wrote(0))
		r.stop()
		last, err := wire.ReadRegistration(r.wrote(before)[0].sent)
		if err != nil || len(last.Released) != room {
			t.Errorf("%d releases at the end, want %d: %v", len(last.Released), room, err)
		}
	})
}
