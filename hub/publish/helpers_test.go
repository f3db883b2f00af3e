package publish

import (
	"errors"
	"fmt"
	"math"
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
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// The syncer's tests count seconds after zero, at which the boot clock is 1000 s. The syncer is that of
// namespace ns in cluster east; D is 15 s, r 5 s. At zero, and so every 5 s from then on, a renewal is due.
var zero = (&leaseSyncer{namespace: "ns", timings: Timings{Renew: 5 * second}}).due(lease.Content{
	Term: lease.Term{RenewTime: time.Date(2026, time.January, 5, 12, 0, 0, 0, time.UTC)},
}).UTC()

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
	var edits []string
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
			edits = append(edits, option)
		}
	}
	obj := &coordinationv1.Lease{}
	must(seal.Write(key, c, obj))
	for _, change := range changesOf(edits) {
		change(obj)
	}
	return obj
}

// changesOf returns edits of a Lease, as in "duration=60".
func changesOf(edits []string) (changes []func(*coordinationv1.Lease)) {
	for _, edit := range edits {
		name, value, _ := strings.Cut(edit, "=")
		changes = append(changes, func(l *coordinationv1.Lease) {
			switch name {
			case "duration":
				l.Spec.LeaseDurationSeconds = ptr.To(int32(number(value)))
			case "epoch":
				l.Spec.LeaseTransitions = ptr.To(int32(number(value)))
			case "renewed":
				l.Spec.RenewTime = &metav1.MicroTime{Time: wall(number(value))}
			case "holder":
				l.Spec.HolderIdentity = &value
			case "hub":
				l.Annotations[v1alpha1.HubAnnotation] = value
			case "cluster":
				l.Annotations[v1alpha1.ClusterAnnotation] = value
			case "uid":
				l.Annotations[v1alpha1.ClusterUIDAnnotation] = value
			case "annotation":
				l.Annotations["more"] = value
			case "label":
				l.Labels["more"] = value
			case "managedBy":
				l.Labels[v1alpha1.ManagedByLabel] = value
			case "unlabelled":
				l.Labels = nil
			case "stripped":
				l.Labels, l.Annotations = nil, nil
			case "object":
				l.UID = types.UID(value)
			default:
				panic("no such edit: " + edit)
			}
		})
	}
	return changes
}

// statusOf reads a status, as in "InPlace Problem=Unreachable".
func statusOf(words []string) (s SyncStatus) {
	for _, word := range words {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "none":
		case "InPlace":
			s.InPlace = true
		case "Lost":
			s.Lost = true
		case "Refused":
			s.Refused = true
		case "MinRenewTime":
			s.MinRenewTime = wall(number(value))
		case "Failing":
			s.Failing = reason.Reason(value)
		case "Problem":
			s.Problem = reason.Reason(value)
		case "Newer":
			s.Newer = epochOf(value)
		case "PoisonedEpoch":
			s.PoisonedEpoch = epochOf(value)
		default:
			panic("no such status: " + word)
		}
	}
	return s
}

// withoutMarks returns what statusOf can write.
func (f SyncStatus) withoutMarks() SyncStatus {
	f = f.withoutMessages()
	f.Marked, f.Unmarked, f.Released = false, false, 0
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
			case "account":
				r.Account = value
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
