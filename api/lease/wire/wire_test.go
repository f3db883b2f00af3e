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

var (
	key  = lease.Key("0123456789abcdef0123456789abcdef")
	noon = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
)

func someLease() lease.Content {
	return lease.Content{
		Term: lease.Term{
			Holder: "east.default", Epoch: 600_000, AcquireTime: noon.Add(-time.Hour),
			RenewTime: noon.Add(123456 * time.Microsecond), Duration: 15 * time.Second,
		},
		Namespace: "team-a", Name: "leasecast", Cluster: "west.default", ClusterUID: "6f1c", Hub: "9b2d",
	}
}

// stored is the Lease as an API server gives it back.
func stored(t *testing.T, l *coordinationv1.Lease) *coordinationv1.Lease {
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

// same compares times by the instant.
func same(a, b lease.Content) bool {
	for _, c := range []*lease.Content{&a, &b} {
		c.AcquireTime, c.RenewTime = c.AcquireTime.UTC(), c.RenewTime.UTC()
	}
	return a == b
}

func TestWhatIsWrittenIsReadAndSealed(t *testing.T) {
	tests := map[string]func(*lease.Content){
		"a follower's Lease":            func(*lease.Content) {},
		"the leader's Lease":            func(c *lease.Content) { c.Holder = c.Cluster },
		"nobody leads":                  func(c *lease.Content) { c.Holder = "" },
		"the first epoch":               func(c *lease.Content) { c.Epoch = 0 },
		"the last epoch that fits":      func(c *lease.Content) { c.Epoch = math.MaxInt32 },
		"a second":                      func(c *lease.Content) { c.Duration = time.Second },
		"the longest that fits":         func(c *lease.Content) { c.Duration = math.MaxInt32 * time.Second },
		"a renewTime in another zone":   func(c *lease.Content) { c.RenewTime = c.RenewTime.In(time.FixedZone("", -7*3600)) },
		"a renewTime on a whole second": func(c *lease.Content) { c.RenewTime = noon },
		"a start long ago":              func(c *lease.Content) { c.AcquireTime = time.Unix(0, 0) },
		"a term that never began":       func(c *lease.Content) { c.AcquireTime = time.Time{} },
		"names with odd characters":     func(c *lease.Content) { c.Hub = `"\u00e9<>&` },
		"the last microsecond there":    func(c *lease.Content) { c.RenewTime = noon.Add(time.Second - time.Microsecond) },
		"an allowance for clocks":       func(c *lease.Content) { c.Skew = 250 * time.Millisecond },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			want := someLease()
			change(&want)
			l := &coordinationv1.Lease{}
			if err := wire.Write(key, want, l); err != nil {
				t.Fatal(err)
			}
			got, seal := wire.Read(stored(t, l))
			if !same(got, want) {
				t.Errorf("read    %+v\nwritten %+v", got, want)
			}
			if !lease.Sealed(key, got, seal) {
				t.Error("the Lease is not sealed any more")
			}
		})
	}
}

// Each fact is in the place that protocol and readers in other languages know.
func TestWhereEachFactIsStored(t *testing.T) {
	l := &coordinationv1.Lease{}
	if err := wire.Write(key, someLease(), l); err != nil {
		t.Fatal(err)
	}
	seal := l.Annotations["leasecast.dev/seal"]
	if seal == "" {
		t.Error("there is no seal")
	}
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team-a", Name: "leasecast",
			Labels: map[string]string{"leasecast.dev/managed": "true", "app.kubernetes.io/managed-by": "leasecast"},
			Annotations: map[string]string{
				"leasecast.dev/cluster": "west.default", "leasecast.dev/cluster-uid": "6f1c",
				"leasecast.dev/hub": "9b2d", "leasecast.dev/seal": seal,
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
}

func TestRenewTimesAreCutSoThatLessIsPromised(t *testing.T) {
	c := someLease()
	c.RenewTime = noon.Add(999 * time.Nanosecond)
	c.AcquireTime = noon.Add(1999 * time.Nanosecond)
	l := &coordinationv1.Lease{}
	if err := wire.Write(key, c, l); err != nil {
		t.Fatal(err)
	}
	for name, got := range map[string]*coordinationv1.Lease{"in memory": l, "stored": stored(t, l)} {
		if !got.Spec.RenewTime.Time.Equal(noon) || !got.Spec.AcquireTime.Time.Equal(noon.Add(time.Microsecond)) {
			t.Errorf("%s: renewTime %v, acquireTime %v", name, got.Spec.RenewTime, got.Spec.AcquireTime)
		}
	}
}

func TestWhatALeaseCannotStoreIsRefusedAndNothingIsWritten(t *testing.T) {
	tests := map[string]struct {
		change func(*lease.Content)
		want   string
	}{
		"a negative epoch":         {func(c *lease.Content) { c.Epoch = -1 }, "epoch -1 does not fit"},
		"an epoch over 32 bits":    {func(c *lease.Content) { c.Epoch = math.MaxInt32 + 1 }, "epoch 2147483648 does not fit"},
		"no duration":              {func(c *lease.Content) { c.Duration = 0 }, "duration 0s does not fit"},
		"less than a second":       {func(c *lease.Content) { c.Duration = time.Second - 1 }, "does not fit leaseDurationSeconds"},
		"half a second more":       {func(c *lease.Content) { c.Duration = 1500 * time.Millisecond }, "duration 1.5s does not fit"},
		"a negative duration":      {func(c *lease.Content) { c.Duration = -time.Second }, "duration -1s does not fit"},
		"a negative allowance":     {func(c *lease.Content) { c.Skew = -time.Second }, "clock skew -1s is not whole milliseconds"},
		"half a millisecond":       {func(c *lease.Content) { c.Skew = time.Millisecond / 2 }, "clock skew 500µs is not whole milliseconds"},
		"a duration over 32 bits,": {func(c *lease.Content) { c.Duration = (math.MaxInt32 + 1) * time.Second }, "does not fit leaseDurationSeconds"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			c := someLease()
			test.change(&c)
			l := &coordinationv1.Lease{}
			err := wire.Write(key, c, l)
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "lease team-a/leasecast: ") {
				t.Errorf("error %v, want one about %q that names the Lease", err, test.want)
			}
			if !equality.Semantic.DeepEqual(l, &coordinationv1.Lease{}) {
				t.Errorf("something was written: %v", l)
			}
		})
	}
}

func TestWritingLeavesWhatOthersWroteButNoElectionOfTheirs(t *testing.T) {
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			UID: "uid", ResourceVersion: "42",
			Labels:      map[string]string{"example.com/team": "a", "leasecast.dev/managed": "false"},
			Annotations: map[string]string{"example.com/note": "b", "leasecast.dev/seal": "broken"},
		},
		Spec: coordinationv1.LeaseSpec{
			Strategy: ptr.To(coordinationv1.OldestEmulationVersion), PreferredHolder: ptr.To("somebody"),
			HolderIdentity: ptr.To("somebody"),
		},
	}
	if err := wire.Write(key, someLease(), l); err != nil {
		t.Fatal(err)
	}
	if l.UID != "uid" || l.ResourceVersion != "42" {
		t.Errorf("UID %q and resourceVersion %q, without which an update is no compare-and-swap", l.UID, l.ResourceVersion)
	}
	if l.Labels["example.com/team"] != "a" || l.Annotations["example.com/note"] != "b" {
		t.Errorf("labels %v, annotations %v", l.Labels, l.Annotations)
	}
	if l.Spec.Strategy != nil || l.Spec.PreferredHolder != nil {
		t.Error("the API server may elect a holder")
	}
	if c, seal := wire.Read(l); !lease.Sealed(key, c, seal) {
		t.Error("the Lease is not sealed")
	}
}

func TestTheAllowanceForClocksIsAnAnnotation(t *testing.T) {
	const annotation = "leasecast.dev/max-clock-skew-milliseconds"
	c, l := someLease(), &coordinationv1.Lease{}
	c.Skew = 250 * time.Millisecond
	if err := wire.Write(key, c, l); err != nil || l.Annotations[annotation] != "250" {
		t.Errorf("annotation %q, error %v", l.Annotations[annotation], err)
	}
	for name, edit := range map[string]string{
		"no number": "1s", "nothing": "", "below zero": "-250", "a fraction": "0.5", "more than any policy": "99999999999",
	} {
		edited := l.DeepCopy()
		edited.Annotations[annotation] = edit
		if got, seal := wire.Read(edited); got.Skew != 0 || lease.Sealed(key, got, seal) {
			t.Errorf("%s reads as %v (sealed: %v)", name, got.Skew, lease.Sealed(key, got, seal))
		}
	}
	c.Skew = 0
	if err := wire.Write(key, c, l); err != nil {
		t.Fatal(err)
	}
	if text, there := l.Annotations[annotation]; there {
		t.Errorf("a Lease that says nothing of it carries the annotation %q", text)
	}
}

func TestAnEmptyLeasePromisesNothing(t *testing.T) {
	c, seal := wire.Read(&coordinationv1.Lease{})
	if c != (lease.Content{}) || seal != "" {
		t.Errorf("seal %q, Lease %+v", seal, c)
	}
	if c.LeadsHere() || c.Live(noon) || lease.Sealed(key, c, seal) {
		t.Error("an empty Lease says something")
	}
}

func TestALeaseIsOursByAnyOfTheMarksThatOnlyAHubWrites(t *testing.T) {
	label := func(k, v string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{k: v}}}
	}
	annotation := func(k, v string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{k: v}}}
	}
	written := &coordinationv1.Lease{}
	if err := wire.Write(key, someLease(), written); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		lease *coordinationv1.Lease
		want  bool
	}{
		"a Lease":                          {written, true},
		"the label":                        {label("leasecast.dev/managed", "true"), true},
		"the label with another value":     {label("leasecast.dev/managed", "no"), true},
		"the seal":                         {annotation("leasecast.dev/seal", "v1.x"), true},
		"the cluster":                      {annotation("leasecast.dev/cluster", "east.default"), true},
		"the hub":                          {annotation("leasecast.dev/hub", "9b2d"), true},
		"a mark without a value":           {annotation("leasecast.dev/seal", ""), false},
		"nothing":                          {&coordinationv1.Lease{}, false},
		"the label that anybody may write": {label("app.kubernetes.io/managed-by", "leasecast"), false},
		"the mark in the wrong place":      {annotation("leasecast.dev/managed", "true"), false},
		"somebody's election": {&coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("pod-1"), LeaseTransitions: ptr.To(int32(3))}}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := wire.MadeByHub(test.lease); got != test.want {
				t.Errorf("Ours = %v, want %v", got, test.want)
			}
		})
	}
}

func TestALeaseIsLabelledIfReadersSeeIt(t *testing.T) {
	tests := map[string]struct {
		change func(*coordinationv1.Lease)
		want   bool
	}{
		"as written":              {func(*coordinationv1.Lease) {}, true},
		"with more labels":        {func(l *coordinationv1.Lease) { l.Labels["example.com/team"] = "a" }, true},
		"without our label":       {func(l *coordinationv1.Lease) { delete(l.Labels, "leasecast.dev/managed") }, false},
		"with it changed":         {func(l *coordinationv1.Lease) { l.Labels["leasecast.dev/managed"] = "True" }, false},
		"without the common one":  {func(l *coordinationv1.Lease) { delete(l.Labels, "app.kubernetes.io/managed-by") }, true},
		"with that one changed":   {func(l *coordinationv1.Lease) { l.Labels["app.kubernetes.io/managed-by"] = "Helm" }, true},
		"without any labels":      {func(l *coordinationv1.Lease) { l.Labels = nil }, false},
		"without any annotations": {func(l *coordinationv1.Lease) { l.Annotations = nil }, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			l := &coordinationv1.Lease{}
			if err := wire.Write(key, someLease(), l); err != nil {
				t.Fatal(err)
			}
			test.change(l)
			if got := wire.Labelled(l); got != test.want {
				t.Errorf("Labelled = %v, want %v", got, test.want)
			}
		})
	}
}

// Whatever a Lease holds, reading it does not fail; and it is sealed only if it says what was sealed.
func FuzzRead(f *testing.F) {
	original := someLease()
	l := &coordinationv1.Lease{}
	if err := wire.Write(key, original, l); err != nil {
		f.Fatal(err)
	}
	text, err := json.Marshal(l)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, changed := range []struct{ old, by string }{
		{`"holderIdentity":"east.default"`, `"holderIdentity":"west.default"`},
		{`"holderIdentity":"east.default",`, ``},
		{`"leaseTransitions":600000`, `"leaseTransitions":600001`},
		{`"leaseTransitions":600000`, `"leaseTransitions":null`},
		{`"leaseDurationSeconds":15`, `"leaseDurationSeconds":-2147483648`},
		{`12:00:00.123456Z`, `12:00:00.123457Z`},
		{`12:00:00.123456Z`, `13:00:00.123456+01:00`},
		{`"leasecast.dev/cluster":"west.default"`, `"leasecast.dev/cluster":"east.default"`},
		{`v1.`, `v2.`},
		{`"namespace":"team-a"`, `"namespace":"team-b"`},
	} {
		if !strings.Contains(string(text), changed.old) {
			f.Fatalf("%s does not contain %s", text, changed.old)
		}
		f.Add([]byte(strings.Replace(string(text), changed.old, changed.by, 1)))
	}
	f.Add([]byte(`{"spec":{}}`))
	f.Add([]byte(`{"metadata":{"annotations":{"leasecast.dev/seal":"v1."}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &coordinationv1.Lease{}
		if json.Unmarshal(text, l) != nil {
			return // an API server would not have stored it
		}
		c, seal := wire.Read(l)
		if lease.Sealed(key, c, seal) && !same(c, original) {
			t.Errorf("sealed, but never written: %+v", c)
		}
		if c.LeadsHere() && (l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "") {
			t.Errorf("nobody leads here: %+v", c)
		}
		again := l.DeepCopy()
		if wire.Write(key, c, again) != nil {
			return
		}
		if got, seal := wire.Read(again); !lease.Sealed(key, got, seal) {
			t.Errorf("not sealed after it was written: %+v", got)
		}
	})
}
