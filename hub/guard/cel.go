package guard

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard/locks"
)

// The expressions that fences are made of. The parameter of a fence is the managed Lease of the namespace that the
// request is about. An expression that reads a field which is not there is an error, and an error refuses.
const (
	// thisClusterLeads compares what only the hub writes. A Lease of somebody else has no such annotation.
	thisClusterLeads = "params.spec.holderIdentity == params.metadata.annotations['" + v1alpha1.ClusterAnnotation + "']"
	// endOfTerm is the deadline that every reader keeps to.
	endOfTerm = "timestamp(params.spec.renewTime) + duration(string(params.spec.leaseDurationSeconds) + 's')"

	// createdInTime asks the API server's own clock: a client cannot choose the creationTimestamp. It has whole seconds,
	// so it counts as the end of its second.
	createdInTime = "timestamp(object.metadata.creationTimestamp) + duration('1s') <= variables." + end
	// changedInTime asks the same clock: whatever sets a field is noted there with its time. A scale is noted without one,
	// so somebody else's note has to have one. A client can take all notes off an object, which nobody may write then.
	changedInTime = "object.metadata.managedFields.exists(m, has(m.time)) && " +
		"object.metadata.managedFields.all(m, !has(m.time) || timestamp(m.time) + duration('1s') <= variables." + end + ")"
	// noted: the object carries such notes.
	noted = "has(object.metadata.managedFields) && object.metadata.managedFields.size() > 0"

	// wholeObjects are the subresources that are written as a whole object, with its notes.
	wholeObjects = "'', 'status', 'ephemeralcontainers', 'resize', 'approval'"
	timeless     = "request.operation == 'DELETE' || request.resource.group == '' && request.resource.resource == 'bindings'"
	// writtenInTime leaves out what carries no time: a delete, and the subresources that are no whole object, such as
	// an eviction or the scale.
	writtenInTime = timeless + " || (!has(request.subResource) || request.subResource in [" + wholeObjects + "] ? " +
		"(request.operation == 'CREATE' ? " + createdInTime + " : " + noted + " && " + changedInTime + ") : " +
		"!(" + noted + ") || " + changedInTime + ")"

	// released lets a holder give its lock up, as client-go does: that makes nobody a leader.
	released = "(!has(object.spec.holderIdentity) || object.spec.holderIdentity == '')"
	// lockedInTime is for a lock, which changes with every renewal. So one without a note of this request is refused: by
	// lockNoted, whose answer says why.
	lockNoted    = released + " || " + noted
	lockedInTime = released + " || !(" + noted + ") || " + changedInTime
	// beginOfNow is a bound of this instant: nobody believes a renewTime that is later by more than ε. By a Lease of a hub
	// whose clock was ahead nobody knows when the term ends, so whatever is earlier is refused.
	beginOfNow = "timestamp(params.spec.renewTime) - duration(params.metadata.annotations['" + v1alpha1.MaxClockSkewAnnotation + "'] + 'ms')"
	// createdSince and notedSince ask for that, of an object that is created and of one that is changed.
	createdSince = "timestamp(object.metadata.creationTimestamp) + duration('1s') > variables." + begin
	notedSince   = "object.metadata.managedFields.exists(m, has(m.time) && timestamp(m.time) + duration('1s') > variables." + begin + ")"
	// unnoted: the request has set nothing, so no note of the object is newer than those before.
	unnoted = "has(oldObject.metadata.managedFields) && object.metadata.managedFields.all(m, !has(m.time) || " +
		"oldObject.metadata.managedFields.exists(o, has(o.time) && timestamp(o.time) >= timestamp(m.time)))"
	// writtenSince leaves out what carries no time, as writtenInTime does.
	writtenSince = timeless + " || has(request.subResource) && !(request.subResource in [" + wholeObjects + "]) || " +
		"(request.operation == 'CREATE' ? " + createdSince + " : " + unnoted + " || " + notedSince + ")"
	lockedSince = released + " || !(" + noted + ") || " + notedSince

	// tick is when a CronJob's Job is scheduled for. Of any other Job it is when it was created.
	tick = "has(object.metadata.annotations) && '" + scheduledAnnotation + "' in object.metadata.annotations ? " +
		"timestamp(object.metadata.annotations['" + scheduledAnnotation + "']) : timestamp(object.metadata.creationTimestamp)"
	// tickOfThisTerm keeps the first tick of a term from being one that another cluster has run.
	tickOfThisTerm = "variables." + scheduled + " >= timestamp(params.spec.acquireTime)"

	// stores leaves out dry runs. Those of the hub itself have names of their own.
	stores = "!(has(request.dryRun) && request.dryRun)"
	// changes leaves out an update of which nothing is stored.
	changes = "!(request.operation == 'UPDATE' && object == oldObject)"
	// managed leaves out the namespaces that are never managed, so nobody ever leads there.
	managed = "!request.namespace.startsWith('kube-')" // v1alpha1.NeverManaged
	// cleansUp lets a namespace that is going away lose its content, and the finalizers of that.
	cleansUp = "request.operation != 'CREATE' && namespaceObject.status.phase == 'Terminating'"
	// notTheCluster leaves out the users that a cluster itself works with: its programs, its nodes, and the controllers
	// that clean up.
	notTheCluster = "(!request.userInfo.username.startsWith('system:') || request.userInfo.username.startsWith('system:serviceaccount:') && " +
		"!request.userInfo.username.startsWith('system:serviceaccount:kube-'))"

	// scheduledAnnotation is set by the CronJob controller.
	scheduledAnnotation = "batch.kubernetes.io/cronjob-scheduled-timestamp"
)

// Names of variables in fences.
const (
	end       = "end"
	begin     = "begin"
	scheduled = "scheduled"
)

// probes is an expression: somebody asks whether the fence is in force.
func probes(name string) string {
	return fmt.Sprintf("request.resource.group == 'coordination.k8s.io' && has(request.name) && request.name == %s", strconv.Quote(name))
}

// fencedLock is an expression: the request is about this Lease.
func fencedLock(l locks.Lock) string {
	return fmt.Sprintf("request.namespace == %s && has(request.name) && request.name == %s", strconv.Quote(l.Namespace), strconv.Quote(l.Name))
}

// opened is an expression: the Lease of the leader lists this lock.
func opened(l locks.Lock) string {
	const open = "'" + v1alpha1.OpenLocksAnnotation + "'"
	return open + " in params.metadata.annotations && " + strconv.Quote(l.ID()) + " in params.metadata.annotations[" + open + "].split(',')"
}

// fencedWrite is an expression: the write is of one of these accounts or of such an object, and of one of these resources.
func fencedWrite(f v1alpha1.WriteFence) string {
	var who, what []string
	if len(f.ObjectLabels) > 0 {
		labels := &metav1.LabelSelector{MatchLabels: f.ObjectLabels}
		who = append(who, notTheCluster+" && (object != null && "+selects("object", labels)+" || oldObject != null && "+selects("oldObject", labels)+")")
	}
	for _, a := range f.ServiceAccounts {
		namespace := "request.namespace"
		if a.Namespace != "" {
			namespace = strconv.Quote(a.Namespace)
		}
		who = append(who, "request.userInfo.username == 'system:serviceaccount:' + "+namespace+" + "+strconv.Quote(":"+a.Name))
	}
	for _, r := range f.Resources {
		what = append(what, fmt.Sprintf("request.resource.group == %s && request.resource.resource in [%s]", strconv.Quote(r.Group), quoted(namesOf(r))))
	}
	return anyOf(who) + " && " + anyOf(what)
}

// namesOf are the resources. A Binding is an older way to write the subresource of a Pod.
func namesOf(r v1alpha1.FencedResources) []string {
	if r.Group == "" && slices.Contains(r.Names, "pods") && !slices.Contains(r.Names, "bindings") {
		return append(slices.Clone(r.Names), "bindings")
	}
	return r.Names
}

// keepsLabels is an expression: an object that its labels fence does not lose them. An update that only takes a label off
// carries no time, so it would be let through after the term, and then all others.
func keepsLabels(f v1alpha1.WriteFence) string {
	var keeps []string
	for _, key := range slices.Sorted(maps.Keys(f.ObjectLabels)) {
		keeps = append(keeps, hasLabel("object", key))
	}
	return "request.operation != 'UPDATE' || !(" + selects("oldObject", &metav1.LabelSelector{MatchLabels: f.ObjectLabels}) + ") || " + strings.Join(keeps, " && ")
}

// selects is an expression: the object of that name has labels that match.
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
	return fmt.Sprintf("has(%s.metadata.labels) && %s in %[1]s.metadata.labels", object, strconv.Quote(key))
}

func labelled(object, key string, values []string) string {
	return fmt.Sprintf("%s && %s.metadata.labels[%s] in [%s]", hasLabel(object, key), object, strconv.Quote(key), quoted(values))
}

func quoted(all []string) string {
	var qs []string
	for _, s := range all {
		qs = append(qs, strconv.Quote(s))
	}
	return strings.Join(qs, ", ")
}

func anyOf(expressions []string) string { return "(" + strings.Join(expressions, " || ") + ")" }
