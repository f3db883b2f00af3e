package guard

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard/locks"
	"github.com/leasecast/leasecast/hub/rights"
)

// The expressions that fences are made of. The parameter of a fence is the managed Lease of the request's
// namespace. An expression that reads an absent field is an error, and an error rejects.
const (
	// thisClusterLeads compares fields that only the hub writes. A Lease from another client has no such
	// annotation.
	thisClusterLeads = "params.spec.holderIdentity == params.metadata.annotations['" + v1alpha1.ClusterAnnotation + "']"
	// endOfTerm is the deadline that every reader keeps to.
	endOfTerm = "timestamp(params.spec.renewTime) + duration(string(params.spec.leaseDurationSeconds) + 's')"

	// createdInTime uses the API server's own clock: a client cannot choose the creationTimestamp. It has whole
	// seconds, so it counts as the end of its second.
	createdInTime = "timestamp(object.metadata.creationTimestamp) + duration('1s') <= variables." + end
	// changedInTime uses the same clock: managedFields has a time for whatever sets a field. An entry for a scale
	// has no time, so another entry must have one. A client can remove all entries from an object. Then this
	// expression is false, and the object cannot be written.
	changedInTime = "object.metadata.managedFields.exists(m, has(m.time)) && " +
		"object.metadata.managedFields.all(m, !has(m.time) || timestamp(m.time) + duration('1s') <= variables." + end + ")"
	// noted: the object has managedFields.
	noted = "has(object.metadata.managedFields) && object.metadata.managedFields.size() > 0"

	// wholeObjects are the subresources that are written as a whole object, with its managedFields.
	wholeObjects = "'', 'status', 'ephemeralcontainers', 'resize', 'approval'"
	timeless     = "request.operation == 'DELETE' || " +
		"request.resource.group == '' && request.resource.resource == 'bindings'"
	// writtenInTime accepts requests without a time: a delete, and the subresources that are no whole object, such
	// as an eviction or the scale.
	writtenInTime = timeless + " || (!has(request.subResource) || request.subResource in [" + wholeObjects + "] ? " +
		"(request.operation == 'CREATE' ? " + createdInTime + " : " + noted + " && " + changedInTime + ") : " +
		"!(" + noted + ") || " + changedInTime + ")"

	// released lets a holder release its lock, as client-go does: that makes no cluster a leader.
	released = "(!has(object.spec.holderIdentity) || object.spec.holderIdentity == '')"
	// lockedInTime is for a lock, which changes with every renewal. A lock without managedFields is rejected by
	// lockNoted, whose message explains why.
	lockNoted    = released + " || " + noted
	lockedInTime = released + " || !(" + noted + ") || " + changedInTime
	// beginOfNow is a lower bound of the present time: readers reject a renewTime that is later by more than ε. If
	// the hub's clock was ahead when it wrote the Lease, the end of the term is not known. So any earlier time is
	// rejected.
	beginOfNow = "timestamp(params.spec.renewTime) - " +
		"duration(params.metadata.annotations['" + v1alpha1.MaxClockSkewAnnotation + "'] + 'ms')"
	// createdSince and notedSince apply that bound to an object that is created, and to one that is changed.
	createdSince = "timestamp(object.metadata.creationTimestamp) + duration('1s') > variables." + begin
	notedSince   = "object.metadata.managedFields.exists(m, has(m.time) && " +
		"timestamp(m.time) + duration('1s') > variables." + begin + ")"
	// unnoted: the request has set nothing, so no entry in managedFields is newer than the earlier ones.
	unnoted = "has(oldObject.metadata.managedFields) && object.metadata.managedFields.all(m, !has(m.time) || " +
		"oldObject.metadata.managedFields.exists(o, has(o.time) && timestamp(o.time) >= timestamp(m.time)))"
	// writtenSince accepts requests without a time, as writtenInTime does.
	writtenSince = timeless + " || has(request.subResource) && !(request.subResource in [" + wholeObjects + "]) || " +
		"(request.operation == 'CREATE' ? " + createdSince + " : " + unnoted + " || " + notedSince + ")"
	lockedSince = released + " || !(" + noted + ") || " + notedSince

	// tick is the time that a CronJob's Job is scheduled for. For any other Job it is the creation time.
	tick = "has(object.metadata.annotations) && '" + scheduledAnnotation + "' in object.metadata.annotations ? " +
		"timestamp(object.metadata.annotations['" + scheduledAnnotation + "']) : timestamp(object.metadata.creationTimestamp)"
	// tickOfThisTerm rejects a tick before the term, which another cluster may have run.
	tickOfThisTerm = "variables." + scheduled + " >= timestamp(params.spec.acquireTime)"

	// stores excludes dry runs. The hub's own dry runs use probe names.
	stores = "!(has(request.dryRun) && request.dryRun)"
	// changes excludes an update that stores no change.
	changes = "!(request.operation == 'UPDATE' && object == oldObject)"
	// managed excludes the namespaces that are never managed, so that no cluster ever leads there.
	managed = "!request.namespace.startsWith('kube-')" // v1alpha1.NeverManaged
	// cleansUp lets a terminating namespace delete its content, and remove that content's finalizers.
	cleansUp = "request.operation != 'CREATE' && namespaceObject.status.phase == 'Terminating'"
	// notTheCluster excludes the users of the cluster itself: its programs, its nodes, and the controllers that
	// clean up. It also excludes the hub, by its own user and by the account of config/member: it writes the status of
	// CronJobs, and keeps objects.
	notTheCluster = "(!request.userInfo.username.startsWith('" + rights.UserPrefix + "') && " +
		"request.userInfo.username != 'system:serviceaccount:leasecast-system:leasecast-hub' && " +
		"(!request.userInfo.username.startsWith('system:') || " +
		"request.userInfo.username.startsWith('system:serviceaccount:') && " +
		"!request.userInfo.username.startsWith('system:serviceaccount:kube-')))"

	// scheduledAnnotation is set by the CronJob controller.
	scheduledAnnotation = "batch.kubernetes.io/cronjob-scheduled-timestamp"
)

// Names of variables in fences.
const (
	end       = "end"
	begin     = "begin"
	scheduled = "scheduled"
)

// probes returns an expression: the request is the probe of that name.
func probes(name string) string {
	return "request.resource.group == 'coordination.k8s.io' && " + named(name)
}

func named(name string) string { return "has(request.name) && request.name == " + strconv.Quote(name) }

// fencedLock returns an expression: the request is for this Lease.
func fencedLock(l locks.Lock) string {
	return "request.namespace == " + strconv.Quote(l.Namespace) + " && " + named(l.Name)
}

// opened returns an expression: the leader's Lease lists this lock.
func opened(l locks.Lock) string {
	return strconv.Quote(l.ID()) + " in params.metadata.annotations[?'" + v1alpha1.OpenLocksAnnotation + "']" +
		".orValue('').split(',')"
}

// fencedWrite returns an expression: one of these accounts writes, or such an object is written, and the resource
// is one of these.
func fencedWrite(f v1alpha1.WriteFence) string {
	var who, what []string
	if len(f.ObjectLabels) > 0 {
		labels := &metav1.LabelSelector{MatchLabels: f.ObjectLabels}
		before, after := "oldObject != null && "+selects("oldObject", labels), "object != null && "+selects("object", labels)
		who = append(who, notTheCluster+" && "+anyOf(after, before))
	}
	for _, a := range f.ServiceAccounts {
		namespace := "request.namespace"
		if a.Namespace != "" {
			namespace = strconv.Quote(a.Namespace)
		}
		user := "'system:serviceaccount:' + " + namespace + " + " + strconv.Quote(":"+a.Name)
		who = append(who, "request.userInfo.username == "+user)
	}
	for _, r := range f.Resources {
		what = append(what, fmt.Sprintf("request.resource.group == %q && request.resource.resource in %s",
			r.Group, list(namesOf(r))))
	}
	return anyOf(who...) + " && " + anyOf(what...)
}

// namesOf returns the names of the resources. A Binding is an older way to write the subresource of a Pod.
func namesOf(r v1alpha1.FencedResources) []string {
	if slices.Contains(r.Names, "pods") && !slices.Contains(r.Names, "bindings") {
		return append(slices.Clone(r.Names), "bindings")
	}
	return r.Names
}

// keepsLabels returns an expression: an object that is fenced by its labels keeps their keys. An update that only
// removes a label carries no time, so it would be accepted after the term. All other writes of the object would
// then be accepted too.
func keepsLabels(f v1alpha1.WriteFence) string {
	var keeps []string
	for _, key := range slices.Sorted(maps.Keys(f.ObjectLabels)) {
		keeps = append(keeps, hasLabel("object", key))
	}
	fenced := selects("oldObject", &metav1.LabelSelector{MatchLabels: f.ObjectLabels})
	return "request.operation != 'UPDATE' || !(" + fenced + ") || " + strings.Join(keeps, " && ")
}

// selects returns an expression: the object of that name has matching labels.
func selects(object string, s *metav1.LabelSelector) string {
	all := []string{"true"}
	for _, key := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		all = append(all, labelled(object, key, []string{s.MatchLabels[key]}))
	}
	for _, e := range s.MatchExpressions {
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			all = append(all, labelled(object, e.Key, e.Values))
		case metav1.LabelSelectorOpNotIn:
			all = append(all, "!("+labelled(object, e.Key, e.Values)+")")
		case metav1.LabelSelectorOpExists:
			all = append(all, hasLabel(object, e.Key))
		case metav1.LabelSelectorOpDoesNotExist:
			all = append(all, "!("+hasLabel(object, e.Key)+")")
		}
	}
	return strings.Join(all, " && ")
}

func hasLabel(object, key string) string {
	return fmt.Sprintf("%q in %s.metadata.?labels.orValue({})", key, object)
}

func labelled(object, key string, values []string) string {
	return fmt.Sprintf("%s && %s.metadata.labels[%q] in %s", hasLabel(object, key), object, key, list(values))
}

// list returns a list of strings, which looks in CEL as it does in JSON.
func list(all []string) []byte {
	raw, _ := json.Marshal(all) // strings always marshal
	return raw
}

func anyOf(expressions ...string) string { return "(" + strings.Join(expressions, " || ") + ")" }
