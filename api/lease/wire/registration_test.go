package wire_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
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

func someRegistration() lease.Registration {
	return lease.Registration{
		Identity: "pod-1_6f1c", Namespaces: []string{"promises", "shop"}, Confirmed: noon.Add(123456 * time.Microsecond),
		Duration: 15 * time.Second, Released: map[string]int64{"shop": 600_000, "old": 7},
		Account: "system:serviceaccount:shops:controller",
	}
}

// written is the Lease of a registration.
func written(t testing.TB, r lease.Registration) *coordinationv1.Lease {
	t.Helper()
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "leasecast-reader-x"}}
	if err := wire.WriteRegistration(r, l); err != nil {
		t.Fatal(err)
	}
	return l
}

func sameRegistration(a, b lease.Registration) bool {
	a.Confirmed, b.Confirmed = a.Confirmed.UTC(), b.Confirmed.UTC()
	return reflect.DeepEqual(a, b)
}

func TestARegistrationThatIsWrittenIsRead(t *testing.T) {
	many := make([]string, 1000)
	for i := range many {
		many[i] = fmt.Sprintf("team-%06d", i)
	}
	tests := map[string]func(*lease.Registration){
		"as it is":                   func(*lease.Registration) {},
		"of all namespaces":          func(r *lease.Registration) { r.Namespaces = nil },
		"of one":                     func(r *lease.Registration) { r.Namespaces = []string{"shop"} },
		"of a thousand":              func(r *lease.Registration) { r.Namespaces = many },
		"nothing is released":        func(r *lease.Registration) { r.Released = nil },
		"the first epoch":            func(r *lease.Registration) { r.Released = map[string]int64{"shop": 0} },
		"the last epoch that fits":   func(r *lease.Registration) { r.Released = map[string]int64{"shop": math.MaxInt32} },
		"a second":                   func(r *lease.Registration) { r.Duration = time.Second },
		"an hour":                    func(r *lease.Registration) { r.Duration = time.Hour },
		"the longest identity":       func(r *lease.Registration) { r.Identity = strings.Repeat("x", 1024) },
		"the longest account":        func(r *lease.Registration) { r.Account = strings.Repeat("x", 1024) },
		"as many as there is room":   func(r *lease.Registration) { r.Namespaces = asManyAsFit() },
		"an account with odd signs":  func(r *lease.Registration) { r.Account = `"é<>&, ` },
		"confirmed in another zone":  func(r *lease.Registration) { r.Confirmed = r.Confirmed.In(time.FixedZone("", -7*3600)) },
		"confirmed on a full second": func(r *lease.Registration) { r.Confirmed = noon },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			want := someRegistration()
			change(&want)
			got, err := wire.ReadRegistration(stored(t, written(t, want)))
			if err != nil || !sameRegistration(got, want) {
				t.Errorf("read    %+v (%v)\nwritten %+v", got, err, want)
			}
		})
	}
}

// asManyAsFit are namespaces that take 96 KiB with the commas between them.
func asManyAsFit() []string {
	all := []string{"0", strings.Repeat("1", 62)} // with 1535 of 63 bytes and 1536 commas
	for i := range 1535 {
		all = append(all, fmt.Sprintf("2%062d", i))
	}
	return all
}

func TestReleasesMayTakeAllTheirRoom(t *testing.T) {
	l := written(t, someRegistration())
	l.Annotations["reader.leasecast.dev/released"] = `{"shop":7` + strings.Repeat(" ", 96<<10-10) + "}"
	if r, err := wire.ReadRegistration(l); err != nil || !r.HasReleased("shop", 7) {
		t.Errorf("read %+v (%v)", r, err)
	}
}

func TestWhereEachFactOfARegistrationIsStored(t *testing.T) {
	l := written(t, someRegistration())
	later := someRegistration()
	later.Confirmed = noon.Add(time.Minute + 999*time.Nanosecond) // cut, so that less is promised
	if err := wire.WriteRegistration(later, l); err != nil {
		t.Fatal(err)
	}
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shops", Name: "leasecast-reader-x",
			Labels: map[string]string{"reader.leasecast.dev/registration": "true"},
			Annotations: map[string]string{
				"reader.leasecast.dev/namespaces": "promises,shop",
				"reader.leasecast.dev/released":   `{"old":7,"shop":600000}`,
				"reader.leasecast.dev/account":    "system:serviceaccount:shops:controller",
			},
			Finalizers: []string{"reader.leasecast.dev/registration"},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: ptr.To("pod-1_6f1c"), LeaseDurationSeconds: ptr.To(int32(15)),
			AcquireTime: &metav1.MicroTime{Time: noon.Add(123456 * time.Microsecond)}, // of the first confirmation
			RenewTime:   &metav1.MicroTime{Time: noon.Add(time.Minute)},
		},
	}
	if !equality.Semantic.DeepEqual(l, want) {
		t.Errorf("got  %v\nwant %v", l, want)
	}
	if wire.MadeByHub(l) {
		t.Error("a registration counts as a Lease of a hub")
	}
	l.Finalizers = append(l.Finalizers, "example.com/other")
	if wire.FreeRegistration(l); !slices.Equal(l.Finalizers, []string{"example.com/other"}) {
		t.Errorf("finalizers %v after ours was taken off", l.Finalizers)
	}
}

func TestARegistrationThatCannotBeStoredIsRefusedAndNothingIsWritten(t *testing.T) {
	tests := map[string]func(*lease.Registration){
		"no identity":              func(r *lease.Registration) { r.Identity = "" },
		"nothing at all":           func(r *lease.Registration) { *r = lease.Registration{} },
		"nothing but its name":     func(r *lease.Registration) { r.Duration, r.Namespaces, r.Released = 0, nil, nil },
		"an endless identity":      func(r *lease.Registration) { r.Identity = strings.Repeat("x", 1025) },
		"no account":               func(r *lease.Registration) { r.Account = "" },
		"never confirmed":          func(r *lease.Registration) { r.Confirmed = time.Time{} },
		"no duration":              func(r *lease.Registration) { r.Duration = 0 },
		"a negative duration":      func(r *lease.Registration) { r.Duration = -time.Second },
		"half a second more":       func(r *lease.Registration) { r.Duration = 1500 * time.Millisecond },
		"more than an hour":        func(r *lease.Registration) { r.Duration = time.Hour + time.Second },
		"more than fits":           func(r *lease.Registration) { r.Duration = (math.MaxInt32 + 1) * time.Second },
		"namespaces out of order":  func(r *lease.Registration) { r.Namespaces = []string{"shop", "promises"} },
		"a namespace that is none": func(r *lease.Registration) { r.Namespaces = []string{"a,b"} },
		"all as one":               func(r *lease.Registration) { r.Namespaces = []string{"*"} },
		"too many namespaces":      func(r *lease.Registration) { r.Namespaces = slices.Sorted(maps.Keys(tooMany())) },
		"too much released":        func(r *lease.Registration) { r.Released = tooMany() },
		"a negative epoch":         func(r *lease.Registration) { r.Released["shop"] = -1 },
		"an epoch over 32 bits":    func(r *lease.Registration) { r.Released["shop"] = math.MaxInt32 + 1 },
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			r := someRegistration()
			change(&r)
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "x"}}
			before := l.DeepCopy()
			if err := wire.WriteRegistration(r, l); err == nil || !strings.Contains(err.Error(), "registration shops/x: ") {
				t.Errorf("error %v, want one that names the Lease", err)
			}
			if !equality.Semantic.DeepEqual(l, before) {
				t.Errorf("something was written: %v", l)
			}
		})
	}
}

func tooMany() map[string]int64 {
	all := map[string]int64{}
	for i := range 10_000 {
		all[fmt.Sprintf("team-%06d", i)] = 1
	}
	return all
}

// Who never released anything is waited for until the term has run out.
func TestARegistrationThatSaysAnythingOddIsRefused(t *testing.T) {
	annotate := func(key, value string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { l.Annotations["reader.leasecast.dev/"+key] = value }
	}
	remove := func(key string) func(*coordinationv1.Lease) {
		return func(l *coordinationv1.Lease) { delete(l.Annotations, "reader.leasecast.dev/"+key) }
	}
	tests := map[string]func(*coordinationv1.Lease){
		"no label":                   func(l *coordinationv1.Lease) { l.Labels = nil },
		"another label":              func(l *coordinationv1.Lease) { l.Labels["reader.leasecast.dev/registration"] = "True" },
		"no annotations":             func(l *coordinationv1.Lease) { l.Annotations = nil },
		"no spec":                    func(l *coordinationv1.Lease) { l.Spec = coordinationv1.LeaseSpec{} },
		"no holder":                  func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
		"an empty holder":            func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = ptr.To("") },
		"no renewTime":               func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil },
		"a zero renewTime":           func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{} },
		"no duration":                func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil },
		"a duration of 68 years":     func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = ptr.To(int32(math.MaxInt32)) },
		"no account":                 remove("account"),
		"no namespaces":              remove("namespaces"),
		"empty namespaces":           annotate("namespaces", ""),
		"an empty namespace":         annotate("namespaces", "promises,,shop"),
		"a space":                    annotate("namespaces", "promises, shop"),
		"a namespace twice":          annotate("namespaces", "shop,shop"),
		"all and one":                annotate("namespaces", "*,shop"),
		"no releases":                remove("released"),
		"releases that are no JSON":  annotate("released", "shop=7"),
		"releases that are a list":   annotate("released", `["shop"]`),
		"releases that are none":     annotate("released", `[]`),
		"a release of a number":      annotate("released", `{7:8}`),
		"releases cut off":           annotate("released", `{"shop":7`),
		"releases with a tail":       annotate("released", `{"shop":7} {}`),
		"a namespace released twice": annotate("released", `{"shop":7,"shop":8}`),
		"a release of no namespace":  annotate("released", `{"":7}`),
		"a release of null":          annotate("released", `{"shop":null}`),
		"a release of a fraction":    annotate("released", `{"shop":7.5}`),
		"a release of a text":        annotate("released", `{"shop":"7"}`),
		"a release below 0":          annotate("released", `{"shop":-1}`),
		"a release over 32 bits":     annotate("released", `{"shop":2147483648}`),
		"endless releases":           annotate("released", `{}`+strings.Repeat(" ", 100<<10)),
		"endless namespaces":         annotate("namespaces", strings.Repeat("a", 100<<10)),
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			l := written(t, someRegistration())
			change(l)
			r, err := wire.ReadRegistration(l)
			if err == nil || !strings.Contains(err.Error(), "registration shops/leasecast-reader-x: ") {
				t.Errorf("error %v, want one that names the Lease", err)
			}
			if len(err.Error()) > 500 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			if r.HasReleased("shop", 1) {
				t.Error("counts as released")
			}
		})
	}
}

// Whatever a Lease holds, reading it ends in an error or in what can be written again.
func FuzzReadRegistration(f *testing.F) {
	text, err := json.Marshal(written(f, someRegistration()))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	for _, changed := range []struct{ old, by string }{
		{`"promises,shop"`, `"*"`},
		{`"promises,shop"`, `"shop,,"`},
		{`{\"old\":7,\"shop\":600000}`, `{}`},
		{`{\"old\":7,\"shop\":600000}`, `{\"old\":7,\"old\":8}`},
		{`{\"old\":7,\"shop\":600000}`, `{\"old\":[[[[`},
		{`{\"old\":7,\"shop\":600000}`, `null`},
		{`"leaseDurationSeconds":15`, `"leaseDurationSeconds":-1`},
		{`12:00:00.123456Z`, `13:00:00.123456+01:00`},
		{`"holderIdentity":"pod-1_6f1c"`, `"holderIdentity":null`},
	} {
		if !strings.Contains(string(text), changed.old) {
			f.Fatalf("%s does not contain %s", text, changed.old)
		}
		f.Add([]byte(strings.Replace(string(text), changed.old, changed.by, 1)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		l := &coordinationv1.Lease{}
		if json.Unmarshal(text, l) != nil {
			return // an API server would not have stored it
		}
		r, err := wire.ReadRegistration(l)
		if err != nil {
			return
		}
		if r.Identity == "" || r.Account == "" || r.Duration <= 0 || r.Duration > lease.MaxRegistration {
			t.Errorf("read %+v", r)
		}
		r.Confirmed = r.Confirmed.Truncate(time.Microsecond)
		again := &coordinationv1.Lease{}
		if err := wire.WriteRegistration(r, again); err != nil {
			t.Fatalf("read, and cannot be written: %v", err)
		}
		if got, err := wire.ReadRegistration(again); err != nil || !sameRegistration(got, r) {
			t.Errorf("read    %+v (%v)\nwritten %+v", got, err, r)
		}
	})
}
