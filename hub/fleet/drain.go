package fleet

import (
	"fmt"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// longestDrain is how far ahead a drain may end. What is later is a typing error.
const longestDrain = 366 * 24 * time.Hour

// maxDrainReason bounds what is kept of the reason of a drain, in bytes.
const maxDrainReason = 256

// Drain is an operator's order that a Cluster leads nothing until an instant. The zero Drain is none.
type Drain struct {
	Until  time.Time
	Reason string
	// Invalid says why the order has no effect, or is empty.
	Invalid string
}

// In reports whether the order holds at an instant.
func (d Drain) In(now time.Time) bool { return d.Invalid == "" && now.Before(d.Until) }

// readDrain reads the order from the annotations of a Cluster.
func readDrain(annotations map[string]string) Drain {
	text, ordered := annotations[v1alpha1.DrainUntilAnnotation]
	if !ordered {
		return Drain{}
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return Drain{Invalid: fmt.Sprintf("the annotation %s is %.64q: set it to an instant like %s",
			v1alpha1.DrainUntilAnnotation, text, "2026-01-31T18:00:00Z")}
	}
	why := annotations[v1alpha1.DrainReasonAnnotation]
	return Drain{Until: until, Reason: why[:min(len(why), maxDrainReason)]}
}

// at returns the order as it counts at an instant.
func (d Drain) at(now time.Time) Drain {
	if d.Until.Sub(now) > longestDrain {
		return Drain{Invalid: fmt.Sprintf("the annotation %s is %s: set it to an instant within a year",
			v1alpha1.DrainUntilAnnotation, d.Until.Format(time.RFC3339))}
	}
	return d
}
