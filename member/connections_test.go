package member

import (
	"net/http"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/member/internal/musttest"
)

func TestPingsFindADeadConnectionWithinAThirdOfTheShortestTermOrHalfASecond(t *testing.T) {
	c := musttest.Get(newConnections(&rest.Config{}))(t)
	for _, step := range []struct{ seen, shortest, each time.Duration }{
		{time.Hour, 15 * time.Second, 2500 * time.Millisecond},
		{0, 15 * time.Second, 2500 * time.Millisecond},
		{6 * time.Second, 6 * time.Second, time.Second},
		{10 * time.Second, 6 * time.Second, time.Second},
		{time.Second, time.Second, leastTimeout},
	} {
		before, _ := c.get()
		replaced := musttest.Get(c.suit(step.seen))(t)
		current, shortest := c.get()
		if shortest != step.shortest || replaced != (current != before) {
			t.Errorf("after terms of %v: shortest %v, replaced %v", step.seen, shortest, replaced)
		}
		base := current.RoundTripper
		for wrapper, ok := base.(utilnet.RoundTripperWrapper); ok; wrapper, ok = base.(utilnet.RoundTripperWrapper) {
			base = wrapper.WrappedRoundTripper()
		}
		timing := base.(*http.Transport).HTTP2
		if timing.SendPingTimeout != step.each || timing.PingTimeout != step.each {
			t.Errorf("after terms of %v: pinged after %v, dead after %v more",
				step.seen, timing.SendPingTimeout, timing.PingTimeout)
		}
	}
}
