package secrets

import utilruntime "k8s.io/apimachinery/pkg/util/runtime"

// The last handler of errors paces them by the time of the last one, wherever that was. In a bubble it would sleep from the
// year 2000 to today, while everything else in the bubble goes on.
func init() { utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1] }
