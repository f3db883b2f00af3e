package tenure_test

import (
	"context"
	"errors"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// A tenure is one unbroken right to write. client-go's elector goes on trying when it could not renew, and so takes
// the election back from a replica that had it in between; what that one promised is in no promises of this process.
func TestATenureThatHasLapsedNeverGoesOn(t *testing.T) {
	t.Run("renewed after its deadline by the wall clock", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		if r.try(6, 6, 6) == nil || r.MayWrite(at(6)) {
			t.Error("it goes on")
		}
	})
	t.Run("renewed just before it", func(t *testing.T) {
		newReplica(t, &store{}, "a").wins(0, 0, 0).wins(5.999, 5.999, 5.999).until(11.999, 11.999)
	})
	t.Run("renewed in time, but sent after its deadline by the boot clock", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		if r.try(5, 6, 6) == nil {
			t.Error("it goes on")
		}
	})
	t.Run("taken back from another replica, in whatever time", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(0, 0, 0)
		between := claim("b", 1)
		s.put(&between)
		again := claim("a", 2)
		again.LeaderTransitions = between.LeaderTransitions + 1 // as client-go counts it
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r.lock.Update(t.Context(), again) == nil {
			t.Error("it goes on")
		}
		if got := s.get(); got.HolderIdentity != "b" {
			t.Errorf("the election is held by %q", got.HolderIdentity)
		}
	})
	t.Run("with a renewTime from which a successor would count less than it inherited", func(t *testing.T) {
		s := &store{record: stored(released(4))}
		newReplica(t, s, "a").wins(0, 4, 4).until(6, 6) // 6 s after the renewTime covers the release
		s = &store{record: stored(func() resourcelock.LeaderElectionRecord {
			r := claim("b", -1)
			r.LeaseDurationSeconds = 10 // its renewTimes may come until 9 s
			return r
		}())}
		r := newReplica(t, s, "a").wins(0, 4, 4)
		if r.try(2.9, 5, 5) == nil {
			t.Error("it goes on")
		}
		r.wins(3, 5, 5)
	})
	t.Run("with a Lease made anew after it was deleted", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(0, 0, 0)
		s.put(nil) // another replica may have made it, and lost it too
		if r.try(1, 1, 1) == nil {
			t.Error("it goes on")
		}
		r.until(6, 6)
	})
	t.Run("taken back from a replica that counted the same transitions, because the Lease was deleted before", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(0, 0, 0)
		again := claim("a", 2)
		again.AcquireTime = again.RenewTime // as client-go does when it was not the holder
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r.lock.Update(t.Context(), again) == nil {
			t.Error("it goes on")
		}
	})
	t.Run("taken back with the acquisition of before, as client-go does, and a count that came to be the same", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a").wins(0, 0, 0)
		between := released(1) // by another replica, which made the Lease anew
		s.put(&between)
		if _, _, err := r.lock.Get(t.Context()); err != nil {
			t.Fatal(err)
		}
		if r.lock.Update(t.Context(), claim("a", 2)) == nil {
			t.Error("it goes on")
		}
		r.until(6, 6)
	})
	t.Run("renewed after a read that failed", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		carried := r.inner.arrive
		r.inner.arrive = func(context.Context) error { return errors.New("no answer") }
		if _, _, err := r.lock.Get(t.Context()); err == nil {
			t.Fatal("there was an answer")
		}
		r.inner.arrive = carried
		if err := r.lock.Update(t.Context(), claim("a", 2)); err != nil { // the compare-and-swap tells whether anybody was faster
			t.Errorf("it does not go on: %v", err)
		}
	})
	t.Run("renewed by the record as the Lease keeps it", func(t *testing.T) {
		s := &store{}
		r := newReplica(t, s, "a")
		first := claim("a", 0)
		first.AcquireTime = metav1.NewTime(wall(0.0000009))
		if err := r.lock.Create(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		kept, _, err := r.lock.Get(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		next := claim("a", 2)
		next.AcquireTime = kept.AcquireTime
		if err := r.lock.Update(t.Context(), next); err != nil {
			t.Errorf("it does not go on: %v", err)
		}
	})
}
