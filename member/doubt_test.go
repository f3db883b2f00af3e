package member_test

import (
	"fmt"
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
		"no epoch":            {func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil }, "has no epoch: its leaseTransitions are missing, or 0"},
		"epoch 0":             {func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = new(int32) }, "has no epoch: its leaseTransitions are missing, or 0"},
		"no renewTime":        {func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil }, "has no renewTime"},
		"no duration":         {func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil }, "has no duration: its leaseDurationSeconds are missing, or 0"},
		"a negative duration": {func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = -3 }, "has no duration: its leaseDurationSeconds are missing, or -3"},
		"a huge duration":     {func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = 3601 }, "says leaseDurationSeconds 3601, and no policy allows more than 3600"},
		"no cluster":          {func(l *coordinationv1.Lease) { delete(l.Annotations, v1alpha1.ClusterAnnotation) }, "has no annotation leasecast.dev/cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
				said := "Lease shop/leasecast " + tc.want + ": not believed"
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
		if s := r.State(ns); !s.Leads || !strings.Contains(s.Trouble, "2.0 s ahead of this clock, allowed 1 s: not believed") {
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
			"a renewTime in the future": {func(l *coordinationv1.Lease) { l.Spec.RenewTime.Time = l.Spec.RenewTime.Add(2 * time.Second) }, "2.0 s ahead of this clock, allowed 1 s: not believed"},
			"no epoch":                  {func(l *coordinationv1.Lease) { l.Spec.LeaseTransitions = nil }, "has no epoch"},
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
			l.expect(t, "refused", i+1, "its renewTime is 2.0 s ahead of this clock, allowed 1 s: not believed", `"level"=0 "msg"="Lease`)
			r.put(r.cluster.leaseOf(ns, us, 7))
			pass(time.Second)
		}
		for range 16 {
			refused()
		}
		l.expect(t, "the term ran out", 1, "This cluster does not lead any more",
			"it ran out: the last Lease was 0.0 s old on arrival, and lasts 15 s; since then Lease shop/leasecast in epoch 7: its renewTime is 2.0 s ahead of this clock")
	})
}

// Two that fight over a Lease do not flood the log.
func TestATroubleThatComesAndGoesIsToldAFewTimesAMinute(t *testing.T) {
	telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
		for range 10 * 60 / 6 {
			r.put(r.cluster.allowing(5 * time.Second))
			r.put(r.cluster.allowing(time.Second / 4))
			synctest.Wait()
			c := r.cluster.leaseOf(ns, us, 1)
			c.Spec.RenewTime.Time = c.Spec.RenewTime.Add(2 * time.Second)
			r.put(c)
			pass(6 * time.Second)
		}
		for _, text := range []string{"not believed", "maxClockSkewMilliseconds"} {
			l.expect(t, "five a minute", 10*5, `"level"=0 "msg"=`, text)
		}
	})
}

// Each policy has an allowance of its own.
func TestWhatWasSaidOfClocksIsKeptForEachNamespace(t *testing.T) {
	for name, tc := range map[string]struct {
		option time.Duration
		want   string
	}{
		"an option":      {2 * time.Second, "Options.MaxClockSkew is less than the policy's"},
		"no option":      {0, "The policy's maxClockSkewMilliseconds is more than a reader allows by default"},
		"a small option": {time.Millisecond, "Options.MaxClockSkew is less than the policy's"},
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{MaxClockSkew: tc.option}, func(t *testing.T, r *reader, l *logged) {
				for range 300 {
					r.put(r.cluster.allowing(5 * time.Second))
					other := r.cluster.allowing(3 * time.Second)
					other.Namespace = "ledger"
					r.put(other)
					pass(time.Second)
				}
				l.expect(t, name, 1, tc.want, `"namespace"="shop"`, `"policy"="5s"`)
				l.expect(t, name, 1, tc.want, `"namespace"="ledger"`, `"policy"="3s"`)
				l.expect(t, name, 2, "MaxClockSkew")
				if tc.option == 0 {
					l.expect(t, "an option that nobody set is not to blame", 0, "Options.MaxClockSkew is")
				}
			})
		})
	}
}

// Whoever has changed the policy looks in the log for what it says now.
func TestADifferenceThatBecomesAnotherIsToldAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		option, policy, then time.Duration
		want                 string
	}{
		"an option that is more":          {2 * time.Second, time.Second / 2, time.Second / 4, "Options.MaxClockSkew is more than the policy's"},
		"an option that is less":          {time.Second, 2 * time.Second, 3 * time.Second, "Options.MaxClockSkew is less than the policy's"},
		"no option, and a lenient policy": {0, 2 * time.Second, 3 * time.Second, "maxClockSkewMilliseconds is more than a reader allows by default"},
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{MaxClockSkew: tc.option}, func(t *testing.T, r *reader, l *logged) {
				for i, policy := range []time.Duration{tc.policy, tc.then} {
					r.put(r.cluster.allowing(policy))
					l.expect(t, name, 1, tc.want, fmt.Sprintf(`"policy"=%q`, policy))
					l.expect(t, name, i+1, tc.want)
				}
			})
		})
	}
}

// An edit can take the policy's allowance away. Then the reader's own is all that is left, and somebody should know.
func TestALeaseThatDoesNotSayWhatClocksAreAllowedIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		says string // empty: there is no annotation
		want string
	}{
		"no annotation":    {"", `"policy"="nothing"`},
		"no number":        {"junk", `"policy"="\"junk\""`},
		"nothing in it":    {"0", `"policy"="\"0\""`},
		"less than that":   {"-1", `"policy"="\"-1\""`},
		"more than counts": {"99999999999999999999", `"policy"="\"99999999999999999999\""`},
	} {
		t.Run(name, func(t *testing.T) {
			telling(t, member.Options{}, func(t *testing.T, r *reader, l *logged) {
				for range 3 {
					c := r.cluster.allowing(time.Second / 4)
					if c.Annotations[v1alpha1.MaxClockSkewAnnotation] = tc.says; tc.says == "" {
						delete(c.Annotations, v1alpha1.MaxClockSkewAnnotation)
					}
					r.put(c)
					pass(time.Second)
				}
				l.expect(t, name, 1, "A Lease does not say how far clocks may differ by the policy, so this reader's own allowance counts",
					`"namespace"="shop"`, `"allowed"="1s"`, tc.want)
				if all := l.with(); strings.Contains(strings.Join(all, "\n"), "not believed") {
					t.Errorf("it is refused:\n%s", strings.Join(all, "\n"))
				}
			})
		})
	}
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
