// Package account gives the hub an account of its own in a member, with the rights that config/member lists and no
// other, but for those of config/fencing where somebody has applied that, and short-lived credentials for it.
//
// # Which kubeconfigs this is for
//
// Cluster API's kubeconfigs are those of an administrator. The member itself tells whether a kubeconfig is one: may its
// user do everything (Administrator)? Nothing else decides, so nobody has to set an annotation, and a tenant cannot set
// a wrong one. An administrator's kubeconfig is used to install the account and to request its tokens. Any other
// kubeconfig was prepared by somebody, and is used as it is.
//
// # Where the account is
//
// It is in kube-system, like the probe Lease, under a name that each hub has for itself and config/member does not use.
// So two hubs may know one member, as during a move, a member may be the management cluster itself, and Remove takes
// out exactly what Install has made.
//
// # Tokens
//
// Tokens come from the TokenRequest API, last an hour, and are held in memory. A token cannot be used to request
// another one. So one that is stolen is worth an hour.
package account

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/config/member"
	"github.com/leasecast/leasecast/hub/fleet/transport"
)

const (
	// Namespace is that of the ServiceAccount.
	Namespace = metav1.NamespaceSystem
	// fencing is the ClusterRole of config/fencing. Where nobody has applied it, the account has no rights by it.
	fencing = "leasecast-hub-fencing"
	// Life is how long a token is asked to last.
	Life = time.Hour
)

// Account is that of one hub. The names of all that belongs to it begin with its name.
type Account string

// Of returns the account of the hub with a mark (see seal.Mark).
func Of(mark string) Account {
	sum := sha256.Sum256([]byte(mark))
	return Account("leasecast-hub-" + hex.EncodeToString(sum[:5]))
}

var (
	// ErrRefused is wrapped when the member refuses to install the account, or to issue a token for it.
	ErrRefused = errors.New("the member refuses the hub an account of its own")
	// ErrMissing is wrapped when the account is not there, or not any more.
	ErrMissing = errors.New("the account of the hub is not there")
)

// Administrator reports whether the user of a client may do everything in the member.
func Administrator(ctx context.Context, client kubernetes.Interface) (bool, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "*", Group: "*", Version: "*", Resource: "*",
		}},
	}, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) {
		return false, nil // an administrator may ask that
	}
	if err != nil {
		return false, fmt.Errorf("ask the member whether this is an administrator: %w", err)
	}
	return review.Status.Allowed, nil
}

// Install installs the account and its rights, as an administrator, and repairs what is not as it has to be.
func (a Account) Install(ctx context.Context, admin kubernetes.Interface) error {
	name := string(a)
	role, schema, err := a.fromFiles()
	if err != nil {
		return err
	}
	meta := metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}}
	account := &corev1.ServiceAccount{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceAccount"}, ObjectMeta: meta}
	account.Namespace = Namespace
	role.ObjectMeta, schema.ObjectMeta = meta, meta
	err = apply(ctx, admin.CoreV1().ServiceAccounts(Namespace).Patch, name, account)
	if err == nil {
		err = apply(ctx, admin.RbacV1().ClusterRoles().Patch, name, role)
	}
	if err == nil {
		err = a.bind(ctx, admin, name, name)
	}
	if err == nil {
		err = a.bind(ctx, admin, a.ofFencing(), fencing)
	}
	if err == nil {
		err = apply(ctx, admin.FlowcontrolV1().FlowSchemas().Patch, name, schema)
	}
	if err != nil {
		return fmt.Errorf("install the account of the hub: %w", orRefused(err))
	}
	return nil
}

// ofFencing is the name of the binding to the ClusterRole for fencing.
func (a Account) ofFencing() string { return string(a) + "-fencing" }

// bind binds the account to a ClusterRole.
func (a Account) bind(ctx context.Context, admin kubernetes.Interface, name, role string) error {
	return apply(ctx, admin.RbacV1().ClusterRoleBindings().Patch, name, &rbacv1.ClusterRoleBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRoleBinding"},
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.ManagedByLabel: v1alpha1.ManagedByValue}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: Namespace, Name: string(a)}},
	})
}

// fromFiles returns the rights and the priority of config/member, for the account.
func (a Account) fromFiles() (*rbacv1.ClusterRole, *flowcontrolv1.FlowSchema, error) {
	role, schema := &rbacv1.ClusterRole{}, &flowcontrolv1.FlowSchema{}
	if err := errors.Join(yaml.UnmarshalStrict(member.HubRole, role), yaml.UnmarshalStrict(member.FlowSchema, schema)); err != nil {
		return nil, nil, fmt.Errorf("config/member: %w", err) // no content of a member leads here
	}
	for i := range schema.Spec.Rules {
		schema.Spec.Rules[i].Subjects = []flowcontrolv1.Subject{{
			Kind:           flowcontrolv1.SubjectKindServiceAccount,
			ServiceAccount: &flowcontrolv1.ServiceAccountSubject{Namespace: Namespace, Name: string(a)},
		}}
	}
	return role, schema, nil
}

// patch is the method of a client by which an object is applied.
type patch[T any] func(ctx context.Context, name string, how types.PatchType, data []byte, o metav1.PatchOptions, subresources ...string) (T, error)

// apply makes an object as it is given. What others have added to it stays.
func apply[T any](ctx context.Context, p patch[T], name string, object T) error {
	data, err := json.Marshal(object)
	if err == nil {
		_, err = p(ctx, name, types.ApplyPatchType, data, metav1.PatchOptions{FieldManager: v1alpha1.ManagedByValue, Force: ptr.To(true)})
	}
	return err
}

// Remove takes out, as an administrator, all that Install has made. What is missing counts as removed. It tries all of it,
// whatever fails.
func (a Account) Remove(ctx context.Context, admin kubernetes.Interface) error {
	type remove func(context.Context, string, metav1.DeleteOptions) error
	var errs []error
	for _, of := range []struct {
		name   string
		remove remove
	}{
		{string(a), admin.FlowcontrolV1().FlowSchemas().Delete},
		{a.ofFencing(), admin.RbacV1().ClusterRoleBindings().Delete},
		{string(a), admin.RbacV1().ClusterRoleBindings().Delete},
		{string(a), admin.RbacV1().ClusterRoles().Delete},
		{string(a), admin.CoreV1().ServiceAccounts(Namespace).Delete},
	} {
		if err := of.remove(ctx, of.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("remove the account of the hub: %w", orRefused(err)))
		}
	}
	return errors.Join(errs...)
}

// Credentials are a token, and when it has to be replaced. They are never printed.
type Credentials struct {
	Token string
	// Renew and Expire are boot readings of the hub's clock.
	Renew, Expire time.Duration
}

// String hides the token.
func (Credentials) String() string { return "[token]" }

// GoString hides the token.
func (Credentials) GoString() string { return "[token]" }

// Request requests a token, as an administrator. The token has to be renewed when three quarters of its life have
// passed. The member may grant a shorter life than was asked for. It is counted from before the request was sent, by
// the hub's clock.
func (a Account) Request(ctx context.Context, admin kubernetes.Interface, clock lease.Clock) (Credentials, error) {
	sent := clock.Now().Boot
	answer, err := admin.CoreV1().ServiceAccounts(Namespace).CreateToken(ctx, string(a), &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(Life / time.Second))},
	}, metav1.CreateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return Credentials{}, fmt.Errorf("request a token: %w (%w)", ErrMissing, err)
	case err != nil:
		return Credentials{}, fmt.Errorf("request a token: %w", orRefused(err))
	case answer.Status.Token == "":
		return Credentials{}, fmt.Errorf("request a token: %w: the answer holds none", ErrRefused)
	case len(answer.Status.Token) > transport.MaxToken:
		return Credentials{}, fmt.Errorf("request a token: %w: it issues one of %d bytes, and at most %d are sent",
			ErrRefused, len(answer.Status.Token), transport.MaxToken)
	}
	life := Life
	if granted := ptr.Deref(answer.Spec.ExpirationSeconds, 0); granted > 0 {
		life = min(life, time.Duration(granted)*time.Second)
	}
	return Credentials{Token: answer.Status.Token, Renew: sent + life/4*3, Expire: sent + life}, nil
}

// orRefused wraps ErrRefused around a refusal of the member.
func orRefused(err error) error {
	if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err) || apierrors.IsInvalid(err) {
		return fmt.Errorf("%w (%w)", ErrRefused, err)
	}
	return err
}
