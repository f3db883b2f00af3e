// Package act reads what operators order by annotations.
package act

import (
	"fmt"
	"strings"
	"time"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// longest is how far ahead an act may end. What is later is a typing error.
	longest = 366 * 24 * time.Hour
	// maxReason bounds what is kept of the reason, in bytes. Records take no longer messages.
	maxReason = 256
)

// Act is an order that holds until an instant. The zero Act is none.
type Act struct {
	Until  time.Time
	Reason string // in the operator's words
	// Invalid says why the order has no effect, or is empty.
	Invalid string

	key string
}

// Drain reads whether a Cluster is drained from its annotations.
func Drain(annotations map[string]string) Act {
	return read(annotations, v1alpha1.DrainUntilAnnotation, v1alpha1.DrainReasonAnnotation)
}

// Freeze reads whether a policy, or the namespace of a record, is frozen.
func Freeze(annotations map[string]string) Act {
	return read(annotations, v1alpha1.FrozenUntilAnnotation, v1alpha1.FrozenReasonAnnotation)
}

// Rebalance reads from which instant all priorities of a policy count as edited.
func Rebalance(annotations map[string]string) Act {
	return read(annotations, v1alpha1.RebalanceAtAnnotation, "")
}

// Move is an order to move a namespace. The zero Move is no order.
type Move struct {
	To     string // a Cluster
	Reason string // in the operator's words
}

// MoveOf reads the order from the annotations of a record.
func MoveOf(annotations map[string]string) Move {
	return Move{annotations[v1alpha1.MoveToAnnotation], Cut(annotations[v1alpha1.MoveReasonAnnotation])}
}

// Cut shortens a text to what a record takes.
func Cut(text string) string { return strings.ToValidUTF8(text[:min(len(text), maxReason)], "") }

func read(annotations map[string]string, key, why string) Act {
	text, ordered := annotations[key]
	if !ordered {
		return Act{}
	}
	until, err := time.Parse(time.RFC3339, text)
	if err != nil {
		const like = "2026-01-31T18:00:00Z"
		return Act{Invalid: fmt.Sprintf("the annotation %s is %.64q: set it to an instant like %s", key, text, like)}
	}
	return Act{Until: until.Truncate(time.Second), Reason: Cut(annotations[why]), key: key}
}

// At returns the act as it counts at an instant: one that ends more than a year later is invalid.
func (a Act) At(now time.Time) Act {
	if a.Until.Sub(now) > longest {
		return Act{Invalid: fmt.Sprintf("the annotation %s is %s: set it to an instant within a year",
			a.key, a.Until.Format(time.RFC3339))}
	}
	return a
}

// In reports whether the act holds at an instant.
func (a Act) In(now time.Time) bool { return a.Invalid == "" && now.Before(a.Until) }

// String says until when it holds, and why.
func (a Act) String() string {
	words := "until " + a.Until.UTC().Format(time.RFC3339)
	if a.Reason != "" {
		words += " (" + a.Reason + ")"
	}
	return words
}
