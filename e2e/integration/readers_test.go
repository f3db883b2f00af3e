package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/member"
)

// reader runs the member library in a member, as a controller there does.
func (w *world) reader(in, namespace string) *member.Member {
	m := harness.Get(member.New(w.Servers.Member(in).AdminConfig(), member.Options{
		Namespaces:   []string{namespace},
		MaxClockSkew: epsilon,
	}))(w.T)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { _ = m.Start(ctx) })
	w.T.Cleanup(func() {
		cancel()
		group.Wait()
	})
	sync, done := context.WithTimeout(w.T.Context(), soon)
	defer done()
	w.Must(m.WaitForSync(sync))
	return m
}

func TestReadersLeadOnInTheirTermAfterARepairAndItGetsNoLonger(t *testing.T) {
	t.Parallel()
	w, a, epoch := eastLeads(t, steady)
	key := w.sealKey()
	east := w.reader("east", a)
	w.leadsByReader(east, a, epoch)
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			inner := w.on(t)
			inner.spoil("east", a, key, epoch, edit)
			inner.leadsByReader(east, a, epoch)
		})
	}
}

func TestAnEditThatReadersBelieveIsRepairedAndOvercomeByANewTerm(t *testing.T) {
	t.Parallel()
	for name, edit := range burning {
		t.Run(name, func(t *testing.T) {
			w, a, b, epoch := eastLeadsTwo(t, brief)
			j, key := w.keeps("east", b), w.sealKey()
			before := harness.Get(w.Record(a))(w.T)
			readers := map[string]*member.Member{"east": w.reader("east", a), "west": w.reader("west", a)}

			// In a follower it is repaired, and nobody else notices.
			w.spoil("west", a, key, epoch, edit)
			w.unmoved(before)
			// In the leader it takes a new term, which comes in order. The old one may end before it is repaired.
			w.edit("east", a, edit)
			after := w.leadsIn("east", a, epoch+1)
			if c, _ := wire.Read(edited(edit, epoch)); after <= c.Epoch {
				t.Errorf("epoch %d, readers may have seen %d", after, c.Epoch)
			}
			r := harness.Get(w.Record(a))(w.T)
			if r.Spec.Reason != reason.NewTerm {
				t.Errorf("reason %s", r.Spec.Reason)
			}
			w.leadsByReader(readers["east"], a, after)
			j.check()
			// The reader of the follower has to believe the next change too.
			w.setPriority("west", "200")
			w.leadsByReader(readers["west"], a, w.Leads("west", a, w.ordered(), all...))
		})
	}
}

// edited is a Lease of this epoch after an edit.
func edited(edit func(*coordinationv1.Lease), epoch int64) *coordinationv1.Lease {
	l := &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{LeaseTransitions: ptr.To(int32(epoch))}}
	edit(l)
	return l
}

// leadsIn waits until a cluster leads in a term of at least this epoch.
func (w *world) leadsIn(leader, namespace string, atLeast int64) (epoch int64) {
	w.Eventually(fmt.Sprintf("%s leads in epoch %d or later", leader, atLeast), w.ordered(), func() error {
		r, err := w.Record(namespace)
		if s := r.Spec; err == nil && (s.Leader != leader || s.State != v1alpha1.StateLeading || s.Epoch < atLeast) {
			err = fmt.Errorf("%s, %s, epoch %d, %s", s.Leader, s.State, s.Epoch, s.Reason)
		}
		epoch = r.Spec.Epoch
		return err
	})
	return epoch
}

// leadsByReader waits until a reader believes that its cluster leads, and for no longer
// than was promised.
func (w *world) leadsByReader(m *member.Member, namespace string, epoch int64) {
	w.Eventually(fmt.Sprintf("the reader leads in epoch %d", epoch), soon, func() error {
		term, ok := m.Term(namespace)
		if !ok || term.Epoch() != epoch {
			return fmt.Errorf("leads: %v, epoch %d", ok, term.Epoch())
		}
		if left := term.Remaining(); left > w.duration() {
			return fmt.Errorf("%v remain of a term of %v", left, w.duration())
		}
		return nil
	})
}
