package publish

import (
	"testing"
)

// A tenure whose clock was ahead leaves renewTimes in the future behind.
func TestRenewTimeInTheFuture(t *testing.T) {
	play(t, `
by less than ε: kept
	lease east 20 at 0.9 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace; ε 1; boot 3600; wait 5s;
	wait 5s
replaced by a later one: D from then on
	lease east 20 at 3600 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace;
	lease east 20 at 3605 acquired=-100 sameObject; shown; at 14; wait 5s; at 15; wait 5s; at 29;
	update east 20 renewTime 29s promise 44s
the wall clock was behind for a moment only: kept
	lease east 20 at 3600 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace; at 14; wall 3600;
	wait 5s; at 15; wait 5s; at 29; wait 5s
found before the wall clock was stepped back: D from when it was first found
	lease east 20 at 2 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace; wall -3600; wait 5s;
	boot 14.999; wait 5s; boot 15; update east 20 renewTime -1h0m0s promise -59m45s
by an hour: renewed with the present time after D
	lease east 20 at 3600 acquired=-100; assign lead east 20; read; ok; wait 5s; status InPlace; at 14.999; wait 5s;
	at 15; update east 20 renewTime 15s promise 30s; ok; wait 5s; status InPlace
`)
}

// No Lease of now is as fresh as one that is asked for from later on.
func TestMinRenewTimeInTheFuture(t *testing.T) {
	play(t, `
by half a second: written then
	follows; assign follow west 20 fresh=0.5; wait 500ms; status MinRenewTime=0.5; at 0.5;
	update west 20 renewTime 500ms; ok; wait; status InPlace MinRenewTime=0.5
by a day, then corrected: decided again every second
	follows; assign follow west 20 fresh=86400; wait 1s; at 1; wait 1s; assign follow west 20 fresh=1;
	update west 20 renewTime 1s
a newer Lease is in the way: reported in the meantime
	lease south 21 at -2; assign follow west 20 fresh=10; read; ok; wait;
	status Newer=21 Problem=LeaseLost MinRenewTime=10
`)
}
