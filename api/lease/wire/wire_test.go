package wire_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
)

const mac = "v1.gL3KIKEXpyWZJyDv-AlwP67S2fM7nqtgJtmENYuJRSs"

var noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func someLease() lease.Content {
	return lease.Content{
		Term: lease.Term{
			Holder: "east.default", Epoch: 600_000, AcquireTime: noon.Add(-time.Hour),
			RenewTime: noon.Add(123456 * time.Microsecond), Duration: 15 * time.Second,
		},
		Namespace: "team-a", Name: "leasecast", Cluster: "west.default", ClusterUID: "6f1c", Hub: "9b2d",
	}
}

// writtenLease returns the Lease of a content.
func writtenLease(t testing.TB, c lease.Content) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{}
	if err := wire.Write(c, mac, l); err != nil {
		t.Fatal(err)
	}
	return l
}

// stored is the Lease as an API server returns it.
func stored(t testing.TB, l *coordinationv1.Lease) *coordinationv1.Lease {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	back := &coordinationv1.Lease{}
	if err := json.Unmarshal(text, back); err != nil {
		t.Fatal(err)
	}
	return back
}

// sameContent compares times by the instant, in microseconds.
func sameContent(a, b lease.Content) bool {
	for _, c := range []*lease.Content{&a, &b} {
		c.AcquireTime = c.AcquireTime.UTC().Truncate(time.Microsecond)
		c.RenewTime = c.RenewTime.UTC().Truncate(time.Microsecond)
	}
	return a == b
}

func TestWriteAndRead(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*lease.Content)
		want   string // the error; empty: what is written is read
	}{
		"a follower's Lease":           {func(*lease.Content) {}, ""},
		"the first epoch":              {func(c *lease.Content) { c.Epoch = 0 }, ""},
		"the last epoch":               {func(c *lease.Content) { c.Epoch = math.MaxInt32 }, ""},
		"the longest duration":         {func(c *lease.Content) { c.Duration = math.MaxInt32 * time.Second }, ""},
		"another zone":                 {func(c *lease.Content) { c.RenewTime = noon.In(time.FixedZone("", -7*3600)) }, ""},
		"nanoseconds are cut":          {func(c *lease.Content) { c.RenewTime = noon.Add(time.Second - 1) }, ""},
		"a clock skew":                 {func(c *lease.Content) { c.Skew = 250 * time.Millisecond }, ""},
		"open locks":                   {func(c *lease.Content) { c.OpenLocks = "a,b" }, ""},
		"a negative epoch":             {func(c *lease.Content) { c.Epoch = -1 }, "epoch -1 does not fit"},
		"an epoch over 32 bits":        {func(c *lease.Content) { c.Epoch = 1 << 31 }, "epoch 2147483648 does not fit"},
		"no duration":                  {func(c *lease.Content) { c.Duration = 0 }, "duration 0s does not fit"},
		"a second and a half":          {func(c *lease.Content) { c.Duration = 3 * time.Second / 2 }, "1.5s does not fit"},
		"a duration over 32 bits":      {func(c *lease.Content) { c.Duration = 1 << 31 * time.Second }, "does not fit lease"},
		"a negative clock skew":        {func(c *lease.Content) { c.Skew = -time.Second }, "-1s is not whole milli"},
		"a clock skew of microseconds": {func(c *lease.Content) { c.Skew = 500 * time.Microsecond }, "500µs is not"},
	} {
		c, l := someLease(), &coordinationv1.Lease{}
		row.change(&c)
		err := wire.Write(c, mac, l)
		if row.want != "" {
			if err == nil || !strings.Contains(err.Error(), row.want) ||
				!strings.HasPrefix(err.Error(), "lease team-a/leasecast: ") {
				t.Errorf("%s: error %v, want %q", name, err, row.want)
			}
			if !equality.Semantic.DeepEqual(l, &coordinationv1.Lease{}) {
				t.Errorf("%s: an error, and %v is written", name, l)
			}
			continue
		}
		for where, l := range map[string]*coordinationv1.Lease{"in memory": l, "stored": stored(t, l)} {
			if got, seal := wire.Read(l); err != nil || !sameContent(got, c) || seal != mac || got.RenewTime.After(c.RenewTime) {
				t.Errorf("%s, %s: read    %+v, seal %s, error %v\nwritten %+v", name, where, got, seal, err, c)
			}
		}
	}
}

// The hub, admission policies and readers in other languages rely on these places.
func TestWhereALeaseIsStored(t *testing.T) {
	l := writtenLease(t, someLease())
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "leasecast",
			Labels: map[string]string{"leasecast.dev/managed": "true", "app.kubernetes.io/managed-by": "leasecast"},
			Annotations: map[string]string{
				"leasecast.dev/cluster": "west.default", "leasecast.dev/cluster-uid": "6f1c",
				"leasecast.dev/hub": "9b2d", "leasecast.dev/seal": mac,
			},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("east.default"), LeaseDurationSeconds: ptr.To(int32(15)),
			AcquireTime:      &metav1.MicroTime{Time: noon.Add(-time.Hour)},
			RenewTime:        &metav1.MicroTime{Time: noon.Add(123456 * time.Microsecond)},
			LeaseTransitions: ptr.To(int32(600_000)),
		},
	}
	if !equality.Semantic.DeepEqual(l, want) {
		t.Errorf("got  %v\nwant %v", l, want)
	}
	// What others wrote stays, but no election of theirs.
	l.UID, l.ResourceVersion = "uid", "42"
	l.Labels["example.com/team"], l.Annotations["example.com/note"] = "a", "b"
	kept := l.DeepCopy()
	l.Labels["leasecast.dev/managed"], l.Annotations["leasecast.dev/seal"] = "false", "broken"
	l.Spec.Strategy, l.Spec.PreferredHolder = ptr.To(coordinationv1.OldestEmulationVersion), ptr.To("another")
	if err := wire.Write(someLease(), mac, l); err != nil || !equality.Semantic.DeepEqual(l, kept) {
		t.Errorf("error %v\ngot  %v\nwant %v", err, l, kept)
	}
	for key, change := range map[string]func(c *lease.Content){
		"leasecast.dev/max-clock-skew-milliseconds": func(c *lease.Content) { c.Skew = 250 * time.Millisecond },
		"leasecast.dev/open-locks":                  func(c *lease.Content) { c.OpenLocks = "250" },
	} {
		c := someLease()
		change(&c)
		l := writtenLease(t, c)
		if l.Annotations[key] != "250" {
			t.Errorf("%s is %q", key, l.Annotations[key])
		}
		if err := wire.Write(someLease(), mac, l); err != nil || len(l.Annotations) != 4 {
			t.Errorf("without it: annotations %v, error %v", l.Annotations, err)
		}
	}
	for _, edit := range []string{"1s", "", "-250", "0.5", "99999999999"} {
		l.Annotations["leasecast.dev/max-clock-skew-milliseconds"] = edit
		if got, _ := wire.Read(l); got.Skew != 0 {
			t.Errorf("a clock skew of %q reads as %v", edit, got.Skew)
		}
	}
	if c, seal := wire.Read(&coordinationv1.Lease{}); c != (lease.Content{}) || seal != "" || c.LeadsHere() {
		t.Errorf("an empty Lease has seal %q, content %+v", seal, c)
	}
}

func TestMarksOfAHub(t *testing.T) {
	const managed, managedBy = "leasecast.dev/managed", "app.kubernetes.io/managed-by"
	label := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Labels[key] = value }
	}
	only := func(labels, annotations map[string]string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Labels, l.Annotations = labels, annotations }
	}
	for name, row := range map[string]struct {
		change         func(*coordinationv1.Lease)
		made, labelled bool
	}{
		"as written":                 {label("example.com/team", "a"), true, true},
		"another value of the label": {label(managed, "True"), true, false},
		"no value of the label":      {label(managed, ""), true, false},
		"the label alone":            {only(map[string]string{managed: "true"}, nil), true, true},
		"the seal alone":             {only(nil, map[string]string{"leasecast.dev/seal": "v1.x"}), true, false},
		"the cluster alone":          {only(nil, map[string]string{"leasecast.dev/cluster": "east"}), true, false},
		"the hub alone":              {only(nil, map[string]string{"leasecast.dev/hub": "9b2d"}), true, false},
		"an empty seal":              {only(nil, map[string]string{"leasecast.dev/seal": ""}), false, false},
		"a label that anyone writes": {only(map[string]string{managedBy: "leasecast"}, nil), false, false},
	} {
		l := writtenLease(t, someLease())
		row.change(l)
		if made, labelled := wire.MadeByHub(l), wire.Labelled(l); made != row.made || labelled != row.labelled {
			t.Errorf("%s: MadeByHub = %v, Labelled = %v, want %v, %v", name, made, labelled, row.made, row.labelled)
		}
	}
}

// seed adds the JSON of a Lease, and what an edit makes of it, to a fuzz test.
func seed(f *testing.F, l *coordinationv1.Lease, edits map[string]string) {
	f.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for old, by := range edits {
		if !strings.Contains(string(text), old) {
			f.Fatalf("%s does not contain %s", text, old)
		}
		f.Add([]byte(strings.Replace(string(text), old, by, 1)))
	}
}

// Whatever a Lease contains, it can be read, and what was read can be written where it fits.
func FuzzRead(f *testing.F) {
	seed(f, writtenLease(f, someLease()), map[string]string{
		`"holderIdentity":"east.default",`: ``,
		`"leaseTransitions":600000`:        `"leaseTransitions":null`,
		`"leaseDurationSeconds":15`:        `"leaseDurationSeconds":-2147483648`,
	})
	f.Add([]byte(`{"spec":{}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &coordinationv1.Lease{}
		if json.Unmarshal(text, l) != nil {
			return // an API server would not have stored it
		}
		c, seal := wire.Read(l)
		if c.LeadsHere() && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") {
			t.Errorf("leads without a holder: %+v", c)
		}
		again := l.DeepCopy()
		if wire.Write(c, seal, again) != nil {
			return
		}
		if got, is := wire.Read(again); !sameContent(got, c) || is != seal {
			t.Errorf("read    %+v\nwritten %+v", got, c)
		}
	})
}
