package member_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/member"
)

// released reports whether the reader has released epoch 7 of the namespace of these tests.
func (r *reader) released(t *testing.T) bool {
	t.Helper()
	synctest.Wait()
	return r.registration(t).HasReleased(ns, 7)
}

// Whatever kind of work it is: the term is released when it has finished, and not before.
func TestATermIsReleasedWhenItsWorkHasFinished(t *testing.T) {
	const works = 10 * time.Second // on after the revocation
	kinds := map[string]func(t *testing.T, r *reader){
		"none": nil,
		"work in a context": func(t *testing.T, r *reader) {
			ctx, done, err := r.Context(t.Context(), ns)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				<-ctx.Done()
				pass(works)
				done()
			}()
		},
		"two of them, one of which takes longer": func(t *testing.T, r *reader) {
			for _, takes := range []time.Duration{works, 0} {
				ctx, done, err := r.Context(t.Context(), ns)
				if err != nil {
					t.Fatal(err)
				}
				go func() {
					<-ctx.Done()
					pass(takes)
					done()
				}()
			}
		},
		"Lead": func(_ *testing.T, r *reader) {
			ctx, cancel := context.WithCancel(context.Background())
			go func() {
				_ = r.Lead(ctx, ns, func(ctx context.Context) error {
					<-ctx.Done()
					pass(works)
					cancel()
					return nil
				})
			}()
		},
		"a listener": func(_ *testing.T, r *reader) {
			r.Listen(member.Listener{Demoted: func(string, error) { pass(works) }})
		},
		"a listener that was removed as it heard of the end": func(_ *testing.T, r *reader) {
			var remove func()
			remove = r.Listen(member.Listener{Demoted: func(string, error) { remove(); pass(works) }})
		},
		"a listener beside one that was removed as it heard of the end": func(_ *testing.T, r *reader) {
			var remove func()
			remove = r.Listen(member.Listener{Demoted: func(string, error) { remove() }})
			r.Listen(member.Listener{Demoted: func(string, error) { pass(works) }})
		},
		"a listener that is still being promoted": func(_ *testing.T, r *reader) {
			r.Listen(member.Listener{Promoted: func(string, member.Term) { pass(works) }})
		},
	}
	for name, begin := range kinds {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				if begin != nil {
					begin(t, r)
				}
				synctest.Wait()
				if r.released(t) {
					t.Fatal("released while it leads")
				}
				r.say(ns, none, 8)
				if begin != nil {
					for range 2 {
						pass(works/2 - time.Millisecond)
						if r.released(t) {
							t.Fatal("released while the work goes on")
						}
					}
					pass(2 * time.Millisecond)
				}
				if !r.released(t) {
					t.Error("not released although the work has finished")
				}
			})
		})
	}
}

func TestAListenerThatIsRemovedHoldsNothingUp(t *testing.T) {
	for name, listen := range map[string]func(r *reader){
		"while it leads": func(r *reader) {
			remove := r.Listen(member.Listener{})
			synctest.Wait() // it has been told that this cluster leads
			for range 2 {   // again does no harm
				remove()
			}
		},
		"as it is promoted": func(r *reader) {
			removes := make(chan func(), 1)
			removes <- r.Listen(member.Listener{Promoted: func(string, member.Term) { (<-removes)() }})
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				listen(r)
				r.say(ns, none, 8)
				if !r.released(t) {
					t.Error("not released although nobody listens")
				}
			})
		})
	}
}

func TestWhatIsReleasedAndWhatIsNot(t *testing.T) {
	for name, tc := range map[string]struct {
		happens  func(r *reader)
		released bool
	}{
		"nobody leads":          {func(r *reader) { r.say(ns, none, 8) }, true},
		"in a far higher epoch": {func(r *reader) { r.say(ns, none, 9000) }, true},
		"the term stands":       {func(*reader) {}, false},
		"the Lease is gone":     {func(r *reader) { r.remove(ns, v1alpha1.DefaultLeaseName) }, false},
		"an edit of no weight":  {func(r *reader) { r.say(ns, none, 6) }, false},
		"an absurd epoch":       {func(r *reader) { r.say(ns, none, 2e9) }, false},
		"another namespace's":   {func(r *reader) { r.say("other", none, 8) }, false},
		"another cluster leads": {func(r *reader) { r.say(ns, them, 8) }, false}, // nobody waits any more
		"after nobody did": {
			happens: func(r *reader) { r.say(ns, none, 8); synctest.Wait(); r.say(ns, them, 9); pass(confirm) },
		},
		"this one leads anew": {
			happens: func(r *reader) { r.say(ns, none, 8); synctest.Wait(); r.say(ns, us, 9); pass(confirm) },
		},
		"the term has run out": {
			happens: func(r *reader) { l := r.cluster.leaseOf(ns, us, 7); r.put(l); pass(2 * time.Hour) },
		},
		"a Lease says nothing":   {func(r *reader) { r.put(blank(ns)); pass(confirm) }, false},
		"nobody, and it is gone": {func(r *reader) { r.say(ns, none, 8); r.remove(ns, v1alpha1.DefaultLeaseName) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				tc.happens(r)
				if r.released(t) != tc.released {
					t.Errorf("released = %v, want %v: %v", !tc.released, tc.released, r.registration(t).Released)
				}
			})
		})
	}
}

// Leases last an hour here, and a registration has to be confirmed sooner.
func TestATermLastsNoLongerThanTheRegistration(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		if got, want := r.State(ns).Duration, 15*time.Second; got != want {
			t.Errorf("a term lasts %v after a renewal, want %v", got, want)
		}
	})
}

// blank is a Lease with the label of the hub's and nothing else, as an editor may leave it.
func blank(namespace string) *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: v1alpha1.DefaultLeaseName, Labels: map[string]string{v1alpha1.ManagedLabel: "true"},
	}}
}

// Nobody has led before the first epoch.
func TestWhereNobodyEverLedNothingIsReleased(t *testing.T) {
	for name, l := range map[string]func(r *reader) *coordinationv1.Lease{
		"the first epoch":      func(r *reader) *coordinationv1.Lease { return r.cluster.leaseOf("other", none, 1) },
		"a Lease says nothing": func(*reader) *coordinationv1.Lease { return blank("other") },
	} {
		t.Run(name, func(t *testing.T) {
			registered(t, func(t *testing.T, r *reader) {
				r.put(l(r))
				pass(2 * lasts)
				if got := r.registration(t); len(got.Released) > 0 || !r.leads(ns) {
					t.Errorf("released %v, leads elsewhere = %v", got.Released, r.leads(ns))
				}
			})
		})
	}
}

func TestALaterEpochIsReleasedAtOnceToo(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		for epoch := int64(8); epoch < 12; epoch += 2 {
			r.say(ns, none, epoch)
			synctest.Wait()
			if got := r.registration(t); !got.HasReleased(ns, epoch-1) {
				t.Errorf("released %v, want epoch %d", got.Released, epoch-1)
			}
		}
	})
}

// A controller that has nothing to do in a namespace is waited for like any other.
func TestWhoNeverLedReleasesToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		r.say(ns, none, 8)
		defer r.start(t)()
		if !r.released(t) {
			t.Errorf("released %v", r.registration(t).Released)
		}
	})
}

func TestAReleasedEpochIsNeverTrustedAgain(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		r.say(ns, none, 8)
		if !r.released(t) {
			t.Fatal("not released")
		}
		for range 3 {
			r.say(ns, us, 7)
			if r.leads(ns) {
				t.Fatal("leads in an epoch that it has released")
			}
			r.remove(ns, v1alpha1.DefaultLeaseName)
			synctest.Wait()
		}
		r.say(ns, us, 9)
		if !r.leads(ns) {
			t.Error("does not lead in the next epoch")
		}
	})
}

// What an earlier registration has not finished, the next one has not released.
func TestWorkOutlastsARegistration(t *testing.T) {
	registered(t, func(t *testing.T, r *reader) {
		_, done, err := r.Context(t.Context(), ns)
		if err != nil {
			t.Fatal(err)
		}
		l := r.registered()[0]
		r.remove(home, l.Name)
		pass(confirm + time.Second)
		r.say(ns, none, 8)
		pass(time.Hour)
		if r.released(t) {
			t.Fatal("released while work of an earlier registration goes on")
		}
		done()
		if !r.released(t) {
			t.Error("not released although the work has finished")
		}
	})
}

// So many names fit into a registration, however long they are.
func TestReleasesThatDoNotFitAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		const fit = 1000
		name := func(i int) string { return fmt.Sprintf("team-%04d", i) }
		for i := range fit + 2 {
			r.say(name(i), none, 8)
		}
		stop := r.start(t)
		synctest.Wait()
		if got := r.registration(t); len(got.Released) != fit || got.HasReleased(name(fit), 7) {
			t.Errorf("%d releases, want the first %d", len(got.Released), fit)
		}
		r.say(name(0), them, 9) // granted, so nobody asks any more
		pass(confirm)
		synctest.Wait()
		if got := r.registration(t); len(got.Released) != fit || !got.HasReleased(name(fit), 7) {
			t.Errorf("%d releases when there is room for the last, want %d", len(got.Released), fit)
		}
		before := r.written()
		stop()
		last, err := wire.ReadRegistration(r.wrote(before)[0].sent)
		if err != nil || len(last.Released) != fit {
			t.Errorf("%d releases at the end, want %d: %v", len(last.Released), fit, err)
		}
	})
}

// Many namespaces change hands at once when a cluster is drained.
func TestWhatIsReleasedIsWrittenInOneGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegistered(t)
		const many = 200
		for i := range many {
			r.say(fmt.Sprint("team-", i), us, 7)
		}
		defer r.start(t)()
		synctest.Wait()
		r.meet(late) // a write takes longer than the hub for all
		before := r.written()
		for i := range many {
			r.say(fmt.Sprint("team-", i), none, 8)
			pass(time.Millisecond)
		}
		pass(2*slow + time.Second)
		if got := r.registration(t); len(got.Released) != many {
			t.Errorf("released %d of %d", len(got.Released), many)
		}
		if writes := r.written() - before; writes > 3 {
			t.Errorf("%d writes for %d releases", writes, many)
		}
		r.meet(stored)
		r.say("team-0", them, 9) // granted, so nobody asks any more
		pass(confirm)
		if got := r.registration(t); len(got.Released) != many-1 || got.HasReleased("team-0", 7) {
			t.Errorf("%d releases are left, want %d", len(got.Released), many-1)
		}
	})
}
