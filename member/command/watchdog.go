package command

import (
	"bufio"
	"fmt"
	"io"
	"time"

	utilclock "k8s.io/utils/clock"

	"github.com/leasecast/leasecast/api/lease"
)

// Watchdog is the first argument of the gate's second process.
const Watchdog = "watchdog"

// send writes an instant for the watchdog to read.
func send(w io.Writer, until instant) error {
	_, err := fmt.Fprintln(w, until.Wall.UnixNano(), int64(until.Boot))
	return err
}

// receive sends every instant that it reads. It closes the channel at the end of the input, or when a line is no
// instant.
func receive(r io.Reader, limits chan<- instant) {
	defer close(limits)
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var wall, boot int64
		if n, err := fmt.Sscanln(lines.Text(), &wall, &boot); n != 2 || err != nil {
			return
		}
		limits <- instant{Wall: time.Unix(0, wall), Boot: time.Duration(boot)}
	}
}

// watch returns when the last instant received has come, or when the channel is closed.
func watch(clock lease.Clock, limits <-chan instant) {
	until, open := <-limits
	for open {
		now := clock.Now()
		if until.come(now) {
			return
		}
		select {
		case until, open = <-limits:
		case <-utilclock.RealClock{}.After(min(look, until.in(now))):
		}
	}
}
