package move

import (
	"testing"

	"github.com/leasecast/leasecast/e2e/drill"
)

// TestAMoveIsInvisible: clusterctl move takes a fleet to the other hub, which runs already, and back to
// the first. No term lapses, no leader changes, no epoch does; guestbooks go on.
func TestAMoveIsInvisible(t *testing.T) {
	from, to := stage.sites()
	epochs := stage.begin(t, from)
	for range 2 {
		provisioned(t, from)
		v := look(t, stage)
		before := drill.Now().Boot
		stage.clusterctl(t, from, to)
		moved := drill.Now().Boot
		for namespace, epoch := range stage.led(t, to) {
			if epoch != epochs[namespace] {
				t.Errorf("%s: epoch %d, was %d", namespace, epoch, epochs[namespace])
			}
		}
		t.Logf("clusterctl took %.1f s; %.1f s after that all records and leaders' copies are those of the %s hub",
			(moved - before).Seconds(), (drill.Now().Boot - moved).Seconds(), to.name)
		v.markedBy(stage.hubID(t, to))
		v.settled()
		if names := left(t, from); len(names) > 0 {
			t.Errorf("left at the %s site: %v", from.name, names)
		}
		closest := v.unbroken(epochs)
		t.Logf("the closest renewal came %.1f s before the end of its term; the longest pause between two acts was %.2f s",
			closest.Seconds(), v.undisturbed().Seconds())
		from, to = to, from
	}
}
