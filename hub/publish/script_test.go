package publish

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/assign"
)

// play runs scripts on a rig. Each line that is not indented names a script. Its steps follow in indented lines,
// separated by semicolons. Times are in seconds after zero, and D is 15 s unless a step has "for".
//
//   - read, create, update, remove, wait: the syncer's next step must be this one, as describe has it. "firstRenewal"
//     is how long after zero the first renewal of a term is due that began at zero;
//   - ok, unanswered, unanswered but done, forbidden, no namespace, unauthorized: what becomes of that request.
//     "stored" followed by changes: the member stores it with these, and the syncer pauses for 100 ms. Between
//
// "carried"
//
//	  and "answered", it is carried out but not answered;
//	- status, problem, mark, hub, allows, changed, unchanged: what must hold of the status, of the hub's mark in it and
//	  on the Lease, of the Lease's ε, and whether the controller is called;
//	- assign with a role and a term, lease with a term: a sealed Lease is put into the member, which no watch shows;
//	- at, wall, boot: the time on both clocks, or on one;
//	- edit with changes, touched, vanishes, shown, gone: what happens to the Lease, and what a watch shows of it.
//	  "edited" and "deleted" are shown at once. "shown old" shows what there was at "remember".
func play(t *testing.T, scripts string) {
	t.Helper()
	var name string
	steps := map[string][]string{}
	for line := range strings.SplitSeq(strings.Trim(scripts, "\n"), "\n") {
		if rest, indented := strings.CutPrefix(line, "\t"); indented {
			steps[name] = append(steps[name], strings.Split(strings.TrimSuffix(rest, ";"), "; ")...)
		} else if name = line; steps[name] != nil {
			t.Fatalf("two scripts are named %s", name)
		}
	}
	for name, steps := range steps {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			for _, step := range steps {
				r.play(step, strings.Fields(step))
			}
		})
	}
}

func (r *rig) play(step string, words []string) {
	r.t.Helper()
	switch words[0] {
	case "read", "create", "update", "remove", "wait":
		r.next(r.expand(step))
	case "ok":
		r.answered()
	case "unanswered":
		r.unanswered(len(words) > 1)
	case "forbidden":
		r.failed(errForbidden, pauseRefused)
	case "unauthorized":
		r.failed(apierrors.NewUnauthorized("expired"), pauseSilent)
	case "no":
		r.failed(apierrors.NewNotFound(leases, "ns"), pauseRefused)
	case "carried":
		r.heldObject, r.heldError = r.carry()
	case "answered":
		r.handed(r.heldObject, r.heldError)
	case "stored":
		r.altered(pauseSilent, changesOf(words[1:])...)
	case "status":
		r.facts(statusOf(words[1:]))
	case "problem":
		if got := r.syncer.status.Problem; got != reason.Reason(words[1]) {
			r.t.Fatalf("at %v the problem is %s, want %s", r.now.Wall.Sub(zero), got, words[1])
		}
	case "mark":
		r.marks(words[1] == "ours", words[1] == "none")
	case "hub":
		r.mark(strings.TrimPrefix(words[1], "none"))
	case "allows":
		if c, mac := wire.Read(r.there); c.Skew != time.Duration(seconds(words[1])*float64(second)) ||
			!testKey.Sealed(c, mac) {
			r.t.Fatalf("the Lease has the ε %v", c.Skew)
		}
	case "changed", "unchanged":
		r.statusChanges(words[0] == "changed")
	case "assign":
		r.playAssign(words[1:])
	case "lease":
		r.playLease(words[1:])
	default:
		r.happens(words)
	}
}

// happens plays what is not the syncer's.
func (r *rig) happens(words []string) {
	r.t.Helper()
	switch words[0] {
	case "leads":
		r.leads()
	case "follows":
		r.follows()
	case "at":
		r.at(seconds(words[1]))
	case "wall":
		r.now.Wall = wall(seconds(words[1]))
	case "boot":
		r.now.Boot = at(seconds(words[1])).Boot
	case "ε":
		r.syncer.timings.Skew = time.Duration(seconds(words[1]) * float64(second))
	case "may":
		r.may = len(words) == 1
	case "silent", "heard":
		r.heard = words[0] == "heard"
	case "unwatched", "watched":
		r.blind = words[0] == "unwatched"
	case "in":
		r.syncer.invalidate()
	case "relinquish":
		r.syncer.relinquished = true
	case "edit":
		r.edit(changesOf(words[1:])...)
	case "edited":
		edited(r)
	case "touched":
		r.edit()
	case "remember":
		r.remembered = r.there.DeepCopy()
	case "shown":
		if len(words) > 1 {
			r.syncer.observe(r.remembered)
		} else {
			r.show()
		}
	case "gone":
		r.syncer.observeGone()
	case "vanishes":
		r.there = nil
	case "deleted":
		deleted(r)
	default:
		r.t.Fatalf("no such step: %q", words)
	}
}

// expand computes the waits that depend on when a renewal is due.
func (r *rig) expand(step string) string {
	before, after, found := strings.Cut(step, "firstRenewal")
	if !found {
		return step
	}
	due := firstRenewal(r)
	if after != "" {
		due -= time.Duration(seconds(after[1:]) * float64(second))
	}
	return before + due.String()
}

func seconds(text string) float64 {
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func epochOf(text string) int64 { return int64(seconds(text)) }

// playAssign assigns a role: a holder, an epoch and options.
func (r *rig) playAssign(words []string) {
	roles := map[string]assign.Role{
		"lead": assign.Lead, "follow": assign.Follow, "hold": assign.Hold, "absent": assign.Absent, "revoke": assign.Revoke,
	}
	var of lease.Term
	var changes []func(*assign.Assignment)
	for _, option := range words[min(len(words), 3):] {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "first":
			changes = append(changes, first)
		case "fresh":
			changes = append(changes, minRenewTime(seconds(value)))
		case "revokes":
			changes = append(changes, revoking(term("east", epochOf(value))))
		case "for":
			of.Duration = time.Duration(seconds(value)) * second
		}
	}
	if len(words) > 1 {
		d := of.Duration
		if of = term(strings.TrimPrefix(words[1], "nobody"), epochOf(words[2])); d != 0 {
			of.Duration = d
		}
	}
	r.assign(roles[words[0]], of, changes...)
}

// playLease puts a Lease into the member: a holder, an epoch, "at" its renewTime and options.
func (r *rig) playLease(words []string) {
	c := contentOf(renewedAt(seconds(words[3]), term(strings.TrimPrefix(words[0], "nobody"), epochOf(words[1]))))
	key := testKey
	var edits []string
	for _, option := range words[4:] {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "by":
			c.Hub = value
		case "of":
			c.Cluster = value
		case "acquired":
			c.AcquireTime = wall(seconds(value))
		case "ofUID":
			c.ClusterUID = value
		case "unsealed":
			key = otherKey
		default:
			edits = append(edits, option)
		}
	}
	changes := changesOf(edits)
	if uid := r.syncer.ownUID; len(edits) > 0 && edits[0] == "sameObject" {
		changes = append(changes, func(l *coordinationv1.Lease) { l.UID = uid })
	}
	r.put(c, key, changes...)
}

// changesOf returns edits of a Lease.
func changesOf(edits []string) (changes []func(*coordinationv1.Lease)) {
	for _, edit := range edits {
		name, value, _ := strings.Cut(edit, "=")
		changes = append(changes, func(l *coordinationv1.Lease) {
			switch name {
			case "duration":
				l.Spec.LeaseDurationSeconds = ptr.To(int32(seconds(value)))
			case "epoch":
				l.Spec.LeaseTransitions = ptr.To(int32(seconds(value)))
			case "renewed":
				l.Spec.RenewTime = &metav1.MicroTime{Time: wall(seconds(value))}
			case "holder":
				l.Spec.HolderIdentity = &value
			case "hub":
				l.Annotations[v1alpha1.HubAnnotation] = value
			case "cluster":
				l.Annotations[v1alpha1.ClusterAnnotation] = value
			case "uid":
				l.Annotations[v1alpha1.ClusterUIDAnnotation] = value
			case "unlabelled":
				l.Labels = nil
			case "stripped":
				l.Labels, l.Annotations = nil, nil
			case "sameObject":
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
			s.MinRenewTime = wall(seconds(value))
		case "Failing":
			s.Failing = reason.Reason(value)
		case "Problem":
			s.Problem = reason.Reason(value)
		case "Newer":
			s.Newer = epochOf(value)
		case "PoisonedEpoch":
			s.PoisonedEpoch = epochOf(value)
		default:
			panic(errors.New("no such status: " + fmt.Sprint(words)))
		}
	}
	return s
}
