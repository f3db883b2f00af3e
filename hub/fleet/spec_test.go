package fleet

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/multicluster-runtime/pkg/multicluster"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

func TestPriority(t *testing.T) {
	for name, tc := range map[string]struct {
		labels map[string]string
		want   int32
		reason reason.Reason
	}{
		"no label":                {nil, 0, reason.NoPriority},
		"an integer":              {map[string]string{v1alpha1.PriorityLabel: "100"}, 100, ""},
		"zero":                    {map[string]string{v1alpha1.PriorityLabel: "0"}, 0, ""},
		"leading zeros":           {map[string]string{v1alpha1.PriorityLabel: "007"}, 7, ""},
		"leading zeros, no octal": {map[string]string{v1alpha1.PriorityLabel: "08"}, 8, ""},
		"the largest":             {map[string]string{v1alpha1.PriorityLabel: "2147483647"}, 2147483647, ""},
		"one more":                {map[string]string{v1alpha1.PriorityLabel: "2147483648"}, 0, reason.InvalidPriority},
		"twenty digits":           {map[string]string{v1alpha1.PriorityLabel: "99999999999999999999"}, 0, reason.InvalidPriority},
		"empty":                   {map[string]string{v1alpha1.PriorityLabel: ""}, 0, reason.InvalidPriority},
		"an exponent":             {map[string]string{v1alpha1.PriorityLabel: "1e3"}, 0, reason.InvalidPriority},
		"a fraction":              {map[string]string{v1alpha1.PriorityLabel: "1.5"}, 0, reason.InvalidPriority},
		"hexadecimal":             {map[string]string{v1alpha1.PriorityLabel: "0x10"}, 0, reason.InvalidPriority},
		"a separator":             {map[string]string{v1alpha1.PriorityLabel: "1_000"}, 0, reason.InvalidPriority},
		"a sign":                  {map[string]string{v1alpha1.PriorityLabel: "-5"}, 0, reason.InvalidPriority},
		"another sign":            {map[string]string{v1alpha1.PriorityLabel: "+5"}, 0, reason.InvalidPriority},
		"a word":                  {map[string]string{v1alpha1.PriorityLabel: "high"}, 0, reason.InvalidPriority},
	} {
		t.Run(name, func(t *testing.T) {
			got, r := spec{labels: tc.labels}.priority()
			if got != tc.want || r != tc.reason {
				t.Errorf("got %d, %q; want %d, %q", got, r, tc.want, tc.reason)
			}
		})
	}
}

func TestReadSpec(t *testing.T) {
	secret := &corev1.Secret{Data: map[string][]byte{"value": []byte("kubeconfig")}}
	for name, tc := range map[string]struct {
		change func(*clusterv1.Cluster)
		secret *corev1.Secret
		check  func(spec) bool
	}{
		"a kubeconfig":                    {nil, secret, func(s spec) bool { return s.kubeconfig == "kubeconfig" && s.noKubeconfig == "" }},
		"no Secret":                       {nil, nil, func(s spec) bool { return s.kubeconfig == "" && strings.Contains(s.noKubeconfig, "east-kubeconfig") }},
		"a Secret without the key":        {nil, &corev1.Secret{}, func(s spec) bool { return strings.Contains(s.noKubeconfig, "value") }},
		"neither label nor pin: not kept": {nil, secret, func(s spec) bool { return !s.takesPart() && !s.keeps() }},
		"label: takes part": {func(c *clusterv1.Cluster) {
			c.Labels = map[string]string{v1alpha1.PriorityLabel: "x"}
		}, nil, func(s spec) bool { return s.takesPart() && s.keeps() }},
		"pin without label: kept": {func(c *clusterv1.Cluster) {
			c.Annotations = map[string]string{v1alpha1.ClusterUIDAnnotation: "u"}
		}, nil, func(s spec) bool { return !s.takesPart() && s.keeps() && s.pin == "u" }},
		"paused by spec":       {func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) }, nil, func(s spec) bool { return s.paused }},
		"not paused by spec":   {func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) }, nil, func(s spec) bool { return !s.paused }},
		"paused by annotation": {func(c *clusterv1.Cluster) { c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, nil, func(s spec) bool { return s.paused }},
		"moved":                {func(c *clusterv1.Cluster) { c.Annotations = map[string]string{deleteForMove: ""} }, nil, func(s spec) bool { return s.moved }},
		"deleted":              {func(c *clusterv1.Cluster) { c.DeletionTimestamp = ptr.To(metav1.Now()) }, nil, func(s spec) bool { return s.deleting }},
		"hints": {func(c *clusterv1.Cluster) {
			c.Status.Phase = "Provisioned"
			c.Status.Conditions = []metav1.Condition{{Type: "RemoteConnectionProbe", Status: "False"}, {Type: "Available", Status: "True"}, {Type: "Paused", Status: "True"}}
		}, nil, func(s spec) bool { return s.hint == "Provisioned Available=True RemoteConnectionProbe=False" }},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: "prod", Name: "east"}}
			if tc.change != nil {
				tc.change(c)
			}
			if s := readSpec(c, tc.secret); !tc.check(s) {
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
		"the pinned one, though younger": {uidOwner{a, "u", false, day(1)}, uidOwner{b, "u", true, day(2)}, b},
		"both pinned: the older one":     {uidOwner{a, "u", true, day(2)}, uidOwner{b, "u", true, day(1)}, b},
		"neither pinned: the older one":  {uidOwner{a, "u", false, day(2)}, uidOwner{b, "u", false, day(1)}, b},
		"as old as each other: by name":  {uidOwner{b, "u", true, day(1)}, uidOwner{a, "u", true, day(1)}, a},
		"only one of that UID":           {uidOwner{a, "u", false, day(2)}, uidOwner{b, "v", true, day(1)}, a},
	} {
		t.Run(name, func(t *testing.T) {
			for _, claims := range [][]uidOwner{{tc.a, tc.b}, {tc.b, tc.a}} {
				if got := owners(claims)["u"]; got != tc.want {
					t.Errorf("got %v, want %v", got, tc.want)
				}
			}
		})
	}
	if got := owners([]uidOwner{{a, "", false, day(1)}}); len(got) != 0 {
		t.Errorf("the empty UID has an owner: %v", got)
	}
}
