package guard

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// onlyMetadata requests objects without their specs.
	onlyMetadata = "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	// versionsPage is how many objects a page has, and versionsPages how many pages are read per resource.
	versionsPage, versionsPages = 100, 20
)

// metadata decodes answers in the onlyMetadata format.
var metadata = func() runtime.Decoder {
	s := runtime.NewScheme()
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return serializer.NewCodecFactory(s).UniversalDeserializer()
}()

// Versions returns the resource versions of all objects that hubs keep in a member through this package. Any edit
// or deletion of such an object changes the result.
func Versions(ctx context.Context, member kubernetes.Interface) (map[string]string, error) {
	versions := map[string]string{}
	for _, resource := range []string{"validatingadmissionpolicies", "validatingadmissionpolicybindings"} {
		o := metav1.ListOptions{LabelSelector: v1alpha1.ManagedByLabel + "=" + v1alpha1.ManagedByValue, Limit: versionsPage}
		for range versionsPages {
			raw, err := member.AdmissionregistrationV1().RESTClient().Get().Resource(resource).
				VersionedParams(&o, scheme.ParameterCodec).SetHeader("Accept", onlyMetadata).DoRaw(ctx)
			if err != nil {
				return nil, fmt.Errorf("list the %s: %w", resource, orForbidden(err))
			}
			var page metav1.PartialObjectMetadataList
			kind := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList")
			if _, _, err := metadata.Decode(raw, &kind, &page); err != nil {
				return nil, fmt.Errorf("list the %s: %w", resource, err)
			}
			for i := range page.Items {
				versions[resource+"/"+page.Items[i].Name] = page.Items[i].ResourceVersion
			}
			if o.Continue = page.Continue; o.Continue == "" {
				break
			}
		}
	}
	return versions, nil
}
