package guard

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/guard/locks"
)

// Fence has a member reject acts outside the term of the leader. The gate evaluates the namespace's Lease. Where
// there is no Lease, an API server rejects every request that the policy's rules match, from everyone. So the gate
// covers namespaces that were seen to have a Lease. For all others there are walls, which reject what the fence
// covers: one for the named namespaces, and one for the selected ones. Each of these admission policies has a name
// that ends in a fingerprint of its content. So a message with the name shows which version is in force.
//
// A change of the named or selected namespaces makes another wall, and keeps the gate.
type Fence struct {
	gate      Policy
	walls     []Policy              // no wall for a lock
	lease     string                // the Lease's name in every namespace
	names     []string              // the namespaces that it covers
	selector  *metav1.LabelSelector // and the matching ones
	lost      []string              // excluded, because another policy owns them
	warns     bool
	schedules labels.Selector                 // selects Jobs; nil: the fence does not cover Jobs
	lock      *locks.Lock                     // nil: the fence does not cover a lock
	accounts  []v1alpha1.FencedServiceAccount // the accounts whose writes it covers
	elsewhere []string                        // namespaces whose administrator has to allow the fence
}

// The messages of the API server, where no messageExpression says more.
const (
	notLeading    = "this cluster does not lead the namespace"
	termIsOver    = "the term of this cluster is over"
	earlierTick   = "the Job is scheduled for a time before this cluster led the namespace"
	fromTheFuture = "the clock of the hub that has written the Lease of this namespace is ahead, " +
		"so nobody knows when the term ends"
	lockUnnoted = "this lock has lost its managedFields, so nobody knows when it is renewed: " +
		"delete this Lease, and its holder creates it again"
	lockNotOpen = "this lock is not open yet: the hub opens it when every earlier holder must have stopped"
	noLeader    = "the hub has not written the Lease of this namespace yet, so no cluster leads it"
	labelTaken  = "the label by which this object is fenced can be given another value, but not be taken off: " +
		"the API server notes no time for that"
	isProbe = "nobody may create this Lease: it is asked for to see whether the fence is in force"
)

type (
	policySpec = admissionv1.ValidatingAdmissionPolicySpec
	validation = admissionv1.Validation
	rules      = admissionv1.NamedRuleWithOperations
)

// Fences returns the fences that a policy asks for: one for each of its lists, one for accounts elsewhere, and one
// for each lock. They exclude the lost namespaces, which another policy owns.
func Fences(hub string, o *v1alpha1.LeadershipPolicy, lost []string) (fs []Fence) {
	fencing := o.Spec.Fencing
	if fencing == nil {
		return nil
	}
	own, elsewhere := splitWrites(o)
	if len(own) > 0 {
		f := newFence(hub, o, "writes", writesSpec(own), lost, nil)
		f.accounts, _ = accountsOf(own)
		fs = append(fs, f)
	}
	if len(elsewhere) > 0 {
		f := newFence(hub, o, "accounts", writesSpec(elsewhere), lost, nil)
		f.accounts, f.elsewhere = accountsOf(elsewhere)
		fs = append(fs, f)
	}
	if fencing.Schedules != nil {
		f := newFence(hub, o, "schedules", schedulesSpec(fencing.Schedules), lost, nil)
		f.schedules, _ = metav1.LabelSelectorAsSelector(fencing.Schedules) // it is valid, or the policy is not
		fs = append(fs, f)
	}
	for _, l := range locks.Of(fencing) {
		if names := o.Spec.Namespaces.Names; len(names) == 1 && !slices.Contains(lost, names[0]) {
			fs = append(fs, newFence(hub, o, "lock", lockSpec(l, fencing.Enforcement), nil, &l))
		}
	}
	return fs
}

// Name returns the gate's name.
func (f Fence) Name() string { return f.gate.Policy.Name }

// PolicyName returns the name of the LeadershipPolicy that asks for the fence.
func (f Fence) PolicyName() string { return f.gate.Policy.Annotations[v1alpha1.PolicyAnnotation] }

// Names returns the names of all objects that the fence keeps in a member, the gate's first.
func (f Fence) Names() []string {
	names := []string{f.Name()}
	for _, w := range f.walls {
		names = append(names, w.Policy.Name)
	}
	return names
}

// Warns reports whether the fence only warns, and rejects nothing.
func (f Fence) Warns() bool { return f.warns }

// Schedules returns the selector of the Jobs that the fence covers, by their labels. It is nil if the fence does
// not cover Jobs.
func (f Fence) Schedules() labels.Selector { return f.schedules }

// Selects reports whether the fence covers a namespace with these labels. It decides as the API server does.
func (f Fence) Selects(namespace string, set map[string]string) bool {
	if isLost := slices.Contains(f.lost, namespace); isLost || slices.Contains(f.names, namespace) {
		return !isLost
	}
	s, err := metav1.LabelSelectorAsSelector(f.selector)
	return err == nil && s.Matches(labels.Set(set)) && !v1alpha1.NeverManaged(namespace)
}

// Lock returns the lock that the fence covers, or false.
func (f Fence) Lock() (lock locks.Lock, ok bool) {
	if f.lock == nil {
		return lock, false
	}
	return *f.lock, true
}

// Accounts returns the service accounts whose writes the fence covers.
func (f Fence) Accounts() []v1alpha1.FencedServiceAccount { return f.accounts }

// LeaseName returns the name of the Lease that the fence evaluates, in every namespace.
func (f Fence) LeaseName() string { return f.lease }

// newFence returns a fence. A lock's fence evaluates the Lease of the one namespace that the policy manages.
func newFence(
	hub string, o *v1alpha1.LeadershipPolicy, kind string, spec policySpec, lost []string, lock *locks.Lock,
) Fence {
	f := Fence{
		lease: o.LeaseName(), names: o.Spec.Namespaces.Names, selector: o.Spec.Namespaces.Selector,
		lost: lost, warns: o.Spec.Fencing.Enforcement == v1alpha1.EnforcementWarn, lock: lock,
	}
	var lockIn []string // the namespaces that the fence of a lock depends on
	if lock != nil {
		lockIn = append([]string{lock.Namespace}, f.names...)
	}
	version := []any{o.Namespace, o.Name, kind, spec, f.lease, f.warns, lockIn}
	f.gate = f.part(hub, o, kind, "gate", fingerprint(version), spec)
	param := &admissionv1.ParamRef{Name: f.lease, ParameterNotFoundAction: ptr.To(admissionv1.DenyAction)}
	if f.warns {
		param.ParameterNotFoundAction = ptr.To(admissionv1.AllowAction) // DenyAction would reject
	}
	f.gate.Binding.Spec.ParamRef = param
	f.gate.provokedToo = denial(f.Name(), "failed to configure binding: no params found")
	if lock != nil {
		param.Namespace = f.names[0]
		f.gate.Binding.Spec.MatchResources.NamespaceSelector = whereAllowed(lock.Namespace, f.names[0])
		if lock.Namespace != f.names[0] {
			f.elsewhere = []string{lock.Namespace}
		}
		return f
	}
	var covered []*metav1.LabelSelector
	if len(f.names) > 0 {
		covered = append(covered, in(f.names...))
	}
	if f.selector != nil {
		covered = append(covered, f.selector)
	}
	for _, s := range covered {
		wall := f.part(hub, o, kind, "wall", fingerprint(append(version, s)), walled(spec))
		wall.Binding.Spec.MatchResources.NamespaceSelector = s
		f.walls = append(f.walls, wall)
	}
	return f
}

// part returns the gate or a wall, without its namespaces.
func (f Fence) part(hub string, o *v1alpha1.LeadershipPolicy, kind, name, version string, spec policySpec) Policy {
	spec = *spec.DeepCopy()
	meta := metav1.ObjectMeta{
		Name:        fenceName(o, kind, name+"-"+version),
		Labels:      map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue, v1alpha1.FenceLabel: o.Namespace},
		Annotations: map[string]string{v1alpha1.HubAnnotation: hub, v1alpha1.PolicyAnnotation: o.Name},
	}
	probe := "leasecast-" + name + "-probe-" + version
	// Without the parameter, everything that the rules match is rejected. The rules must not match other Leases:
	// the hub has to write the managed one again, and programs elect themselves.
	names := []string{probe}
	if f.lock != nil {
		names = append(names, f.lock.Name)
	}
	spec.MatchConstraints.ResourceRules[0].ResourceNames = names
	spec.MatchConditions[0].Expression = anyOf(probes(probe), stores+" && "+spec.MatchConditions[0].Expression)
	spec.Validations = slices.Insert(spec.Validations, 0, forbids("!("+probes(probe)+")", isProbe))
	actions := []admissionv1.ValidationAction{admissionv1.Deny}
	if f.warns {
		actions = []admissionv1.ValidationAction{admissionv1.Warn, admissionv1.Audit}
	}
	p := withBinding(meta, spec, actions...)
	p.Binding.Spec.MatchResources = &admissionv1.MatchResources{
		MatchPolicy: ptr.To(admissionv1.Equivalent), ObjectSelector: &metav1.LabelSelector{},
	}
	p.probe, p.provoked = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: probe}}, denial(meta.Name, isProbe)
	return p
}

// denial returns how an API server rejects a request by a policy.
func denial(name, why string) string {
	return fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%[1]s' denied request: %s", name, why)
}

func in(namespaces ...string) *metav1.LabelSelector {
	named := requirement(corev1.LabelMetadataName, metav1.LabelSelectorOpIn, slices.Sorted(slices.Values(namespaces))...)
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{named}}
}

func notIn(namespaces []string) metav1.LabelSelectorRequirement {
	return requirement(corev1.LabelMetadataName, metav1.LabelSelectorOpNotIn, namespaces...)
}

func requirement(key string, o metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: o, Values: values}
}

// walled returns a spec with the same rules that rejects everything but the cleanup of a terminating namespace.
func walled(spec policySpec) policySpec {
	spec.ParamKind, spec.Variables = nil, nil
	spec.Validations = []validation{forbids(cleansUp, noLeader)}
	return spec
}

// fenceName includes the name of the policy that asks for the fence, for people.
func fenceName(o *v1alpha1.LeadershipPolicy, kind, version string) string {
	const longest = 150 // a name has at most 253 characters, and a fleet at most 63
	name := o.Name[:min(len(o.Name), longest)]
	return strings.Join([]string{strings.TrimRight(name, "-."), o.Namespace, kind, version, "leasecast.dev"}, ".")
}

// gateIn returns the gate for these namespaces. There must be at least one.
func (f Fence) gateIn(namespaces []string) Policy {
	p := f.gate
	p.Binding = p.Binding.DeepCopy()
	p.Binding.Annotations[boundAnnotation] = strings.Join(namespaces, ",")
	p.Binding.Spec.MatchResources.NamespaceSelector = in(namespaces...)
	return p
}

// wallBut returns a wall without these namespaces: the lost ones, and the gated ones.
func wallBut(wall Policy, lost, gated []string) Policy {
	wall.Binding = wall.Binding.DeepCopy()
	wall.Binding.Annotations[boundAnnotation] = strings.Join(lost, ",") + "/" + strings.Join(gated, ",")
	s := wall.Binding.Spec.MatchResources.NamespaceSelector
	if len(lost) > 0 {
		s.MatchExpressions = append(s.MatchExpressions, notIn(lost))
	}
	s.MatchExpressions = append(s.MatchExpressions, notIn(slices.Concat(neverManaged, gated)))
	return wall
}

// writesSpec rejects writes by accounts, or writes to objects. Its first match condition selects them.
func writesSpec(writes []v1alpha1.WriteFence) policySpec {
	var fenced []string
	var keep []validation
	all := []rules{leases(admissionv1.Create)}
	for _, w := range writes {
		fenced = append(fenced, fencedWrite(w))
		if len(w.ObjectLabels) > 0 {
			keep = append(keep, forbids(keepsLabels(w), labelTaken))
		}
		for _, r := range w.Resources {
			var names []string
			for _, n := range namesOf(r) {
				names = append(names, n, n+"/*")
			}
			all = append(all, rule(r.Group, "*", names, admissionv1.Create, admissionv1.Update, admissionv1.Delete))
		}
	}
	spec := fenceSpec(all, changes+" && "+managed+" && "+anyOf(fenced...), term,
		judged(thisClusterLeads, writtenInTime, writtenSince, keep...))
	for i := range spec.Validations {
		spec.Validations[i].Expression = cleansUp + " || (" + spec.Validations[i].Expression + ")"
	}
	return spec
}

// schedulesSpec rejects Jobs. The hub's probe has no label, so a match condition applies the selector: the fence's
// ObjectSelector would exclude the probe.
func schedulesSpec(selector *metav1.LabelSelector) policySpec {
	jobs := rule(batchv1.GroupName, batchv1.SchemeGroupVersion.Version, []string{"jobs"}, admissionv1.Create)
	return fenceSpec([]rules{leases(admissionv1.Create), jobs},
		managed+" && request.resource.group == 'batch' && "+selects("object", selector),
		append(slices.Clone(term), admissionv1.Variable{Name: scheduled, Expression: tick}),
		judged(thisClusterLeads, createdInTime, createdSince, forbids(tickOfThisTerm, earlierTick)))
}

// lockSpec rejects requests by which a controller takes or renews its lock. With mode Warn, the hub opens no locks.
func lockSpec(lock locks.Lock, mode v1alpha1.Enforcement) policySpec {
	more := []validation{forbids(lockNoted, lockUnnoted)}
	if mode != v1alpha1.EnforcementWarn {
		more = append(more, forbids(released+" || "+opened(lock), lockNotOpen))
	}
	return fenceSpec([]rules{leases(admissionv1.Create, admissionv1.Update)}, fencedLock(lock), term,
		judged(released+" || "+thisClusterLeads, lockedInTime, lockedSince, more...))
}

// judged returns the validations of a gate. The ones after the first apply to leaders only: if the first one fails,
// a warning needs no other.
func judged(leads, inTime, since string, more ...validation) []validation {
	all := append([]validation{
		forbids(leads, notLeading), forbids(inTime, termIsOver), forbids(since, fromTheFuture),
	}, more...)
	const holder = "params.spec.holderIdentity"
	all[0].MessageExpression = "'" + notLeading + ": its leader is ' + (" + holder + " == '' ? 'nobody' : " + holder + ")"
	all[1].MessageExpression = "'" + termIsOver + ": it ended at ' + string(variables." + end + ")"
	for i := range all[1:] {
		all[i+1].Expression = "!(" + leads + ") || (" + all[i+1].Expression + ")"
	}
	return all
}

func forbids(unless, message string) validation {
	return validation{Expression: unless, Message: message, Reason: ptr.To(metav1.StatusReasonForbidden)}
}

// term are the variables for the end of the term, and for the earliest time that its Lease allows.
var term = []admissionv1.Variable{{Name: end, Expression: endOfTerm}, {Name: begin, Expression: beginOfNow}}

func fenceSpec(all []rules, about string, variables []admissionv1.Variable, validations []validation) policySpec {
	return policySpec{
		FailurePolicy: ptr.To(admissionv1.Fail),
		ParamKind:     &admissionv1.ParamKind{APIVersion: coordinationv1.SchemeGroupVersion.String(), Kind: "Lease"},
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy: ptr.To(admissionv1.Equivalent), NamespaceSelector: &metav1.LabelSelector{},
			ObjectSelector: &metav1.LabelSelector{}, ResourceRules: all,
		},
		MatchConditions: []admissionv1.MatchCondition{{Name: "fenced", Expression: about}},
		Variables:       variables,
		Validations:     validations,
	}
}

// leases matches Leases, and so the requests that Verify sends.
func leases(operations ...admissionv1.OperationType) rules {
	return rule(coordinationv1.GroupName, coordinationv1.SchemeGroupVersion.Version, []string{"leases"}, operations...)
}

func rule(group, version string, resources []string, operations ...admissionv1.OperationType) rules {
	return rules{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: operations,
		Rule: admissionv1.Rule{
			APIGroups: []string{group}, APIVersions: []string{version}, Resources: resources,
			Scope: ptr.To(admissionv1.NamespacedScope),
		},
	}}
}
