package guard

import (
	"k8s.io/apimachinery/pkg/fields"
)

// Guarded selects the Leases in namespaces that the policies protect. Other Leases are unowned: whoever may write
// Leases in kube-system may give them any label.
func Guarded() fields.Selector {
	var all []fields.Selector
	for _, namespace := range neverManaged {
		all = append(all, fields.OneTermNotEqualSelector("metadata.namespace", namespace))
	}
	return fields.AndSelectors(all...)
}
