package guard_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard"
)

// stands fails the test unless the guard and a fence are in force or missing because of these errors.
func (h *hub) stands(t *testing.T, when string, f guard.Fence, ns string, unguarded, unfenced error) {
	t.Helper()
	for what, is := range map[string][2]error{
		"the guard": {h.Unguarded(), unguarded}, "the fence": {h.Unfenced(f, ns), unfenced},
	} {
		if !errors.Is(is[0], is[1]) || (is[0] == nil) != (is[1] == nil) {
			t.Errorf("%s: %s is missing: %v, want %v", when, what, is[0], is[1])
		}
	}
}

// A turn sends what is due by the clock, and what was rejected or not answered, and no more.
func TestKeeper_SendsWhatIsDue(t *testing.T) {
	h, l := linked(t)
	ns := newNamespace(t)
	f := fenceOf(t, policy("shops", allJobs, ns))
	h.keeps(t, f, map[string]bool{ns: false})
	h.turn(t.Context()) // a turn that has written is followed by a look
	desired := h.desired
	l.taken()
	const lists, probes = "list*2", "probe guard*2, probe wall*1"
	for _, step := range []struct {
		when                string
		after               time.Duration
		do                  func()
		sent                string
		unguarded, unfenced error
		changed             bool
	}{
		{"at once", 0, nil, "", nil, nil, false},
		{"1 ns before the next look", guard.LookEvery - 1, nil, "", nil, nil, false},
		{"at the next look", 1, nil, lists, nil, nil, false},
		{"1 ns before the next probes", guard.VerifyEvery - guard.LookEvery - 1, nil, lists, nil, nil, false},
		{"at the next probes", 1, nil, probes, nil, nil, false},
		{"1 ns before those after them", guard.VerifyEvery - 1, nil, lists, nil, nil, false},
		{"the probes are not answered", 1, func() { l.will(500, "probe wall", "probe guard") },
			"probe guard*1, probe wall*1", nil, nil, false},
		{"1 ns before they are sent again", 5*time.Second - 1, nil, lists, nil, nil, false},
		{"they are answered again", 1, func() { l.will(0, "probe wall", "probe guard") }, probes, nil, nil, false},
		{"the fence is not in force", guard.VerifyEvery, func() { l.will(201, "probe wall") },
			"list*2, " + probes, nil, guard.ErrNotEnforced, true},
		{"it is not in force yet", 0, nil, "probe wall*1", nil, guard.ErrNotEnforced, false},
		{"it is in force", 0, func() { l.will(0, "probe wall") }, "probe wall*1", nil, nil, true},
		{"the guard's probe alone is not answered", guard.VerifyEvery, func() { l.will(500, "probe guard") },
			"list*2, probe guard*1, probe wall*1", nil, nil, false},
		{"it is answered again", 5 * time.Second, func() { l.will(0, "probe guard") }, "list*2, " + probes, nil, nil, false},
		{"the guard is not in force", guard.VerifyEvery, func() { l.will(201, "probe guard") },
			"list*2, probe guard*1, probe wall*1", guard.ErrNotEnforced, nil, true},
		{"the guard is in force", 0, func() { l.will(0, "probe guard") }, "probe guard*2", nil, nil, true},

		{"the hub may not list", guard.LookEvery, func() { l.will(403, "list") }, "list*1, read guard*4",
			nil, guard.ErrForbidden, true},
		{"the lists are not answered", guard.LookEvery, func() { l.will(500, "list", "read guard") },
			"list*1, read guard*1", nil, guard.ErrForbidden, false},
		{"they are still not answered", 0, nil, "list*1, read guard*1", nil, guard.ErrForbidden, false},
		{"the member does not serve the kind", 0, func() { l.will(404, "list") }, "list*1",
			guard.ErrUnsupported, guard.ErrUnsupported, true},
		{"1 ns before the next try", time.Second - 1, nil, "", guard.ErrUnsupported, guard.ErrUnsupported, false},
		{"at the next try", 1, nil, "list*1", guard.ErrUnsupported, guard.ErrUnsupported, false},
		{"the hub may list again", time.Second, func() { l.will(0, "list", "read guard") }, "list*2, probe guard*2",
			nil, nil, true},

		{"all is written again, the guard's write is not answered", 0, func() { h.Forget(); l.will(500, "write guard") },
			"list*2, probe wall*1, write anchor*2, write guard*1, write shops*2", nil, nil, false},
		{"1 ns before it is sent again", time.Second - 1, nil, lists, nil, nil, false},
		{"it is still not answered", 1, nil, "write guard*1", nil, nil, false},
		{"all is written again, the guard may not be", 0, func() { h.Forget(); l.will(403, "write guard") },
			"list*2, probe wall*1, write anchor*2, write guard*1, write shops*2", guard.ErrForbidden, nil, true},
		{"1 ns before it is tried again", time.Second - 1, nil, lists, guard.ErrForbidden, nil, false},
		{"it is tried again", 1, nil, "write guard*1", guard.ErrForbidden, nil, false},
		{"it may be written", time.Second, func() { l.will(0, "write guard") },
			"list*2, probe guard*2, write guard*4", nil, nil, true},

		{"no fence is desired", guard.LookEvery, func() { h.desired = guard.Desired{} }, "list*2, remove shops*2",
			nil, guard.ErrUnchecked, true},
		{"1 ns before the next look without fences", guard.IdleEvery - 1, nil, "", nil, guard.ErrUnchecked, false},
		{"at the next look without fences", 1, nil, lists, nil, guard.ErrUnchecked, false},
		{"the fence is desired again, it is not in force yet", time.Second, func() {
			h.desired = desired
			l.will(201, "probe wall")
		}, "probe wall*1, write shops*2", nil, guard.ErrNotEnforced, true},
		{"have others changed it since", 0, nil, "list*2, probe wall*1", nil, guard.ErrNotEnforced, false},
		{"it is in force", 0, func() {
			l.will(0, "probe wall")
			h.keeps(t, f, map[string]bool{ns: false})
			l.taken()
		}, "", nil, nil, false},
		{"it is not desired", 0, func() { h.desired = guard.Desired{} }, "remove shops*2", nil, guard.ErrUnchecked, true},
		{"once more", guard.IdleEvery, nil, lists, nil, guard.ErrUnchecked, false},
		{"the fence is desired again, it may not be written", 0, func() {
			h.desired = desired
			l.will(403, "write shops")
		}, "write shops*1", nil, guard.ErrForbidden, true},
		{"1 ns before it is tried again", 5*time.Second - 1, nil, lists, nil, guard.ErrForbidden, false},
		{"it is tried again", 1, nil, "write shops*1", nil, guard.ErrForbidden, false},
	} {
		if step.do != nil {
			step.do()
		}
		before := h.changed.Load()
		h.at += step.after
		h.turn(t.Context())
		if sent := l.taken(); sent != step.sent {
			t.Errorf("%s: sent %q, want %q", step.when, sent, step.sent)
		}
		h.stands(t, step.when, f, ns, step.unguarded, step.unfenced)
		if changed := h.changed.Load() > before; changed != step.changed {
			t.Errorf("%s: a change is reported: %v", step.when, changed)
		}
	}
	if h.silences != 4 || h.mended > 0 {
		t.Errorf("the log has %d silences, want 4: of the probes, of the guard's alone, of the lists, and of its write; "+
			"and %d edits by others were reported", h.silences, h.mended)
	}
	l.will(0, "write shops")
	h.at += 5 * time.Second
	h.keeps(t, f, map[string]bool{ns: false})
}

// desires has the hub keep these fences in one namespace, and nothing else.
func (h *hub) desires(ns string, leased bool, fences ...guard.Fence) {
	h.desired = guard.Desired{}
	h.desired.Leases = map[types.NamespacedName]bool{{Namespace: ns, Name: v1alpha1.DefaultLeaseName}: leased}
	for _, f := range fences {
		space := map[string]bool{}
		if f.Selects(ns, nil) {
			space[ns] = leased
		}
		h.desired.Fences, h.desired.Spaces = append(h.desired.Fences, f), append(h.desired.Spaces, space)
	}
}

// A leader's programs are refused since the first probe that showed it.
func TestFencedSince_StartsAgainWhenAProbeWasAccepted(t *testing.T) {
	h, l := linked(t)
	ns := newNamespace(t)
	f := fenceOf(t, policy("shops", allJobs, ns))
	h.keeps(t, f, map[string]bool{ns: false})
	first := h.at
	for _, step := range []struct {
		code  int
		since time.Duration
		err   error
	}{
		{0, first, nil}, {201, 0, guard.ErrNotEnforced}, {0, first + 3*guard.VerifyEvery, nil},
	} {
		l.will(step.code, "probe wall")
		h.at += guard.VerifyEvery
		h.turn(t.Context())
		if since, err := h.FencedSince(f, ns); since != step.since || !errors.Is(err, step.err) {
			t.Errorf("after %v it is in force since %v, %v; want %v, %v", h.at, since, err, step.since, step.err)
		}
	}
}

// An edit is reported once, and the fence counts from its repair on. So it does if that is sent again: it is not known
// how long the edit was in force.
func TestFencedSince_StartsAgainAfterAnEditWhoseRepairWasNotAnswered(t *testing.T) {
	h, l := linked(t)
	ns := newNamespace(t)
	f := fenceOf(t, policy("shops", allJobs, ns))
	h.keeps(t, f, map[string]bool{ns: false})
	for i, code := range []int{http.StatusConflict, lost} {
		edited(t, administrator(t), f.Names()[1], edits["the binding only audits"])
		l.will(code, "write shops")
		h.at += guard.LookEvery
		h.turn(t.Context())
		h.stands(t, fmt.Sprintf("the repair is answered with %d", code), f, ns, nil, guard.ErrNotEnforced)
		l.will(0, "write shops")
		h.at += guard.LookEvery
		h.keeps(t, f, map[string]bool{ns: false})
		if since, _ := h.FencedSince(f, ns); since != h.at || h.mended != i+1 {
			t.Errorf("after %v the fence is in force since %v, and %d edits of %d are reported", h.at, since, h.mended, i+1)
		}
	}
}

// Every namespace has a gate or a wall at any time. A gate is where there is a Lease, and the wall excludes where the
// gate was seen to reject.
func TestKeeper_HasAGateOrAWall(t *testing.T) {
	h, l := linked(t)
	ns, client := newNamespace(t), administrator(t)
	f, in := fenceOf(t, policy("shops", allJobs, ns)), ns
	for _, step := range []struct {
		when       string
		leased     bool
		gate, wall string // what they cover, and exclude; "-": not stored
		do         func()
		err        error
	}{
		{"there is no Lease", false, "-", "/", func() {}, nil},
		{"the gate is not in force", true, ns, "/", func() { shows(t, ns, westLeads); l.will(201, "probe gate") }, nil},
		{"the gate is in force", true, ns, "/" + ns, func() { l.will(0, "probe gate") }, nil},
		{"the Lease is lost", false, ns, "/" + ns, func() {}, nil},
		{"another hub process has begun, and nothing is answered", false, ns, "/" + ns, func() {
			h.Keeper = guard.NewKeeper(h.Options)
			l.will(500, "probe gate", "write shops")
		}, guard.ErrStored},
		{"it is answered", false, ns, "/" + ns, func() { l.will(0, "probe gate", "write shops") }, nil},
		{"the namespace is terminating", false, "-", "/", func() { in = "" }, guard.ErrNotEnforced},
		{"there is a new one, the wall is not in force", false, "-", "/", func() { in = ns; l.will(201, "probe wall") },
			guard.ErrNotEnforced},
	} {
		step.do()
		h.desires(in, step.leased, f)
		h.at += guard.LookEvery
		before := h.changed.Load()
		eventually(t, step.when, func(ctx context.Context) error {
			h.turn(ctx)
			bound := []string{"-", "-"}
			for i, name := range f.Names() {
				if s, err := read(ctx, client, name); err == nil {
					bound[i] = s.Binding.Annotations["leasecast.dev/bound"]
				}
			}
			if err := h.Unfenced(f, ns); !errors.Is(err, step.err) || (err == nil) != (step.err == nil) ||
				!slices.Equal(bound, []string{step.gate, step.wall}) {
				return fmt.Errorf("the gate covers and the wall excludes %q; missing: %w", bound, err)
			}
			return nil
		})
		if errors.Is(step.err, guard.ErrStored) && h.changed.Load() == before {
			t.Errorf("%s: no change is reported", step.when)
		}
	}
}

// A member may reject one fence, or be silent about it.
func TestKeeper_AFenceHoldsUpNoOther(t *testing.T) {
	h, l := linked(t)
	ns := newNamespace(t)
	bad, good := fenceOf(t, policy("shops", allJobs, ns)), fenceOf(t, policy("tills", allJobs, ns))
	for _, code := range []int{422, 500} {
		l.will(code, "write shops")
		h.drops(t)
		h.desires(ns, false, bad, good)
		eventually(t, "the other one is in force", func(ctx context.Context) error {
			h.turn(ctx)
			return h.Unfenced(good, ns)
		})
		if h.Unfenced(bad, ns) == nil {
			t.Errorf("a fence that is answered with %d is in force", code)
		}
	}
}

// In a namespace where probes have no answer, as by a webhook that is down, everything stays as it is. Others go on.
func TestKeeper_ANamespaceHoldsUpNoOther(t *testing.T) {
	h, l := linked(t)
	mute, other, client := newNamespace(t), newNamespace(t), administrator(t)
	f, edited := fenceOf(t, policy("shops", allJobs, mute, other)), fenceOf(t, policy("shops", ledConfigMaps, mute, other))
	bound := []string{mute, other}
	slices.Sort(bound)
	both := "/" + strings.Join(bound, ",")
	const fencingIsEdited = "fencing is edited: the leader goes on where no probe is answered"
	answers := func(inMute, inOther int) {
		for ns, code := range map[string]int{mute: inMute, other: inOther} {
			l.will(code, "/apis/coordination.k8s.io/v1/namespaces/"+ns+"/leases")
		}
	}
	for _, step := range []struct {
		when            string
		restarts, gate  bool
		inMute, inOther int // how probes are answered
		wall            string
		mute, other     error
		again           string // what the next turn sends, but for the look that follows writes
	}{
		{"a new fence", false, false, 500, 0, "/", guard.ErrUnchecked, nil, "probe wall*1"},
		{"it is answered", false, false, 0, 0, "/", nil, nil, ""},
		{"it is not answered any more", false, false, 500, 0, "/", nil, nil, ""},
		{"there are Leases", false, true, 0, 0, both, nil, nil, ""},
		{"another hub process has begun", true, true, 500, 0, both, guard.ErrStored, nil, "probe gate*1"},
		{"the other one is not in force", false, true, 500, 201, "/" + mute, guard.ErrStored, guard.ErrNotEnforced,
			"probe gate*2, probe wall*1"},
		{"all is answered", false, true, 0, 0, both, nil, nil, ""},
		{fencingIsEdited, false, true, 500, 0, both, guard.ErrStored, nil, "probe gate*1"},
		{"the edit is answered", false, true, 0, 0, both, nil, nil, ""},
	} {
		if step.when == fencingIsEdited {
			f = edited
		}
		answers(step.inMute, step.inOther)
		if h.at += guard.VerifyEvery; step.restarts {
			h.Keeper = guard.NewKeeper(h.Options)
		}
		h.desired = guard.Desired{
			Fences: []guard.Fence{f}, Spaces: []map[string]bool{{mute: step.gate, other: step.gate}},
		}
		eventually(t, step.when, func(ctx context.Context) error {
			h.turn(ctx)
			inMute, inOther := h.Unfenced(f, mute), h.Unfenced(f, other)
			s, err := read(ctx, client, f.Names()[1])
			if err != nil {
				return err
			}
			if s.Binding.Annotations["leasecast.dev/bound"] != step.wall || !errors.Is(inMute, step.mute) ||
				!errors.Is(inOther, step.other) {
				return fmt.Errorf("the wall excludes %v; missing: %w, %w", s.Binding.Annotations, inMute, inOther)
			}
			return nil
		})
		h.turn(t.Context())
		l.taken()
		h.turn(t.Context())
		if sent := l.taken(); sent != step.again {
			t.Errorf("%s: the next turn sends %q, want %q", step.when, sent, step.again)
		}
	}
}

// A fence is removed when what follows is in force. In between, nothing would be rejected.
func TestKeeper_RemovesAFenceWhenTheNextOneIsInForce(t *testing.T) {
	h, l := linked(t)
	ns, client := newNamespace(t), administrator(t)
	before, after := fenceOf(t, policy("shops", allJobs, ns)), fenceOf(t, policy("shops", ledConfigMaps, ns))
	tills := fenceOf(t, policy("tills", allJobs, ns))
	denied := guard.NotAllowedError{Namespaces: []string{"ci"}}
	h.keeps(t, before, map[string]bool{ns: false})
	for _, step := range []struct {
		when  string
		do    func()
		fence guard.Fence
		stays bool
	}{
		{"the next one is rejected", func() { h.desires(ns, false, after); l.will(422, "write shops") }, before, true},
		{"the next one is not answered", func() { l.will(500, "write shops") }, before, true},
		{"the next one is not in force", func() { l.will(0, "write shops"); l.will(201, "probe wall") }, before, true},
		{"the next one is in force", func() { l.will(0, "probe wall") }, before, false},
		{"its policy is invalid", func() { h.desired = guard.Desired{Invalid: []string{"shops"}} }, after, true},
		{"another one is not answered", func() { h.desires(ns, false, tills); l.will(500, "write tills") }, after, true},
		{"another one is rejected", func() { l.will(422, "write tills") }, after, false},
		{"it is in force", func() { l.will(0, "write tills") }, tills, true},
		{"it is not allowed any more", func() { h.desired.Denied = map[string]error{tills.Name(): denied} }, tills, false},
	} {
		step.do()
		h.at += 5 * time.Second
		h.turn(t.Context())
		stored := func(ctx context.Context) error {
			_, err := read(ctx, client, step.fence.Names()[1]) // its wall: there is no Lease
			return err
		}
		if err := stored(t.Context()); step.stays && err != nil {
			t.Errorf("%s: %v", step.when, err)
		} else if !step.stays {
			eventually(t, step.when, func(ctx context.Context) error {
				if h.turn(ctx); !apierrors.IsNotFound(stored(ctx)) {
					return errors.New("it is stored")
				}
				return nil
			})
		}
	}
	if err := h.Unfenced(tills, ns); !slices.Equal(guard.DeniedIn(err), denied.Namespaces) {
		t.Errorf("what is not allowed is missing: %v", err)
	}
}

// What the earlier policy fenced stays fenced until the fence of the next one rejects.
func TestKeeper_LeavesNoNamespaceWithoutAFence(t *testing.T) {
	h, l := linked(t)
	client := administrator(t)
	for name, leased := range map[string]bool{"a Lease": true, "no Lease": false} {
		t.Run(name, func(t *testing.T) {
			ns := newNamespace(t)
			if leased {
				shows(t, ns, westLeads)
			}
			shops := policy("shops", allJobs, ns)
			earlier, next := fenceOf(t, shops), fenceOf(t, policy("tills", allJobs, ns))
			lost := guard.Fences("hub", shops, []string{ns})[0]
			h.desires(ns, leased, earlier)
			h.keeps(t, earlier, map[string]bool{ns: leased})
			fenced := func(ctx context.Context) bool { // by the gate where there is a Lease, and else by the wall
				names := lost.Names()
				gate, err := read(ctx, client, names[0])
				wall, _ := read(ctx, client, names[1])
				return err == nil && gate.Binding.Annotations["leasecast.dev/bound"] == ns ||
					wall.Binding.Annotations["leasecast.dev/bound"] == "/"
			}
			l.will(500, "write tills")
			h.desires(ns, leased, lost, next)
			for range 2 {
				h.at += guard.LookEvery
				h.turn(t.Context())
			}
			if !fenced(t.Context()) {
				t.Error("the earlier fence is gone, and the next one is not there")
			}
			l.will(0, "write tills")
			eventually(t, "the next fence is the only one", func(ctx context.Context) error {
				if h.turn(ctx); fenced(ctx) {
					return errors.New("the earlier one is in force")
				}
				return h.Unfenced(next, ns)
			})
		})
	}
}

// A namespace that goes away is not fenced: its cleanup must not depend on a Lease.
func TestNewDesired(t *testing.T) {
	o := policy("shops", allJobs, "shop", "bank", "deleted", "terminating")
	elsewhere := policy("locks", lockIn("ci"), "shop")
	fences := append(guard.Fences("hub", o, nil), guard.Fences("hub", elsewhere, nil)...)
	now, goes := metav1.Now(), corev1.NamespaceStatus{Phase: corev1.NamespaceTerminating}
	got := guard.NewDesired(fences, []string{"odd"}, []corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, {ObjectMeta: metav1.ObjectMeta{Name: "bank"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "deleted", DeletionTimestamp: &now}},
		{ObjectMeta: metav1.ObjectMeta{Name: "terminating"}, Status: goes},
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}}, {ObjectMeta: metav1.ObjectMeta{Name: "ci"}},
	}, []coordinationv1.Lease{
		{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: v1alpha1.DefaultLeaseName}},
		{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "another"}},
	})
	want := []map[string]bool{{"shop": true, "bank": false}, {"shop": true}}
	if diff := cmp.Diff(want, got.Spaces); diff != "" || len(got.Fences) != 2 || len(got.Invalid) != 1 {
		t.Errorf("the namespaces (-want +got):\n%s", diff)
	}
	denied := got.Denied[fences[1].Name()]
	if !slices.Equal(guard.DeniedIn(denied), []string{"ci"}) || len(got.Denied) != 1 {
		t.Errorf("denied are %v", got.Denied)
	}
}

func TestFence_VerifyProbesOneNamespace(t *testing.T) {
	parallel(t)
	ns, other, client := newNamespace(t), newNamespace(t), administrator(t)
	for _, mode := range []v1alpha1.Enforcement{v1alpha1.EnforcementDeny, v1alpha1.EnforcementWarn} {
		fencing := allJobs
		fencing.Enforcement = mode
		f := fenceOf(t, policy("shops", fencing, ns))
		hubOf(t).keeps(t, f, map[string]bool{ns: false})
		eventually(t, "it is in force", func(ctx context.Context) error { return f.Verify(ctx, client, ns) })
		if err := f.Verify(t.Context(), client, other); !errors.Is(err, guard.ErrNotEnforced) {
			t.Errorf("%s, where it is not: %v", mode, err)
		}
	}
}

// An API server accepts no longer name.
func TestFence_OfALongNameHasAValidName(t *testing.T) {
	o := policy(strings.Repeat("a", 148)+".-."+strings.Repeat("b", 100), allJobs, "shop")
	o.Namespace = strings.Repeat("f", 63)
	for _, name := range guard.Fences("hub", o, nil)[0].Names() {
		if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
			t.Errorf("%s: %s", name, problems)
		}
	}
}
