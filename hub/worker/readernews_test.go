package worker

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Tenants write registrations as fast as their API server answers. What the management cluster stores must not grow by that.
func TestReadersThatComeAndGoCostFewWritesOnTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		go r.readers.report(t.Context())
		comeAndGo := func(namespace string) {
			r.readers.seen(registrationOf(t, "fickle", "somebody", namespace), false)
			r.readers.gone("uid of fickle")
		}
		comeAndGo("ledger")
		if got := r.news(); !slices.Equal(got, []string{"ledger"}) {
			t.Errorf("the first is heard of at once: news of %q", got)
		}
		pass(readersEvery) // that it went may be news of its own
		r.news()
		const seconds = 60
		for range seconds {
			for range 100 {
				comeAndGo("shop")
				pass(time.Second / 100)
			}
		}
		news := r.news()
		if n := len(news); n < seconds-1 || n > seconds+1 {
			t.Errorf("%d decisions in %d s, want one a second", n, seconds)
		}
		if slices.Contains(news, "ledger") {
			t.Error("a namespace is decided again and again, though its readers have not changed")
		}
		most := readerEvents + int(seconds*time.Second/readerEventEvery)
		if n := len(r.events); n < most-1 || n > most+1 {
			t.Errorf("%d events in %d s, want %d", n, seconds, most)
		}
		pass(readersEvery)
		if got := r.news(); len(got) > 0 {
			t.Errorf("there is news of %q though nothing has changed", got)
		}
	})
}

func TestOfManyReadersThatComeAtOnceTheFirstAreToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for n := range 2 * readerEvents {
			r.readers.seen(registrationOf(t, fmt.Sprint(n), "somebody"), false)
		}
		if len(r.events) != readerEvents {
			t.Errorf("%d events, want %d", len(r.events), readerEvents)
		}
	})
}
