package member

import (
	"net/http"
	"path/filepath"
	"testing"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

func TestALineThatMayBeDeadIsLeftOnce(t *testing.T) {
	l, err := newLink(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	first := l.current()
	if err := l.leave(first); err != nil {
		t.Fatal(err)
	}
	second := l.current()
	if err := l.leave(first); err != nil { // another watch finds it out too
		t.Fatal(err)
	}
	if l.current() != second {
		t.Error("each watch makes a connection of its own")
	}
	if second == first || second.Connections == first.Connections {
		t.Error("requests go on taking the connections that may be dead")
	}
	if err := l.leave(second); err != nil {
		t.Fatal(err)
	}
	if l.current() == second {
		t.Error("the second line is not left")
	}
}

func TestConnectionsArePingedTheMoreOftenTheShorterTheTermsAre(t *testing.T) {
	l, err := newLink(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		seen, want time.Duration
	}{
		{time.Hour, 15 * time.Second}, {0, 15 * time.Second}, {-time.Second, 15 * time.Second},
		{3 * time.Second, 3 * time.Second}, {10 * time.Second, 3 * time.Second}, {time.Second, time.Second},
	} {
		before := l.current()
		changed, err := l.suit(step.seen)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.current(); got.duration != step.want || changed != (got != before) {
			t.Errorf("after terms of %v: good for %v, changed %v; want %v", step.seen, got.duration, changed, step.want)
		}
		if err := l.leave(l.current()); err != nil {
			t.Fatal(err)
		}
		if got := l.current().duration; got != step.want {
			t.Errorf("the next line is good for %v, want %v", got, step.want)
		}
	}
}

func TestALineIsPingedAsItsTermsNeed(t *testing.T) {
	l, err := newLink(&rest.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct{ seen, want time.Duration }{
		{time.Hour, 2500 * time.Millisecond}, {6 * time.Second, time.Second}, {3 * time.Second, 500 * time.Millisecond}, {time.Second, leastPatience},
	} {
		if _, err := l.suit(step.seen); err != nil {
			t.Fatal(err)
		}
		base := l.current().RoundTripper
		for wrapper, ok := base.(utilnet.RoundTripperWrapper); ok; wrapper, ok = base.(utilnet.RoundTripperWrapper) {
			base = wrapper.WrappedRoundTripper()
		}
		timing := base.(*http.Transport).HTTP2
		if timing.SendPingTimeout != step.want || timing.PingTimeout != step.want {
			t.Errorf("after terms of %v: pinged after %v, dead after %v more; want %v", step.seen, timing.SendPingTimeout, timing.PingTimeout, step.want)
		}
	}
}

func TestALineThatCannotBeMadeLeavesTheOldOne(t *testing.T) {
	for name, change := range map[string]func(l *link) error{
		"it may be dead":          func(l *link) error { return l.leave(l.current()) },
		"it is pinged too seldom": func(l *link) error { _, err := l.suit(time.Second); return err },
	} {
		t.Run(name, func(t *testing.T) {
			l, err := newLink(&rest.Config{})
			if err != nil {
				t.Fatal(err)
			}
			before := l.current()
			l.cfg = &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(t.TempDir(), "gone")}}
			if err := change(l); err == nil || l.current() != before {
				t.Errorf("err = %v, the same line = %v", err, l.current() == before)
			}
		})
	}
}

func TestADeadConnectionIsNoticedWithinAThirdOfATermAndASecond(t *testing.T) {
	for d := time.Second; d <= longestPinged; d += time.Second {
		const rest = 800 * time.Millisecond // to make a new one and list, the pause after the failure included
		p := pinged(d)
		if noticed := p.After + p.Timeout; noticed > d/3+time.Second-rest || p.Timeout < leastPatience {
			t.Errorf("terms of %v: pinged after %v, dead after %v more", d, p.After, p.Timeout)
		}
	}
}
