package secrets

import (
	"context"
	"fmt"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/hub/seal"
)

// askTimeout bounds the questions about one fleet.
const askTimeout = 10 * time.Second

// Role is the ClusterRole that a RoleBinding in each fleet's namespace gives to the hub (config/rbac).
const Role = "leasecast-hub-fleet"

// needed is what the hub does with the Secrets of a fleet.
var needed = []authorizationv1.ResourceAttributes{
	{Verb: "get"}, {Verb: "list"}, {Verb: "watch"}, // kubeconfigs
	{Verb: "create"}, {Verb: "update", Name: seal.SecretName}, // the seal
}

// ask says what of it is missing in a fleet's namespace; nothing if it is empty.
func (s *Store) ask(ctx context.Context, fleet string) (missing string, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var verbs []string
	for _, need := range needed {
		need.Namespace, need.Resource = fleet, "secrets"
		spec := authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &need}
		review, err := s.Client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil {
			return "", err
		}
		if !review.Status.Allowed {
			verbs = append(verbs, need.Verb)
		}
	}
	if len(verbs) == 0 {
		return "", nil
	}
	subject, err := s.whoAmI(ctx)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("the hub may not %s Secrets in namespace %s, where the kubeconfigs of its Clusters are; "+
		"grant it that: kubectl -n %s create rolebinding %s --clusterrole=%s %s",
		strings.Join(verbs, ", "), fleet, fleet, Role, Role, subject), nil
}

// whoAmI is the hub as the subject of kubectl create rolebinding.
func (s *Store) whoAmI(ctx context.Context) (string, error) {
	review, err := s.Client.AuthenticationV1().SelfSubjectReviews().Create(ctx,
		&authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	user := review.Status.UserInfo.Username
	if account, ok := strings.CutPrefix(user, "system:serviceaccount:"); ok {
		return "--serviceaccount=" + account, nil
	}
	return "--user=" + user, nil
}
