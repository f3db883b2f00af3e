package fleet

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/lease/clock/clocktest"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

func TestPriority(t *testing.T) {
	if _, r := (spec{}).priority(); r != reason.NoPriority {
		t.Errorf("without the label: %q", r)
	}
	for value, want := range map[string]int32{
		"100": 100, "0": 0, "007": 7, "08": 8, "2147483647": 2147483647,
	} {
		if got, r := (spec{labels: map[string]string{v1alpha1.PriorityLabel: value}}).priority(); got != want || r != "" {
			t.Errorf("%q is read as %d, %q; want %d", value, got, r, want)
		}
	}
	for _, value := range []string{
		"2147483648", "99999999999999999999", "", "1e3", "1.5", "0x10", "1_000", "-5", "+5", "high",
	} {
		got, r := spec{labels: map[string]string{v1alpha1.PriorityLabel: value}}.priority()
		if got != 0 || r != reason.InvalidPriority {
			t.Errorf("%q is read as %d, %q", value, got, r)
		}
	}
}

func TestReadSpec(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clusterv1.Cluster)
		check  func(spec) bool
	}{
		"neither label nor pin: not kept": {nil, func(s spec) bool { return !s.takesPart() && !s.keeps() }},
		"label: takes part": {func(c *clusterv1.Cluster) {
			c.Labels = map[string]string{v1alpha1.PriorityLabel: "x"}
		}, func(s spec) bool { return s.takesPart() && s.keeps() }},
		"what shows who leads selects nothing": {func(c *clusterv1.Cluster) {
			c.Labels = map[string]string{v1alpha1.PriorityLabel: "x", v1alpha1.LeaderLabelPrefix + "shop": "true"}
		}, func(s spec) bool { return len(s.labels) == 1 && s.takesPart() }},
		"pin without label: kept": {func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{v1alpha1.ClusterUIDAnnotation: "u"}
		}, func(s spec) bool { return !s.takesPart() && s.keeps() && s.pin == "u" }},
		"a pin that an annotation alone shows is not proved": {func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{
				v1alpha1.ClusterUIDAnnotation: "u", v1alpha1.PinProofAnnotation: seal.Pin(sealKey, "prod", "west", "u"),
			}
		}, func(s spec) bool { return s.pin == "u" && !s.pinProved }},
		"a pin of the hub's own is": {func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{
				v1alpha1.ClusterUIDAnnotation: "u", v1alpha1.PinProofAnnotation: seal.Pin(sealKey, "prod", "east", "u"),
			}
		}, func(s spec) bool { return s.pin == "u" && s.pinProved }},
		"paused by spec": {
			func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }, func(s spec) bool { return s.paused },
		},
		"not paused by spec": {
			func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) }, func(s spec) bool { return !s.paused },
		},
		"paused by annotation": {
			func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} },
			func(s spec) bool { return s.paused },
		},
		"moved": {
			func(c *clusterv1.Cluster) { c.Annotations = map[string]string{deleteForMove: ""} },
			func(s spec) bool { return s.moved },
		},
		"deleted": {
			func(c *clusterv1.Cluster) { c.DeletionTimestamp = ptr.To(metav1.Now()) }, func(s spec) bool { return s.deleting },
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "east"}}
			if tc.change != nil {
				tc.change(c)
			}
			if s := readSpec(c, sealKey); !tc.check(s) {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestNameProblem(t *testing.T) {
	for name, tc := range map[string]struct {
		key  Key
		want string
	}{
		"usual":                       {Key{"prod", "east"}, ""},
		"the longest that fits":       {Key{strings.Repeat("f", 10), strings.Repeat("c", 242)}, ""},
		"too long for holderIdentity": {Key{strings.Repeat("f", 63), strings.Repeat("c", 190)}, "holderIdentity"},
		"too long for the Secret":     {Key{"f", strings.Repeat("c", 243)}, "Secret"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := nameProblem(tc.key); (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestParseKey(t *testing.T) {
	k := Key{"prod", "east"}
	if got, err := ParseKey(k.ClusterName()); err != nil || got != k {
		t.Errorf("got %v, %v", got, err)
	}
	for _, bad := range []multicluster.ClusterName{"", "/", "a", "a/", "/a", "a/b/c"} {
		if got, err := ParseKey(bad); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestIdentityOf(t *testing.T) {
	for name, tc := range map[string]struct {
		pin, known, found string
		want              identity
	}{
		"first contact":                         {"", "", "a", same},
		"the pinned one":                        {"a", "", "a", same},
		"the known one":                         {"", "a", "a", same},
		"another than the pinned one":           {"a", "", "b", other},
		"another, and that one was known":       {"a", "a", "b", other},
		"another than known, pin removed":       {"", "a", "b", rebuilt},
		"the one that it was pinned to by hand": {"b", "a", "b", rebuilt},
	} {
		t.Run(name, func(t *testing.T) {
			if got := identityOf(tc.pin, tc.known, tc.found); got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestOwners(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC) }
	a, b := Key{"prod", "a"}, Key{"prod", "b"}
	for name, tc := range map[string]struct {
		a, b uidOwner
		want Key
	}{
		"the hub's own pin, though younger": {
			uidOwner{a, "u", false, true, day(1)}, uidOwner{b, "u", true, false, day(2)}, b,
		},
		"the pinned one, though younger": {
			uidOwner{a, "u", false, false, day(1)}, uidOwner{b, "u", false, true, day(2)}, b,
		},
		"both pinned: the older one": {uidOwner{a, "u", true, true, day(2)}, uidOwner{b, "u", true, true, day(1)}, b},
		"neither pinned: the older one": {
			uidOwner{a, "u", false, false, day(2)}, uidOwner{b, "u", false, false, day(1)}, b,
		},
		"as old as each other: by name": {uidOwner{b, "u", true, true, day(1)}, uidOwner{a, "u", true, true, day(1)}, a},
		"only one of that UID": {
			uidOwner{a, "u", false, false, day(2)}, uidOwner{b, "v", true, true, day(1)}, a,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, claims := range [][]uidOwner{{tc.a, tc.b}, {tc.b, tc.a}} {
				if got := owners(claims)["u"]; got != tc.want {
					t.Errorf("got %v, want %v", got, tc.want)
				}
			}
		})
	}
	if got := owners([]uidOwner{{a, "", false, false, day(1)}}); len(got) != 0 {
		t.Errorf("the empty UID has an owner: %v", got)
	}
}

// sealKey is that of the fleet in these tests.
var sealKey = seal.Key(strings.Repeat("k", 32))

// Whoever owns a Cluster can annotate it with the UID of any other one.
func TestWhoseAUIDIs(t *testing.T) {
	for name, test := range map[string]struct {
		pin   string
		own   bool // the pin is the hub's own
		found string
		took  bool // nobody had it then
		want  uidOwner
	}{
		"an annotation alone makes it nobody's":             {pin: "u", want: uidOwner{}},
		"nor is it of who leads to another cluster":         {pin: "u", found: "v", want: uidOwner{}},
		"it is of who is pinned, and leads there":           {pin: "u", found: "u", want: uidOwner{uid: "u", pinned: true}},
		"it is of whom the hub has pinned, also while away": {pin: "u", own: true, want: uidOwner{uid: "u", proved: true}},
		"it is of whom the hub has pinned, wherever it leads": {
			pin: "u", own: true, found: "v", want: uidOwner{uid: "u", proved: true},
		},
		"it is of who took it first": {
			found: "u", took: true, want: uidOwner{uid: "u", pinned: true},
		},
		"who came later leads there too": {found: "u", want: uidOwner{uid: "u"}},
	} {
		t.Run(name, func(t *testing.T) {
			m, _ := newTestMember(t)
			m.state.spec.pin, m.state.spec.pinProved, m.state.uid, m.state.ownsUID = test.pin, test.own, test.found, test.took
			test.want.key = testKey
			s := m.get()
			if got := s.uidOwner(testKey); got != test.want {
				t.Errorf("%+v, want %+v", got, test.want)
			}
		})
	}
}

// A cluster is made anew under its old name while somebody else's Cluster is annotated with its UID.
func TestAnAnnotationMakesNoOtherClusterADuplicate(t *testing.T) {
	c := clocktest.NewHand(clocktest.Start)
	p, annotated := newTestProvider(c)
	annotated.state.spec = spec{pin: "u", created: c.Now().Wall.Add(-time.Hour)}
	rightful := newMember(p.shared, Key{"elsewhere", "east"})
	rightful.state.uid, rightful.state.spec.created = "u", c.Now().Wall
	p.add(rightful)
	if !p.takeUID(rightful) {
		t.Error("it does not get its own UID")
	}
	if m, _ := p.Member(rightful.key); m.Problem.Reason == reason.DuplicateCluster {
		t.Error("it is a duplicate")
	}
	if m, _ := p.Member(testKey); m.Problem.Reason != reason.DuplicateCluster {
		t.Errorf("whoever was annotated is %+v", m.Problem)
	}
}
