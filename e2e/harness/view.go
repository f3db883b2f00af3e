package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// View is what was seen since its beginning: the members' Leases and the records, by watches straight at the API
// servers, and what guestbooks did.
type View struct {
	Leases  map[string]*Watch[*coordinationv1.Lease] // by member
	Records *Watch[*v1alpha1.NamespaceLeader]

	d    *Drill
	acts int // before the view began
}

// Look begins a view. The caller closes it.
func (d *Drill) Look(ctx context.Context) (*View, error) {
	v := &View{Leases: map[string]*Watch[*coordinationv1.Lease]{}, d: d}
	err := must.Try(func() {
		for _, m := range d.Fleet.Members() {
			v.Leases[m.Name()] = must.Get(d.WatchLeases(ctx, m.Name()))
		}
		v.Records = must.Get(d.WatchRecords(ctx))
		v.acts = len(must.Get(d.Acts()))
	})
	if err != nil {
		v.Close()
	}
	return v, err
}

// LookFor begins a view that ends with the test.
func (d *Drill) LookFor(t testing.TB) *View {
	v := musttest.Get(d.Look(t.Context()))(t)
	t.Cleanup(v.Close)
	return v
}

// Close ends the watches. What was seen stays.
func (v *View) Close() {
	for _, w := range v.Leases {
		w.Stop()
	}
	if v.Records != nil {
		v.Records.Stop()
	}
}

// Place is a member's Lease of a namespace. Cluster is the name that Leases give the member.
type Place struct{ Namespace, Cluster string }

func (p Place) String() string { return p.Namespace + " in " + p.Cluster }

// Led is one sighting of a Lease that names the member it lives in.
type Led struct {
	At lease.Reading
	lease.Content
}

// Stamp is the renewTime on the boot clock.
func (l Led) Stamp() time.Duration { return BootOf(l.RenewTime, l.At) }

// LedIn returns, by namespace and in order, the Leases in one member that name it.
func LedIn(seen []Sighting[*coordinationv1.Lease]) map[string][]Led {
	all := map[string][]Led{}
	for _, s := range seen {
		if c, _ := wire.Read(s.Object); c.LeadsHere() && !s.Gone {
			all[c.Namespace] = append(all[c.Namespace], Led{s.At, c})
		}
	}
	return all
}

// Terms returns the sightings of Leases that name the member they live in, in order.
func (v *View) Terms() map[Place][]Led {
	all := map[Place][]Led{}
	for _, w := range v.Leases {
		for namespace, led := range LedIn(w.Seen()) {
			all[Place{namespace, led[0].Cluster}] = led
		}
	}
	return all
}

// Unbroken judges the sightings of one place, at least one. The term must stay the same, each renewal must be seen
// before the term ends, and the term must go on now. Unbroken returns what was left of the term at the closest renewal,
// an hour if there was none.
func Unbroken(seen []Led, now time.Time) (closest time.Duration, err error) {
	closest = time.Hour
	var errs []error
	for i, s := range seen[1:] {
		was := seen[i]
		if s.Epoch != was.Epoch {
			errs = append(errs, fmt.Errorf("epoch %d became %d", was.Epoch, s.Epoch))
		}
		left := was.RenewTime.Add(was.Duration).Sub(s.At.Wall)
		if closest = min(closest, left); left <= 0 {
			errs = append(errs, fmt.Errorf("the term lapsed: it ended %v before its renewal could be seen", -left))
		}
	}
	if last := seen[len(seen)-1]; !last.Live(now) {
		errs = append(errs, fmt.Errorf("the term ended at %v and was not renewed", last.RenewTime.Add(last.Duration)))
	}
	return closest, errors.Join(errs...)
}

// Judge judges all acts since the drill began. No act since the view began is an error.
func (v *View) Judge() ([]Verdict, error) {
	acts, err := v.d.Acts()
	if err != nil {
		return nil, err
	}
	verdicts := Judge(acts)
	var errs []error
	if len(acts) <= v.acts {
		errs = append(errs, errors.New("no guestbook has acted: nothing was seen"))
	}
	for _, b := range Breaches(verdicts) {
		errs = append(errs, errors.New(b.String()))
	}
	return verdicts, errors.Join(errs...)
}
