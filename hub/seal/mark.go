package seal

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// Mark names an installation of the hub: the UID of the management cluster's kube-system namespace, and the
// namespace that holds the election. All replicas of an installation share it, and no two installations do.
func Mark(kubeSystem, namespace string) string { return kubeSystem + "/" + namespace }

// MarkOf returns the mark on the Secret of a fleet. It names the installation that serves the fleet, or served it
// before the Secret was moved or copied here. It is empty if no installation serves the fleet yet.
func MarkOf(secret metav1.Object) string { return secret.GetAnnotations()[v1alpha1.HubAnnotation] }

// OtherInstallation returns the namespace of the installation that a mark names, if it is not own but on the same
// management cluster. A mark of another management cluster came by a move or with a copied Secret, and blocks no
// hub.
func OtherInstallation(own, mark string) (namespace string, ok bool) {
	cluster, _, _ := strings.Cut(own, "/")
	of, namespace, ok := strings.Cut(mark, "/")
	if ok && of == cluster && mark != own {
		return namespace, true
	}
	return "", false
}
