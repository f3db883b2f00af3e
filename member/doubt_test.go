package member_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

// No hub writes such a Lease. It permits nothing, and ends what the one before has permitted.
func TestALeaseThatNoHubCanHaveWrittenIsRefusedByName(t *testing.T) {
	for name, tc := range map[string]struct {
		edit func(l *coordinationv1.Lease)
		want string
	}{
		"no epoch": {
			edit: func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil },
			want: "0 has leaseTransitions 0 or none",
		},
		"epoch 0": {
			edit: func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32) },
			want: "0 has leaseTransitions 0 or none",
		},
		"no renewTime": {func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, "7 has no renewTime"},
		"no duration": {
			edit: func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil },
			want: "7 has leaseDurationSeconds 0 or none",
		},
		"a negative duration": {
			edit: func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = -3 },
			want: "7 has leaseDurationSeconds -3 or none",
		},
		"a huge duration": {
			edit: func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 3601 },
			want: "7 has leaseDurationSeconds 3601 or none",
		},
		"no cluster": {
			edit: func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.ClusterAnnotation) },
			want: "7 has no annotation leasecast.dev/cluster",
		},
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
				said := "Lease shop/leasecast in epoch " + tc.want + ", which no hub writes: not believed"
				for range 3 {
					r.put(r.cluster.leaseOf(ns, us, 7))
					if !r.leads(ns) {
						t.Error("does not lead by a Lease of a hub")
					}
					edited := r.cluster.leaseOf(ns, us, 7)
					tc.edit(edited)
					r.put(edited)
					if r.leads(ns) {
						t.Error("leads by such a Lease")
					}
					if s := r.State(ns); s.Why != said {
						t.Errorf("State says %q, want %q", s.Why, said)
					}
					ahead := r.cluster.leaseOf(ns, us, 7)
					ahead.Spec.RenewTime.Time = ahead.Spec.RenewTime.Add(2 * time.Second)
					r.put(ahead)
					if r.leads(ns) {
						t.Error("leads again by a Lease that is not believed")
					}
					pass(time.Second)
				}
				l.expect(t, "each time", 3, `"msg"="`+said+`"`)
				l.expect(t, "each term", 3, "This cluster does not lead any more", said)
			})
		})
	}
}

// The term goes on, and ends although the hub renews it. So whoever asks has to see that coming.
func TestALeaderWhoseRenewalIsRefusedSaysSoWhileItLeads(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, _ *logged) {
		r.put(r.cluster.leaseOf(ns, us, 7))
		pass(time.Second)
		ahead := r.cluster.leaseOf(ns, us, 7)
		ahead.Spec.RenewTime.Time = ahead.Spec.RenewTime.Add(2 * time.Second)
		r.put(ahead)
		pass(time.Second)
		if s := r.State(ns); !s.Leads ||
			!strings.Contains(s.Trouble, "2.0 s ahead of this clock, allowed 1 s: not believed") {
			t.Errorf("State = %+v", s)
		}
		r.put(r.cluster.leaseOf(ns, us, 7))
		pass(time.Second)
		if s := r.State(ns); !s.Leads || s.Trouble != "" {
			t.Errorf("after a renewal that is believed, State = %+v", s)
		}
	})
}

func TestStateSaysWhyALeaseIsNotBelievedWhereNothingIsLed(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, _ *logged) {
		for name, tc := range map[string]struct {
			edit func(l *coordinationv1.Lease)
			want string
		}{
			"a renewTime in the future": {
				edit: func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(2 * time.Second) },
				want: "2.0 s ahead of this clock, allowed 1 s: not believed",
			},
			"no epoch": {
				edit: func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil },
				want: "has leaseTransitions 0 or none",
			},
		} {
			l := r.cluster.leaseOf(ns, us, 7)
			tc.edit(l)
			r.put(l)
			pass(time.Second)
			if s := r.State(ns); s.Leads || !strings.Contains(s.Trouble, tc.want) || !strings.Contains(s.Why, s.Trouble) {
				t.Errorf("%s: State = %+v", name, s)
			}
		}
		r.put(r.cluster.leaseOf(ns, them, 8))
		pass(time.Second)
		if s := r.State(ns); s.Trouble != "" {
			t.Errorf("after a Lease that is believed, State = %+v", s)
		}
	})
}

func TestALeaseThatIsRefusedAgainIsToldAtOnce(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		refused := func() {
			c := r.cluster.leaseOf(ns, us, 7)
			c.Spec.RenewTime.Time = c.Spec.RenewTime.Add(2 * time.Second)
			r.put(c)
			pass(time.Second)
		}
		for i := range 3 {
			refused()
			refused()
			l.expect(t, "refused", i+1, "its renewTime is 2.0 s ahead of this clock, allowed 1 s: not believed",
				`"level"=0 "msg"="Lease`)
			r.put(r.cluster.leaseOf(ns, us, 7))
			pass(time.Second)
		}
		for range 16 {
			refused()
		}
		l.expect(t, "the term ran out", 1, "This cluster does not lead any more",
			"Lease shop/leasecast in epoch 7: its renewTime is 2.0 s ahead of this clock")
	})
}

func TestALeaseThatIsGoneIsInNoDoubt(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, _ *logged) {
		r.put(r.cluster.leaseOf(ns, us, 7))
		synctest.Wait()
		edited := r.cluster.leaseOf(ns, us, 7)
		edited.Spec.RenewTime = nil
		r.put(edited)
		synctest.Wait()
		r.remove(ns, v1alpha1.DefaultLeaseName)
		synctest.Wait()
		if s := r.State(ns); s.Why != "its Lease is gone" {
			t.Errorf("State says %q", s.Why)
		}
	})
}
