package skew

import (
	"time"

	"github.com/leasecast/leasecast/api/lease"
)

// imfFixdate is the one form in which RFC 9110 lets a server write a Date.
const imfFixdate = "Mon, 02 Jan 2006 15:04:05 GMT"

// ParseDate reads a Date header, and returns false if it is none.
func ParseDate(header string) (time.Time, bool) {
	if len(header) != len(imfFixdate) {
		return time.Time{}, false
	}
	date, err := time.Parse(imfFixdate, header)
	return date, err == nil
}

// Dated is the sample of an answer with a Date.
func Dated(sent, answered lease.Reading, date time.Time) Sample {
	return Sample{After: sent.Boot, Before: answered.Boot, Shown: date, Grain: time.Second}
}
