package member

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	utilclock "k8s.io/utils/clock"
)

const (
	// gather is how long a Member with several watches waits for others that fail alike before it logs.
	gather = time.Second
	// mostNamed is how many namespaces one line names.
	mostNamed = 3
)

// outages logs watches that fail: at once and every minute, in one line for all that fail alike.
type outages struct {
	member *Member

	mu        sync.Mutex
	failing   map[*watched]failing
	mended    map[*watched]struct{} // they work again, and that is not logged yet
	troubles  map[string]*trouble   // by the failure
	gathering bool                  // a timer of gather is running
	stopped   bool
}

// failing is the failure of one watch.
type failing struct {
	what string
	err  error
	told bool
}

func newOutages(m *Member) *outages {
	return &outages{member: m, failing: map[*watched]failing{}, mended: map[*watched]struct{}{}, troubles: map[string]*trouble{}}
}

// fails records that a watch fails.
func (o *outages) fails(w *watched, what string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.failing[w]
	o.failing[w] = failing{what, err, was.told && was.what == what}
	delete(o.mended, w)
	o.soon()
}

// works records that a watch works.
func (o *outages) works(w *watched) {
	o.mu.Lock()
	defer o.mu.Unlock()
	was := o.failing[w]
	delete(o.failing, w)
	if was.told {
		o.mended[w] = struct{}{}
		o.soon()
	}
}

// soon logs what is due, after gather if there are several watches. The caller holds mu.
func (o *outages) soon() {
	if len(o.member.watches) == 1 {
		o.tell()
		return
	}
	if !o.gathering {
		o.gathering = true
		utilclock.RealClock{}.AfterFunc(gather, func() {
			o.mu.Lock()
			defer o.mu.Unlock()
			o.gathering = false
			o.tell()
		})
	}
}

// tell logs all that is due. The caller holds mu.
func (o *outages) tell() {
	if o.stopped {
		return
	}
	if len(o.mended) > 0 {
		o.member.log.Info("Follows leases again", "scope", o.scope(slices.Collect(maps.Keys(o.mended))))
		clear(o.mended)
	}
	alike := map[string][]*watched{}
	for _, w := range o.member.watches { // in their order, so that lines do not differ needlessly
		if f, fails := o.failing[w]; fails {
			alike[f.what] = append(alike[f.what], w)
		}
	}
	for what := range o.troubles {
		if alike[what] == nil {
			o.troubles[what].over()
		}
	}
	for what, all := range alike {
		o.tellOf(what, all)
	}
}

// tellOf logs the watches that fail alike, if one of them is new or a minute has passed.
func (o *outages) tellOf(what string, all []*watched) {
	t := o.troubles[what]
	if t == nil {
		t = &trouble{}
		o.troubles[what] = t
	}
	again := t.known(what)
	if slices.ContainsFunc(all, func(w *watched) bool { return !o.failing[w].told }) {
		t.told = false
	}
	if !t.due(what, o.member.clock.Now().Boot) {
		return
	}
	leads := false
	for _, w := range all {
		f := o.failing[w]
		f.told = true
		o.failing[w] = f
		leads = leads || o.member.terms.leadsIn(w.namespace)
	}
	text := what + "; nothing is led"
	if leads {
		text = what + "; what is led ends when its term runs out, unless a watch that works shows its renewals"
	}
	o.member.complain(o.failing[all[0]].err, again, text, "scope", o.scope(all))
}

// scope names the namespaces of these watches.
func (o *outages) scope(all []*watched) string {
	if len(all) == 1 {
		return all[0].String()
	}
	names := make([]string, 0, len(all))
	for _, w := range all {
		names = append(names, w.namespace)
	}
	slices.Sort(names)
	text := fmt.Sprintf("%d of %d namespaces: %s", len(all), len(o.member.watches), strings.Join(names[:min(mostNamed, len(names))], ", "))
	if len(names) > mostNamed {
		text += ", …"
	}
	return text
}

// stop ends all logging.
func (o *outages) stop() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stopped = true
}
