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

const prefix = "reader.leasecast.dev/" // of the annotations

func someRegistration() lease.Registration {
	return lease.Registration{
		Identity: "pod-1_6f1c", Namespaces: []string{"promises", "shop"}, Confirmed: noon.Add(123456 * time.Microsecond),
		Duration: 15 * time.Second, Released: map[string]int64{"shop": 600_000, "old": 7},
		Account: "system:serviceaccount:shops:controller",
	}
}

// blank is the Lease of a registration before its first write.
func blank() *coordinationv1.Lease {
	return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "shops", Name: "leasecast-reader-x"}}
}

// written is the Lease of a registration.
func written(t testing.TB, r lease.Registration) *coordinationv1.Lease {
	t.Helper()
	l := blank()
	if err := wire.WriteRegistration(r, l); err != nil {
		t.Fatal(err)
	}
	return l
}

func sameRegistration(a, b lease.Registration) bool {
	a.Confirmed, b.Confirmed = a.Confirmed.UTC(), b.Confirmed.UTC()
	return reflect.DeepEqual(a, b)
}

// names returns namespaces that take so many bytes with the commas between them, in multiples of 64 and one more.
func names(size int) (all []string) {
	all = []string{"0", strings.Repeat("1", 62)}
	for i := range size/64 - 1 {
		all = append(all, fmt.Sprintf("2%062d", i))
	}
	return all
}

func TestWriteAndReadRegistration(t *testing.T) {
	for name, row := range map[string]struct {
		change func(*lease.Registration)
		fits   bool
	}{
		"unchanged":             {func(*lease.Registration) {}, true},
		"all namespaces":        {func(r *lease.Registration) { r.Namespaces = nil }, true},
		"96 KiB of namespaces":  {func(r *lease.Registration) { r.Namespaces = names(96 << 10) }, true},
		"nothing is released":   {func(r *lease.Registration) { r.Released = nil }, true},
		"the first epoch":       {func(r *lease.Registration) { r.Released = map[string]int64{"shop": 0} }, true},
		"the last epoch":        {func(r *lease.Registration) { r.Released = map[string]int64{"a": 1<<31 - 1} }, true},
		"an hour":               {func(r *lease.Registration) { r.Duration = time.Hour }, true},
		"the longest identity":  {func(r *lease.Registration) { r.Identity = strings.Repeat("x", 1024) }, true},
		"the longest account":   {func(r *lease.Registration) { r.Account = strings.Repeat("x", 1024) }, true},
		"another zone":          {func(r *lease.Registration) { r.Confirmed = noon.In(time.FixedZone("", -7*3600)) }, true},
		"nothing is set":        {func(r *lease.Registration) { *r = lease.Registration{} }, false},
		"a longer identity":     {func(r *lease.Registration) { r.Identity = strings.Repeat("x", 1025) }, false},
		"a second and a half":   {func(r *lease.Registration) { r.Duration = 1500 * time.Millisecond }, false},
		"a star as a namespace": {func(r *lease.Registration) { r.Namespaces = []string{"*"} }, false},
		"too many namespaces":   {func(r *lease.Registration) { r.Namespaces = names(96<<10 + 64) }, false},
		"a negative epoch":      {func(r *lease.Registration) { r.Released["shop"] = -1 }, false},
	} {
		r, l := someRegistration(), blank()
		row.change(&r)
		err := wire.WriteRegistration(r, l)
		if !row.fits {
			if err == nil || !strings.HasPrefix(err.Error(), "registration shops/leasecast-reader-x: ") ||
				!equality.Semantic.DeepEqual(l, blank()) {
				t.Errorf("%s: error %v, written %v", name, err, l)
			}
			continue
		}
		if got, failed := wire.ReadRegistration(stored(t, l)); err != nil || failed != nil || !sameRegistration(got, r) {
			t.Errorf("%s: read    %+v (%v)\nwritten %+v (%v)", name, got, failed, r, err)
		}
		if claims := wire.ReadClaims(l); !slices.Equal(claims, r.Namespaces) {
			t.Errorf("%s: ReadClaims = %q", name, claims)
		}
	}
}

func TestWhereARegistrationIsStored(t *testing.T) {
	l := written(t, someRegistration())
	later := someRegistration()
	later.Confirmed = noon.Add(time.Minute + 999*time.Nanosecond) // cut, so that the reader acts a little less long
	if err := wire.WriteRegistration(later, l); err != nil {
		t.Fatal(err)
	}
	want := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shops", Name: "leasecast-reader-x",
			Labels: map[string]string{prefix + "registration": "true"},
			Annotations: map[string]string{
				prefix + "namespaces": "promises,shop",
				prefix + "released":   `{"old":7,"shop":600000}`,
				prefix + "account":    "system:serviceaccount:shops:controller",
			},
			Finalizers: []string{prefix + "registration"},
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
		t.Errorf("finalizers %v after FreeRegistration", l.Finalizers)
	}
}

// A hub waits until the term has run out for a reader whose registration it cannot read.
func TestEditedRegistrationIsRejected(t *testing.T) {
	edits := map[string]func(*coordinationv1.Lease){
		"no label":         func(l *coordinationv1.Lease) { l.Labels = nil },
		"no holder":        func(l *coordinationv1.Lease) { l.Spec.HolderIdentity = nil },
		"no renewTime":     func(l *coordinationv1.Lease) { l.Spec.RenewTime = nil },
		"a zero renewTime": func(l *coordinationv1.Lease) { l.Spec.RenewTime = &metav1.MicroTime{} },
		"no duration":      func(l *coordinationv1.Lease) { l.Spec.LeaseDurationSeconds = nil },
		"68 years":         func(l *coordinationv1.Lease) { *l.Spec.LeaseDurationSeconds = math.MaxInt32 },
	}
	endless := strings.Repeat("a", 100<<10)
	for key, values := range map[string][]string{
		"account":    {},
		"namespaces": {"", "promises,,shop", "promises, shop", "shop,shop", "*,shop", endless},
		"released": {"", "shop=7", `["shop"]`, `[]`, `{7:8}`, `{"shop":7`, `{"shop":7} {}`, `{"shop":7,"shop":8}`, `{"":7}`,
			`{"shop":null}`, `{"shop":7.5}`, `{"shop":"7"}`, `{"shop":-1}`, `{"shop":2147483648}`,
			`{}` + strings.Repeat(" ", 100<<10)},
	} {
		edits["no "+key] = func(l *coordinationv1.Lease) { delete(l.Annotations, prefix+key) }
		for _, value := range values {
			edits[fmt.Sprintf("%s %.20s", key, value)] = func(l *coordinationv1.Lease) { l.Annotations[prefix+key] = value }
		}
	}
	for name, edit := range edits {
		l := written(t, someRegistration())
		edit(l)
		r, err := wire.ReadRegistration(l)
		if err == nil || !strings.HasPrefix(err.Error(), "registration shops/leasecast-reader-x: ") ||
			len(err.Error()) > 500 {
			t.Errorf("%s: error %v", name, err)
		}
		if len(r.Released) > 0 {
			t.Errorf("%s: counts as released", name)
		}
		if claims := wire.ReadClaims(l); strings.HasPrefix(name, "namespaces") && claims != nil {
			t.Errorf("%s: ReadClaims = %q, want all", name, claims)
		}
	}
	l := written(t, someRegistration())
	l.Annotations[prefix+"released"] = `{"shop":7` + strings.Repeat(" ", 96<<10-10) + "}"
	if r, err := wire.ReadRegistration(l); err != nil || !maps.Equal(r.Released, map[string]int64{"shop": 7}) {
		t.Errorf("96 KiB of releases: read %+v (%v)", r, err)
	}
}

// Whatever a Lease contains, reading it ends in an error or in what can be written again.
func FuzzReadRegistration(f *testing.F) {
	const released = `{\"old\":7,\"shop\":600000}`
	seed(f, written(f, someRegistration()), map[string]string{
		`"promises,shop"`: `"*"`, released: `{}`, `"leaseDurationSeconds":15`: `"leaseDurationSeconds":-1`,
		`12:00:00.123456Z`: `13:00:00.123456+01:00`, `"holderIdentity":"pod-1_6f1c"`: `"holderIdentity":null`,
	})
	for _, by := range []string{`{\"old\":7,\"old\":8}`, `{\"old\":[[[[`, `null`} {
		seed(f, written(f, someRegistration()), map[string]string{released: by})
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
