package skew

import (
	"net/http"
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

const (
	// drift is how fast two clocks may move apart: the most by which the kernel slews a clock under NTP, 500
	// µs in a second.
	drift = 2000 // one part in
	// slack is the error that a reading of the hub's boot clock may have (see clock.System).
	slack = time.Millisecond
	// century is the largest offset that is kept: beyond it nothing depends on how much.
	century = 100 * 365 * 24 * time.Hour
)

// Interval is how far a clock is ahead of the hub's wall clock: from Lo to Hi. Negative means behind.
type Interval struct{ Lo, Hi time.Duration }

// Least is how far apart the clocks are for certain.
func (i Interval) Least() time.Duration { return max(i.Lo, -i.Hi, 0) }

// Most is how far apart they can be.
func (i Interval) Most() time.Duration { return max(i.Hi, -i.Lo) }

// Sample is an answer with a Date. At some instant between two readings of the hub's boot clock the API server's clock
// showed a time in [Date, Date + 1 s).
type Sample struct {
	Sent, Answered time.Duration
	Date           time.Time
}

// SampleOf returns the sample of an answer, or false if the answer does not show the API server's clock: it has no
// Date, it comes from a cache, or it may be an error of a gateway.
func SampleOf(sent, answered lease.Reading, status int, header http.Header) (Sample, bool) {
	dates := header["Date"]
	if len(dates) != 1 || header["Age"] != nil || status >= http.StatusInternalServerError {
		return Sample{}, false
	}
	date, err := time.Parse(imfFixdate, dates[0])
	return Sample{Sent: sent.Boot, Answered: answered.Boot, Date: date}, err == nil
}

// imfFixdate is the one form in which RFC 9110 lets a server write a Date.
const imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"

// origins bound what the clock showed, or would have shown, when the hub's boot clock showed zero.
func (s Sample) origins() (lo, hi time.Time) {
	return s.Date.Add(-s.Answered - slack), s.Date.Add(time.Second - s.Sent + slack)
}

// Estimate is the intersection of the samples of one clock. The zero Estimate has no sample.
type Estimate struct {
	// lo and hi are the bounds of the origin of the clock as of the boot reading at.
	lo, hi time.Time
	at     time.Duration
	// samples is how many agree.
	samples int
}

// Known reports whether there was a sample.
func (e *Estimate) Known() bool { return e.samples > 0 }

// Observe adds a sample. Samples may arrive in any order.
func (e *Estimate) Observe(s Sample) {
	lo, hi := s.origins()
	if !e.Known() {
		*e = Estimate{lo: lo, hi: hi, at: s.Answered, samples: 1}
		return
	}
	if late := e.at - s.Answered; late > 0 {
		lo, hi = lo.Add(-late/drift), hi.Add(late/drift)
	} else {
		e.lo, e.hi = e.bounds(s.Answered)
		e.at = s.Answered
	}
	if lo.After(e.hi) || hi.Before(e.lo) {
		e.lo, e.hi, e.samples = lo, hi, 1
		return
	}
	if lo.After(e.lo) {
		e.lo = lo
	}
	if hi.Before(e.hi) {
		e.hi = hi
	}
	e.samples++
}

// bounds are those of the origin as of a boot reading: wider, the older the estimate is.
func (e *Estimate) bounds(boot time.Duration) (lo, hi time.Time) {
	wider := max(boot-e.at, e.at-boot) / drift
	return e.lo.Add(-wider), e.hi.Add(wider)
}

// Offset is how far the clock is from the hub's wall clock at now. Call it only if the estimate is Known.
func (e *Estimate) Offset(now lease.Reading) Interval {
	lo, hi := e.bounds(now.Boot)
	own := now.Wall.Add(-now.Boot)
	return Interval{Lo: cut(lo.Sub(own)), Hi: cut(hi.Sub(own))}
}

func cut(d time.Duration) time.Duration { return max(-century, min(century, d)) }
