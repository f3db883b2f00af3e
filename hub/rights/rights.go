// Package rights gives a hub its rights in a member.
//
// Cluster API's kubeconfigs are those of administrators. With one of these the hub impersonates a user of its own,
// which has the role of config/member, and the roles of config/fencing, config/follow and config/requires where they
// are applied. So RBAC, admission, fairness and audit see that user. It exists by its name alone: nothing in the member
// proves or stores an identity, and nothing expires. Only who may impersonate everybody can use its rights.
//
// The member itself reports whether a kubeconfig is an administrator's. So nobody sets an annotation for that, and a
// tenant cannot set a wrong one.
package rights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/config/member"
)

const (
	// UserPrefix begins the names of the users of all hubs.
	UserPrefix = "leasecast:hub:"
)

// optional are the ClusterRoles of config/fencing, config/follow and config/requires, without their prefix. A binding
// to one grants nothing until it is applied.
var optional = []string{"fencing", "follow", "requires"}

// Rights are those of one hub in a member. Each hub has its own, so that two hubs of a move do not remove each other's.
type Rights struct{ hub string }

// Of returns the rights of the hub with a mark (see seal.Mark).
func Of(mark string) Rights {
	sum := sha256.Sum256([]byte(mark))
	return Rights{hex.EncodeToString(sum[:5])}
}

// User is the name of the user that the hub impersonates.
func (r Rights) User() string { return UserPrefix + r.hub }

// Name is the name of the ClusterRole, its binding and the FlowSchema.
func (r Rights) Name() string { return "leasecast-hub-" + r.hub }

// IsAdministrator reports whether the user of a client may do everything in the member.
func IsAdministrator(ctx context.Context, client kubernetes.Interface) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "*", Group: "*", Version: "*", Resource: "*"},
	}}
	answer, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil // an administrator may ask that
	}
	if err != nil {
		return false, fmt.Errorf("ask the member whether the kubeconfig is an administrator's: %w", err)
	}
	return answer.Status.Allowed, nil
}

// Install creates the roles' bindings, the role and the FlowSchema, or sets their fields back. Rules and subjects that
// others have added go; their labels and annotations stay.
func (r Rights) Install(ctx context.Context, admin kubernetes.Interface) error {
	role, schema := r.fromFiles()
	bindings := admin.RbacV1().ClusterRoleBindings().Patch
	err := apply(ctx, admin.RbacV1().ClusterRoles().Patch, r.Name(), role)
	if err == nil {
		err = apply(ctx, bindings, r.Name(), r.binding(r.Name(), r.Name()))
	}
	for _, role := range optional {
		if name := r.Name() + "-" + role; err == nil {
			err = apply(ctx, bindings, name, r.binding(name, "leasecast-hub-"+role))
		}
	}
	if err == nil {
		err = apply(ctx, admin.FlowcontrolV1().FlowSchemas().Patch, r.Name(), schema)
	}
	if err != nil {
		return fmt.Errorf("install the role of the hub: %w", err)
	}
	return nil
}

func (r Rights) binding(name, role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: meta(name),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: r.User()}},
	}
}

// fromFiles returns the role and the FlowSchema of config/member, for the hub's user.
func (r Rights) fromFiles() (*rbacv1.ClusterRole, *flowcontrolv1.FlowSchema) {
	role, schema := &rbacv1.ClusterRole{}, &flowcontrolv1.FlowSchema{}
	utilruntime.Must(yaml.UnmarshalStrict(member.HubRole, role)) // embedded: no content of a member is in these
	utilruntime.Must(yaml.UnmarshalStrict(member.FlowSchema, schema))
	role.ObjectMeta, schema.ObjectMeta = meta(r.Name()), meta(r.Name())
	for i := range schema.Spec.Rules {
		schema.Spec.Rules[i].Subjects = []flowcontrolv1.Subject{
			{Kind: flowcontrolv1.SubjectKindUser, User: &flowcontrolv1.UserSubject{Name: r.User()}},
		}
	}
	return role, schema
}

func meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}}
}

// patch is the method of a client that applies an object.
type patch[T any] func(
	ctx context.Context, name string, how types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string,
) (T, error)

func apply[T any](ctx context.Context, p patch[T], name string, object T) error {
	data, err := json.Marshal(object)
	if err == nil {
		o := metav1.PatchOptions{FieldManager: v1alpha1.ManagedByValue, Force: ptr.To(true)}
		_, err = p(ctx, name, types.ApplyPatchType, data, o)
	}
	return err
}

// Remove deletes all that Install has created. It tries all of it, whatever fails.
func (r Rights) Remove(ctx context.Context, admin kubernetes.Interface) error {
	o, bindings := metav1.DeleteOptions{}, admin.RbacV1().ClusterRoleBindings()
	failed, tried := []error(nil), []error{admin.FlowcontrolV1().FlowSchemas().Delete(ctx, r.Name(), o)}
	for _, role := range optional {
		tried = append(tried, bindings.Delete(ctx, r.Name()+"-"+role, o))
	}
	tried = append(tried, bindings.Delete(ctx, r.Name(), o), admin.RbacV1().ClusterRoles().Delete(ctx, r.Name(), o))
	for _, err := range tried {
		if err != nil && !apierrors.IsNotFound(err) {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}
