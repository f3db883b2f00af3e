package seal

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// An installation may come with an empty Secret, and a program that applies manifests may reset it to that. An
// empty Secret counts as missing: the hub writes back the seal in use, or a first one. But if no replica knows the
// seal, and the mark shows that there was one, people decide.

// emptied returns the error that the seal of a fleet is lost, with what people can do.
func emptied(secret *corev1.Secret) error {
	return fmt.Errorf("%w: it is empty, but its annotation %s shows that it held a seal: "+
		"restore it from a backup, or start over by "+
		"kubectl -n %s annotate secret %s %s-",
		ErrBroken, v1alpha1.HubAnnotation, secret.Namespace, SecretName, v1alpha1.HubAnnotation)
}

// isEmpty reports whether a Secret holds nothing.
func isEmpty(secret *corev1.Secret) bool {
	for _, value := range secret.Data {
		if len(value) > 0 {
			return false
		}
	}
	return true
}

// isLost reports whether an empty Secret held a seal.
func isLost(secret *corev1.Secret) bool { return MarkOf(secret) != "" }
