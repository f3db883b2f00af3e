package controller

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/hub/election"
)

// nowhere is a member without an address.
type nowhere struct{ *registry }

func (nowhere) GetConfig() *rest.Config { return &rest.Config{Host: "http://[::1"} }

func TestReadersThatCannotBeWatchedCostNoWork(t *testing.T) {
	watchReaders(t.Context(), engagement{cluster: nowhere{&registry{}}}, newStage(t).publisher(), logr.Discard())()
}

// What a watch shows of a reader counts at once.
func TestAReaderThatIsSeenToReleaseATermIsHeard(t *testing.T) {
	for name, kind := range map[string]string{"it was changed": "MODIFIED", "it is new": "ADDED"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t)
				s.decided(s.publisher(), s.leading(reason.Elected), true)
				p := s.publisher()
				s.clock.pass(20 * time.Second) // from then on readers are believed
				copied := s.east.leases[shopCopy.Name]
				c, _ := wire.Read(copied)
				c.RenewTime = s.clock.now.Wall
				if err := wire.Write(testKey, c, copied); err != nil {
					t.Fatal(err)
				}
				s.east.put(copied)
				p.ObserveGone(shopCopy)
				registration := lease.Registration{Identity: "reader", Account: "reader", Confirmed: s.clock.now.Wall, Duration: 3 * time.Second}
				reader := &coordinationv1.Lease{
					TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
					ObjectMeta: metav1.ObjectMeta{Namespace: "pods", Name: "reader"},
				}
				if err := wire.WriteRegistration(registration, reader); err != nil {
					t.Fatal(err)
				}
				reader = s.east.put(reader)
				r := s.leading(reason.PriorityChanged)
				r.State, r.Epoch, r.Revoked, r.AcquireTime = election.Draining, 21, 20, c.AcquireTime
				s.decided(p, r, false)

				shown := &registry{version: s.east.version}
				if kind == "MODIFIED" {
					shown.items = []coordinationv1.Lease{*reader}
				}
				stop := watchReaders(t.Context(), engagement{cluster: shown}, p, logr.Discard())
				pass(10 * time.Second)
				if p.SyncStatus(shopCopy).Released != 0 {
					t.Fatal("it is released before the reader said so")
				}
				registration.Released = map[string]int64{"shop": 20}
				said := reader.DeepCopy()
				if err := wire.WriteRegistration(registration, said); err != nil {
					t.Fatal(err)
				}
				said.ResourceVersion = "99"
				shown.tell(kind, said)
				if p.SyncStatus(shopCopy).Released != 20 {
					t.Error("nobody heard it")
				}
				_ = shown.watch.Close()
				stop()
			})
		})
	}
}
