package follow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/reason"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/fleet/transport"
	"github.com/leasecast/leasecast/hub/labelled"
)

const (
	// fieldManager owns what the hub applies, of all sets: an object passes from one set to another.
	fieldManager = "leasecast-resource-sets"
	// scaleManager owns the replicas of an object whose other fields others apply.
	scaleManager = "leasecast-replicas"
	// replicas is the field that is always applied: it says where the workload runs.
	replicas = ".spec.replicas"
	// place is the verb that an object elsewhere than in the namespace of its set needs, beside those for its kind.
	place = "place"
)

// maxSilent is how many objects of a pass may get no answer in time before it ends: until then, it is about the
// object, as where a webhook is slow.
const maxSilent = 2

// errStopped: this replica may not write any more.
var errStopped = errors.New("this replica of the hub does not write any more")

// denial is in the words of admission webhooks and policies, which choose the code of the answer.
var denial = regexp.MustCompile(`admission webhook .* denied the request|ValidatingAdmissionPolicy .* denied request`)

// isDenial reports whether admission has denied a request. A conflict names the managers of fields, whose names anyone
// chooses.
func isDenial(err error) bool {
	return err != nil && !apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) &&
		denial.MatchString(err.Error())
}

// pass is one look at a set in a member.
type pass struct {
	*inventory
	controller *Controller
	of         *v1alpha1.LeaderResourceSet
	in         *setIn
	set        string // its identity
	context    context.Context
	ended      context.Context // done when the member is not engaged any more
	objects    metadata.Interface
	client     authorizationclient.AuthorizationV1Interface // for reviews, and for JSON of any group
	kinds      map[schema.GroupVersionKind]bool             // that it may have anywhere: it names them
	silent     int                                          // how many objects got no answer
}

// now is the time for what limits repairs.
func (p *pass) now() time.Time { return time.Time{}.Add(p.controller.Clock.Now().Boot) }

// appliedObject is what a set has applied.
type appliedObject struct {
	hash string
	marked
}

// work puts a form in place. It says what has Pods that must have none, if the cluster gives way.
func (p *pass) work(f form, prunes bool) (done result, runs string, problems []v1alpha1.ResourceProblem, err error) {
	problems, err = p.apply(f)
	done = result{hash: f.hash, placed: len(p.in.applied)}
	if err == nil && f.whole && prunes {
		var more []v1alpha1.ResourceProblem
		done.left, more, err = p.prune(f)
		problems = append(problems, more...)
	}
	if f.given != nil && err == nil {
		runs, err = p.left(f.stops)
	}
	return done, runs, problems, err
}

// apply puts the form in place. It returns what is not, and an error if the member, or this replica, is at its end.
func (p *pass) apply(f form) (problems []v1alpha1.ResourceProblem, err error) {
	problems = slices.Clone(f.problems)
	kept := map[id]bool{}
	for _, o := range f.objects {
		is, bad, err := p.applyOne(o)
		kept[is] = true
		if err != nil {
			return problems, err
		}
		if bad != nil {
			problems = append(problems, *bad)
		}
	}
	maps.DeleteFunc(p.in.applied, func(is id, _ appliedObject) bool { return !kept[is] })
	return problems, nil
}

// served returns the kinds of a form that can be watched in the member. Others cannot be applied either.
func (p *pass) served(f form) map[schema.GroupVersionKind]bool {
	all := map[schema.GroupVersionKind]bool{}
	for _, o := range f.objects {
		if _, err := p.start(p.ended, o.kind); err == nil {
			all[o.kind] = true
		}
	}
	return all
}

// applyOne applies an object if it has changed. is names the object, as far as that is known.
func (p *pass) applyOne(o object) (is id, bad *v1alpha1.ResourceProblem, err error) {
	is = o.in(p.of.Spec.Namespace)
	k, err := p.start(p.ended, o.kind)
	if why, message := p.unlisted(o.kind, err); err != nil {
		wrong := problem(is.String(), why, message)
		return is, &wrong, nil
	}
	if !k.namespaced {
		is.namespace = "" // whatever the manifest says
	}
	name := types.NamespacedName{Namespace: is.namespace, Name: is.name}
	was, has := p.in.applied[is]
	drifted := has && p.drifted(o.kind, name, was.marked)
	if has && was.hash == o.hash && !drifted {
		return is, nil, nil
	}
	known, _ := p.object(o.kind, name)
	delete(p.in.applied, is)
	if bad, err := p.refusal(o, k, is, known); bad != nil || err != nil {
		return is, bad, err
	}
	if drifted && was.hash == o.hash && p.in.repairs.TokensAt(p.now()) < 1 {
		wrong := problem(is.String(), reason.AppliedByOther,
			"others change it again and again: the hub repairs it only every "+repairEvery.String()+" in this cluster")
		p.in.applied[is] = was
		return is, &wrong, nil
	}
	now, err := p.patch(k, is, o, has || known.set == p.set)
	if bad, err := p.explain(is, o.secret, err); bad != nil || err != nil {
		return is, bad, err
	}
	if drifted && now.version != known.version {
		p.in.repairs.AllowN(p.now(), 1) // what others have written beside it is no drift
	}
	p.in.applied[is] = appliedObject{o.hash, now}
	return is, nil, nil
}

// refusal says why an object is not applied, though the member would let the hub do it.
func (p *pass) refusal(o object, k kind, is id, known marked) (*v1alpha1.ResourceProblem, error) {
	var wrong v1alpha1.ResourceProblem
	if !p.kinds[o.kind] {
		wrong = problem(is.String(), reason.Applying, "its kind is about to be applied for the first time")
		return &wrong, nil
	}
	if known.set != "" && known.set != p.set && !known.gone {
		sets, err := p.controller.setsOf(p.of.Namespace)
		if err != nil {
			return nil, errStopped
		}
		if rival, older := rival(sets, p.of, known.set); older {
			wrong = problem(is.String(), reason.KeptByOther, rival+" keeps it: take the object out of one of the two")
			return &wrong, nil
		}
	}
	may, err := p.mayPlace(k, is)
	if err != nil || may {
		return nil, err
	}
	wrong = problem(is.String(), reason.NotAllowed, p.advice(is.kind, place))
	return &wrong, nil
}

// unlisted says why it is not known what there is of a kind.
func (p *pass) unlisted(of schema.GroupVersionKind, err error) (reason.Reason, string) {
	switch {
	case err == nil:
		return "", ""
	case errors.Is(err, errNoKind):
		return reason.NoSuchKind, fmt.Sprintf("%v: install its definition, or correct %s", err, of)
	case apierrors.IsForbidden(err):
		return reason.NotAllowed, p.advice(of.GroupKind(), "list and watch")
	case errors.Is(err, errNotListed):
		return reason.Applying, err.Error()
	case errors.Is(err, labelled.ErrTooMany):
		return reason.TooManyObjects, err.Error() + ": delete those that no set keeps (label " + v1alpha1.SetLabel + ")"
	default:
		return reason.Unreachable, "what there is of this kind cannot be listed: " + err.Error()
	}
}

// mayPlace reports whether the hub may put an object there: in the namespace of its set, or where it may place it.
func (p *pass) mayPlace(k kind, is id) (bool, error) {
	own := is.kind.Group == v1alpha1.GroupVersion.Group || is.kind.Group == "coordination.k8s.io"
	if is.namespace == p.of.Spec.Namespace && !own {
		return true, nil
	}
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: place, Group: k.Group, Version: k.Version, Resource: k.Resource, Namespace: is.namespace, Name: is.name,
		},
	}}
	ctx, cancel := context.WithTimeout(p.context, requestTimeout)
	defer cancel()
	answer, err := p.client.SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	return err == nil && answer.Status.Allowed, err
}

// patch applies an object. Fields that others own are taken over where the set may do that.
func (p *pass) patch(k kind, is id, o object, ours bool) (marked, error) {
	u := unstructured.Unstructured{Object: runtime.DeepCopyJSON(o.content)}
	u.SetNamespace(is.namespace)
	u.SetLabels(labels.Merge(u.GetLabels(), labels.Set{v1alpha1.SetLabel: label(p.set, is)}))
	body, err := json.Marshal(u.Object)
	if err != nil {
		return marked{}, err
	}
	now, err := p.send(k, is, body, fieldManager, p.of.Spec.Force)
	switch {
	case !apierrors.IsConflict(err), isDenial(err):
	case mayTakeOver(err, ours):
		now, err = p.send(k, is, body, fieldManager, true)
	default:
		if failed := p.scale(k, is, o); failed != nil {
			return now, failed
		}
	}
	return now, err
}

// scale applies the replicas of an object alone, because the rest is not taken over. If the form leaves them out, that
// releases the replicas of the cluster's other form.
func (p *pass) scale(k kind, is id, o object) error {
	u := unstructured.Unstructured{Object: map[string]any{}}
	n, has, err := unstructured.NestedFieldNoCopy(o.content, "spec", "replicas")
	switch {
	case has && err == nil:
		u.Object["spec"] = map[string]any{"replicas": n}
	case o.kind.Group != "apps":
		return nil
	}
	u.SetGroupVersionKind(o.kind)
	u.SetNamespace(is.namespace)
	u.SetName(is.name)
	body, err := json.Marshal(u.Object)
	if err == nil {
		_, err = p.send(k, is, body, scaleManager, true)
	}
	return err
}

func (p *pass) send(k kind, is id, body []byte, manager string, force bool) (marked, error) {
	if !p.controller.MayWrite(p.of.Namespace) {
		return marked{}, errStopped
	}
	ctx, cancel := context.WithTimeout(p.context, requestTimeout)
	defer cancel()
	now, err := p.objects.Resource(k.GroupVersionResource).Namespace(is.namespace).Patch(ctx, is.name,
		types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: manager, Force: &force})
	if err != nil {
		return marked{}, err
	}
	_, m, _ := markedOf(is.kind, now)
	return m, nil
}

// mayTakeOver reports whether an apply with these conflicts may be forced: what others have edited in an object of the
// set is drift. What others apply is theirs, except for the replicas.
func mayTakeOver(conflict error, ours bool) bool {
	var status apierrors.APIStatus
	if !errors.As(conflict, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	return len(causes) > 0 && len(causes) < transport.MaxCauses &&
		!slices.ContainsFunc(causes, func(c metav1.StatusCause) bool {
			edited := strings.Contains(c.Message, " using ") // the API server writes this for updates alone
			return c.Field != replicas && (!ours || !edited)
		})
}

// explain makes a problem of one object out of an error, or returns the error if it is about more. What an API server
// says of a secret object may quote it.
func (p *pass) explain(is id, secret bool, err error) (*v1alpha1.ResourceProblem, error) {
	var wrong v1alpha1.ResourceProblem
	denied := isDenial(err)
	switch {
	case err == nil:
		return nil, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), `" cannot `):
		wrong = problem(is.String(), reason.NotAllowed, p.advice(is.kind, "get, create, patch and delete"))
	case apierrors.IsConflict(err) && !denied:
		wrong = problem(is.String(), reason.AppliedByOther,
			err.Error()+"; leave these fields out, or set force in the set")
	case apierrors.IsNotFound(err) && !denied:
		wrong = problem(is.String(), reason.NamespaceMissing, err.Error())
	case denied, isRejection(err), apierrors.IsInternalError(err):
		wrong = problem(is.String(), reason.Rejected, err.Error())
		if secret {
			wrong.Message = "the API server has rejected it, with words that may quote a Secret: apply it by hand to see them"
		}
	case p.silent < maxSilent && p.context.Err() == nil && isTimeout(err):
		p.silent++
		wrong = problem(is.String(), reason.Unreachable, "the API server did not answer in time: see its admission webhooks")
	default:
		return nil, err
	}
	return &wrong, nil
}

// isRejection reports whether an API server has rejected a request for what it asks, not for who asks or how often.
func isRejection(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusUnauthorized && code != http.StatusTooManyRequests
}

func isTimeout(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}

// advice says how the hub gets a right.
func (p *pass) advice(of schema.GroupKind, verbs string) string {
	return fmt.Sprintf("the hub may not %s %s there: apply config/follow in the cluster, with a ClusterRole for it that "+
		"has the label leasecast.dev/aggregate-to-follow=true", verbs, of)
}

// prune deletes what the set has in the member and a form does not have. It returns how many objects are left, as far
// as watches show. An object that others have copied to where the set may have none is not the set's.
func (p *pass) prune(f form) (left int, problems []v1alpha1.ResourceProblem, err error) {
	kept := map[id]bool{}
	for _, o := range f.objects {
		kept[o.in(p.of.Spec.Namespace)] = true
		kept[id{o.kind.GroupKind(), "", o.name}] = true // its kind may be in no namespace
	}
	for of := range p.kinds {
		k, err := p.start(p.ended, of)
		if errors.Is(err, errNoKind) || apierrors.IsForbidden(err) {
			continue // then there is nothing, or nothing that the hub may delete
		}
		if why, message := p.unlisted(of, err); err != nil {
			left++
			problems = append(problems, problem(of.Kind, why, message))
			continue
		}
		for name, has := range p.setsObjects(of, p.set) {
			is := id{of.GroupKind(), name.Namespace, name.Name}
			if kept[is] {
				continue
			}
			if may, err := p.mayPlace(k, is); err != nil {
				return left, problems, err
			} else if !may {
				continue
			}
			left++
			bad, err := p.explain(is, true, p.delete(k, is, has))
			if err != nil {
				return left, problems, err
			}
			if bad != nil {
				problems = append(problems, *bad)
			}
			delete(p.in.applied, is)
		}
	}
	return left, problems, nil
}

// delete deletes an object, as long as it is the one that a watch has shown.
func (p *pass) delete(k kind, is id, has marked) error {
	if !p.controller.MayWrite(p.of.Namespace) {
		return errStopped
	}
	ctx, cancel := context.WithTimeout(p.context, requestTimeout)
	defer cancel()
	err := p.objects.Resource(k.GroupVersionResource).Namespace(is.namespace).Delete(ctx, is.name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: &has.uid},
	})
	if (apierrors.IsNotFound(err) || apierrors.IsConflict(err)) && !isDenial(err) { // it is another object by now
		return nil
	}
	return err
}
