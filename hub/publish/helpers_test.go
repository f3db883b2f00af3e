package publish

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// The syncer's tests count seconds after zero, at which the boot clock is 1000 s. The syncer is that of
// namespace ns in cluster east; D is 15 s, r 5 s. At zero, and so every 5 s from then on, a renewal is due.
var zero = due("ns", 5*second, time.Date(2026, time.January, 5, 12, 0, 0, 0, time.UTC)).UTC()

const (
	second    = time.Second
	fleetName = "fleet"
)

var (
	testKey  = seal.Key("a key for the tests of 32 bytes.")
	otherKey = seal.Key("another key for tests of 32 byte")

	errTimeout   = errors.New("context deadline exceeded")
	leases       = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	errForbidden = apierrors.NewForbidden(leases, "leasecast", errors.New("no"))

	testTimings = Timings{Renew: 5 * second, Timeout: 3 * second}
	ackTimings  = Timings{Renew: 5 * second, Timeout: 3 * second, Skew: second, LongestPromise: 16 * second}
)

func inSeconds(n float64) time.Duration { return time.Duration(math.Round(n * float64(second))) }

func wall(seconds float64) time.Time { return zero.Add(inSeconds(seconds)) }

func at(seconds float64) lease.Reading {
	return lease.Reading{Wall: wall(seconds), Boot: 1000*second + inSeconds(seconds)}
}

func keyOf(namespace string) types.NamespacedName {
	return types.NamespacedName{Namespace: namespace, Name: "leasecast"}
}

// term is the one that a cluster leads in an epoch, since zero.
func term(cluster string, epoch int64) lease.Term {
	t := lease.Term{Epoch: epoch, AcquireTime: zero, Duration: 15 * second}
	if cluster != "" {
		t.Holder = cluster + ".fleet"
	}
	return t
}

// contentOf is the content of a Lease of that term, renewed at zero, as this hub writes it into east.
func contentOf(namespace string, t lease.Term) lease.Content {
	t.RenewTime = zero
	return lease.Content{Term: t, Namespace: namespace, Name: "leasecast", Cluster: "east.fleet",
		ClusterUID: "uid-of-east", Hub: "hub"}
}

// Scripts are tables of tests. Each line that is not indented names a test. Its steps follow in indented lines,
// separated by semicolons.
func scriptsOf(t *testing.T, text string) map[string][]string {
	t.Helper()
	var name string
	steps := map[string][]string{}
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		if rest, indented := strings.CutPrefix(line, "\t"); indented {
			steps[name] = append(steps[name], strings.Split(strings.TrimSuffix(rest, ";"), "; ")...)
		} else if name = line; steps[name] != nil {
			t.Fatalf("two tests are named %s", name)
		}
	}
	return steps
}

func number(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	must(err)
	return n
}

func epochOf(text string) int64 { return int64(number(text)) }

// holder reads the name of a cluster, or "nobody".
func holder(text string) string { return strings.TrimPrefix(text, "nobody") }

// leaseOf reads a Lease as in "west 20 at -2 by=another duration=60": its holder, its epoch, its renewTime and options.
// Without them it is the one of west in epoch 20, renewed at zero. "unsealed" is sealed with another key. What changes
// the sealed content comes before that: by, of, ofUID and acquired.
func leaseOf(namespace string, words []string) *coordinationv1.Lease {
	if len(words) < 4 || words[2] != "at" {
		words = append([]string{"west", "20", "at", "0"}, words...)
	}
	c := contentOf(namespace, term(holder(words[0]), epochOf(words[1])))
	c.RenewTime = wall(number(words[3]))
	key := testKey
	var more []string
	for _, option := range words[4:] {
		switch name, value, _ := strings.Cut(option, "="); name {
		case "by":
			c.Hub = value
		case "of":
			c.Cluster = value
		case "ofUID":
			c.ClusterUID = value
		case "acquired":
			c.AcquireTime = wall(number(value))
		case "unsealed":
			key = otherKey
		default:
			more = append(more, option)
		}
	}
	obj := &coordinationv1.Lease{}
	must(seal.Write(key, c, obj))
	edit(more)(obj)
	return obj
}

// edits are what a client may do to a Lease, by the names that scripts give them.
var edits = map[string]func(l *coordinationv1.Lease, value string){
	"duration":   func(l *coordinationv1.Lease, v string) { l.Spec.LeaseDurationSeconds = ptr.To(int32(number(v))) },
	"epoch":      func(l *coordinationv1.Lease, v string) { l.Spec.LeaseTransitions = ptr.To(int32(number(v))) },
	"renewed":    func(l *coordinationv1.Lease, v string) { l.Spec.RenewTime = &metav1.MicroTime{Time: wall(number(v))} },
	"holder":     func(l *coordinationv1.Lease, v string) { l.Spec.HolderIdentity = &v },
	"hub":        func(l *coordinationv1.Lease, v string) { l.Annotations[v1alpha1.HubAnnotation] = v },
	"cluster":    func(l *coordinationv1.Lease, v string) { l.Annotations[v1alpha1.ClusterAnnotation] = v },
	"uid":        func(l *coordinationv1.Lease, v string) { l.Annotations[v1alpha1.ClusterUIDAnnotation] = v },
	"annotation": func(l *coordinationv1.Lease, v string) { l.Annotations["more"] = v },
	"label":      func(l *coordinationv1.Lease, v string) { l.Labels["more"] = v },
	"unlabelled": func(l *coordinationv1.Lease, _ string) { l.Labels = nil },
	"stripped":   func(l *coordinationv1.Lease, _ string) { l.Labels, l.Annotations = nil, nil },
	"object":     func(l *coordinationv1.Lease, v string) { l.UID = types.UID(v) },
}

// edit edits a Lease, as in "duration=60 unlabelled".
func edit(words []string) func(*coordinationv1.Lease) {
	return func(l *coordinationv1.Lease) {
		for _, word := range words {
			name, value, _ := strings.Cut(word, "=")
			edits[name](l, value)
		}
	}
}

// statusOf reads a status, as in "InPlace Problem=Unreachable".
func statusOf(words []string) (s SyncStatus) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch field := reflect.ValueOf(&s).Elem().FieldByName(name); {
		case word == "none":
		case name == "MinRenewTime":
			s.MinRenewTime = wall(number(value))
		case field.Kind() == reflect.Bool:
			field.SetBool(true)
		case field.Kind() == reflect.String:
			field.SetString(value)
		default:
			field.SetInt(epochOf(value))
		}
	}
	return s
}

// withoutMarks returns what statusOf can write.
func (f SyncStatus) withoutMarks() SyncStatus {
	f = f.withoutMessages()
	f.Marked, f.Released = false, 0
	return f
}

// registered is the registration of a reader of all namespaces, confirmed at zero for 15 s.
func registered(name string, version int, changes ...func(*lease.Registration)) *coordinationv1.Lease {
	r := lease.Registration{Identity: name, Account: "system:serviceaccount:pods:" + name, Confirmed: zero,
		Duration: 15 * second}
	for _, change := range changes {
		change(&r)
	}
	l := &coordinationv1.Lease{}
	l.Namespace, l.Name, l.UID, l.ResourceVersion = "pods", name, types.UID(name), strconv.Itoa(version)
	must(wire.WriteRegistration(r, l))
	return l
}

// registrationOf reads options of a registration, as in "released=20 for=60".
func registrationOf(words []string) func(*lease.Registration) {
	return func(r *lease.Registration) {
		for _, word := range words {
			name, value, _ := strings.Cut(word, "=")
			switch name {
			case "released":
				r.Released = map[string]int64{"ns": epochOf(value)}
			case "other":
				r.Released = map[string]int64{"other": epochOf(value)}
			case "confirmed":
				r.Confirmed = wall(number(value))
			case "follows":
				r.Namespaces = strings.Split(value, ",")
			case "for":
				r.Duration = inSeconds(number(value))
			case "torn", "":
			default:
				panic("no such option: " + word)
			}
		}
	}
}

// readerOf reads a registration as in "a@1 released=20": its name, its version and options. A torn one cannot be read.
func readerOf(text string) *coordinationv1.Lease {
	words := strings.Fields(text)
	name, version, _ := strings.Cut(words[0], "@")
	l := registered(name, int(number(version)), registrationOf(words[1:]))
	if slices.Contains(words, "torn") {
		l.Annotations[v1alpha1.ReaderReleasedAnnotation] = "{"
	}
	return l
}

func namespaces(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("team-%d", i)
	}
	return names
}
