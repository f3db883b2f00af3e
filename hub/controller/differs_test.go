package controller

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// filled sets everything in v to something that is not empty, two elements in every list.
func filled(t *testing.T, v reflect.Value, n int64) {
	t.Helper()
	if v.Type() == reflect.TypeFor[time.Time]() {
		v.Set(reflect.ValueOf(time.Unix(1_800_000_000+n, 0)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			filled(t, v.Field(i), n+int64(i))
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			filled(t, v.Index(i), n+int64(100*i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		filled(t, v.Elem(), n)
	case reflect.String:
		v.SetString(fmt.Sprint(n))
	case reflect.Int32, reflect.Int64:
		v.SetInt(1 + n)
	case reflect.Bool:
		v.SetBool(true)
	default:
		t.Fatalf("a status has a %v now: differs and this test must know it", v.Type())
	}
}

// eachChange changes every single thing in v, one after the other, and calls try while it is changed.
func eachChange(v reflect.Value, path string, try func(what string)) {
	change := func(what string, to reflect.Value) {
		before := reflect.New(v.Type()).Elem()
		before.Set(v)
		v.Set(to)
		try(path + " " + what)
		v.Set(before)
	}
	if v.Type() == reflect.TypeFor[time.Time]() {
		change("later", reflect.ValueOf(v.Interface().(time.Time).Add(time.Microsecond)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			eachChange(v.Field(i), path+"."+v.Type().Field(i).Name, try)
		}
	case reflect.Slice:
		for i := range v.Len() {
			eachChange(v.Index(i), fmt.Sprintf("%s[%d]", path, i), try)
		}
		change("is shorter", v.Slice(0, 1))
		change("is empty", reflect.Zero(v.Type()))
	case reflect.Pointer:
		eachChange(v.Elem(), path, try)
		change("is missing", reflect.Zero(v.Type()))
	case reflect.String:
		change("differs", reflect.ValueOf(v.String()+"x").Convert(v.Type()))
	case reflect.Bool:
		change("differs", reflect.ValueOf(!v.Bool()).Convert(v.Type()))
	default:
		change("differs", reflect.ValueOf(v.Int()+1).Convert(v.Type()))
	}
}

// By reflection, so that a field which somebody adds is not forgotten: what is not compared is
// not written, and an edit of it not noticed.
func TestEveryPartOfAStatusIsCompared(t *testing.T) {
	status := func() *v1alpha1.NamespaceLeaderStatus {
		s := &v1alpha1.NamespaceLeaderStatus{}
		filled(t, reflect.ValueOf(s).Elem(), 0)
		return s
	}
	a, b := status(), status()
	if differs(a, b) {
		t.Fatal("two statuses that say the same differ")
	}
	tried := 0
	eachChange(reflect.ValueOf(b).Elem(), "status", func(what string) {
		tried++
		if !differs(a, b) || !differs(b, a) {
			t.Errorf("%s, and that is no difference", what)
		}
	})
	if differs(a, b) {
		t.Fatal("a change was not taken back: the test is wrong")
	}
	if fields := reflect.TypeFor[v1alpha1.NamespaceLeaderStatus]().NumField(); tried < fields {
		t.Errorf("%d changes tried, and there are %d fields", tried, fields)
	}
}

func TestWhatSaysTheSameIsNoDifference(t *testing.T) {
	at := time.Unix(1_800_000_000, 123_456_000)
	full := func(at time.Time) *v1alpha1.NamespaceLeaderStatus {
		micro := metav1.MicroTime{Time: at}
		return &v1alpha1.NamespaceLeaderStatus{
			Since: &micro, AcquireTime: &micro, NotBefore: &micro,
			History:    []v1alpha1.Change{{Time: micro}},
			Conditions: []metav1.Condition{{LastTransitionTime: metav1.Time{Time: at}}},
		}
	}
	for name, pair := range map[string][2]*v1alpha1.NamespaceLeaderStatus{
		"nothing and nothing": {{}, {}},
		"no list and an empty one": {{}, {
			Candidates: []v1alpha1.Candidate{}, History: []v1alpha1.Change{}, Conditions: []metav1.Condition{},
		}},
		"one instant in two zones": {full(at.UTC()), full(at.In(time.FixedZone("", 3600)))},
		"a number behind two pointers": {
			{Candidates: []v1alpha1.Candidate{{Heeded: new(int32(7))}}},
			{Candidates: []v1alpha1.Candidate{{Heeded: new(int32(7))}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if differs(pair[0], pair[1]) || differs(pair[1], pair[0]) {
				t.Error("there is a difference")
			}
		})
	}
}
