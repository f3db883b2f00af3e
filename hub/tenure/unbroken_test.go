package tenure_test

import "testing"

// A tenure is one unbroken right to write. client-go's elector goes on trying when it could not renew, and so takes
// the election back from a replica that had it in between; what that one promised is in no ledger of this process.
func TestATenureThatHasLapsedNeverGoesOn(t *testing.T) {
	t.Run("renewed after its deadline by the wall clock", func(t *testing.T) {
		r := newReplica(t, &store{}, "a").wins(0, 0, 0)
		if r.try(6, 6, 6) == nil || r.MayStamp(at(6)) {
			t.Error("it goes on")
		}
	})
	t.Run("renewed just before it", func(t *testing.T) {
		newReplica(t, &store{}, "a").wins(0, 0, 0).wins(5.999, 5.999, 5.999).until(11.999, 11.999)
	})
	t.Run("stamped in time, but sent after its deadline by the boot clock", func(t *testing.T) {
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
}
