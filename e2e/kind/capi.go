package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/cert"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/harness"
)

// Cluster API's core manager is installed from its module, with its own manifests. It differs from what clusterctl
// installs in its image, which is made from its program, and in its certificate, which cert-manager would make.
const (
	capiHome       = "capi-system"
	capiDeployment = "capi-controller-manager"
	capiImage      = "leasecast.dev/capi-manager:kind"
	capiProgram    = "capi-manager"
	// capiCertificate is the Secret that the manager serves its webhooks with, for capiService.
	capiCertificate = "capi-webhook-service-cert"
	capiService     = "capi-webhook-service." + capiHome + ".svc"
	// capiLimit is for the manager's webhooks to be reached, and for the manager to reach each member. It tries again
	// every
	// 30 s, and may wait 5 minutes for a member that went away while it connected.
	capiLimit = 6 * time.Minute
)

// installCAPI returns when Cluster API's manager runs in the hub's cluster.
func (p *place) installCAPI(ctx context.Context, archive string) error {
	digest, err := p.load(ctx, hub, archive)
	if err != nil {
		return err
	}
	module, err := execute(ctx, nil, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-api")
	if err != nil {
		return err
	}
	raw, err := execute(ctx, nil, p.kustomize, "build", filepath.Join(module, "core", "config", "default"))
	if err != nil {
		return err
	}
	// clusterctl puts the defaults of the variables in.
	raw, err = execute(ctx, []byte(raw), "env", "CLUSTERCTL_DISABLE_VERSIONCHECK=true",
		filepath.Join(p.capi, "clusterctl"), "generate", "yaml")
	if err != nil {
		return err
	}
	authority, err := p.capiAuthority(ctx)
	if err != nil {
		return fmt.Errorf("certificate of Cluster API's webhooks: %w", err)
	}
	manifest, err := capiManifest([]byte(raw), authority)
	if err != nil {
		return fmt.Errorf("manifests of Cluster API: %w", err)
	}
	if _, err := p.kubectlOn(ctx, hub, manifest, "apply", "--server-side", "--force-conflicts", "-f", "-"); err != nil {
		return err
	}
	if err := p.stamp(ctx, hub, capiHome, capiDeployment, digest); err != nil {
		return err
	}
	p.say("%s: Cluster API's manager runs", hub.inKind())
	return nil
}

// capiAuthority returns the certificate of the webhooks, which signs itself. It is made once.
func (p *place) capiAuthority(ctx context.Context) ([]byte, error) {
	admin, err := p.client(hub)
	if err != nil {
		return nil, err
	}
	home := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: capiHome}}
	if err := admin.Create(ctx, home); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	certificate, key, err := cert.GenerateSelfSignedCertKey(capiService, nil, nil)
	if err != nil {
		return nil, err
	}
	object := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: capiHome, Name: capiCertificate},
		Type:       corev1.SecretTypeTLS,
		Data:       map[string][]byte{corev1.TLSCertKey: certificate, corev1.TLSPrivateKeyKey: key},
	}
	if err := admin.Create(ctx, object); apierrors.IsAlreadyExists(err) {
		err = admin.Get(ctx, client.ObjectKeyFromObject(object), object)
		return object.Data[corev1.TLSCertKey], err
	} else if err != nil {
		return nil, err
	}
	return certificate, nil
}

// capiManifest is what Cluster API's manifests become where there is no cert-manager: its objects are left out, and who
// calls a webhook trusts the given authority.
func capiManifest(raw, authority []byte) ([]byte, error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("List"))
	bundle := base64.StdEncoding.EncodeToString(authority)
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	for {
		o := unstructured.Unstructured{}
		if err := decoder.Decode(&o); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		var err error
		switch o.GroupVersionKind().Group + "/" + o.GetKind() {
		case "cert-manager.io/Certificate", "cert-manager.io/Issuer":
			continue
		case "apiextensions.k8s.io/CustomResourceDefinition":
			err = unstructured.SetNestedField(o.Object, bundle, "spec", "conversion", "webhook", "clientConfig", "caBundle")
		case "admissionregistration.k8s.io/MutatingWebhookConfiguration",
			"admissionregistration.k8s.io/ValidatingWebhookConfiguration":
			err = each(&o, func(webhook map[string]any) error {
				return unstructured.SetNestedField(webhook, bundle, "clientConfig", "caBundle")
			}, "webhooks")
		case "apps/Deployment":
			err = each(&o, func(container map[string]any) error {
				container["image"], container["imagePullPolicy"] = capiImage, string(corev1.PullIfNotPresent)
				container["command"] = []any{"/" + capiProgram}
				return nil
			}, "spec", "template", "spec", "containers")
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", o.GetKind(), o.GetName(), err)
		}
		list.Items = append(list.Items, o)
	}
	return list.MarshalJSON()
}

// each changes all objects of a list in an object.
func each(o *unstructured.Unstructured, change func(map[string]any) error, path ...string) error {
	items, found, err := unstructured.NestedSlice(o.Object, path...)
	if err != nil || !found {
		return errors.Join(err, fmt.Errorf("it has no %v", path))
	}
	for _, item := range items {
		object, ok := item.(map[string]any)
		if !ok {
			return fmt.Errorf("%v holds a %T", path, item)
		}
		if err := change(object); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(o.Object, items, path...)
}

// awaitReconciled returns when Cluster API calls each Cluster provisioned, and has reached it by its kubeconfig.
func (s *site) awaitReconciled(ctx context.Context) error {
	var lacking error
	return harness.Await(ctx, capiLimit, "Cluster API reaches each member", func(ctx context.Context) error {
		var errs []error
		for _, c := range members {
			object := &clusterv1.Cluster{}
			if err := s.hub.Get(ctx, client.ObjectKey{Namespace: harness.FleetNamespace, Name: c.name}, object); err != nil {
				return errors.Join(err, lacking)
			}
			errs = append(errs, reconciled(object))
		}
		lacking = errors.Join(errs...)
		return lacking
	})
}

// reconciled returns what Cluster API has not said of a Cluster yet.
func reconciled(c *clusterv1.Cluster) error {
	if phase := c.Status.GetTypedPhase(); phase != clusterv1.ClusterPhaseProvisioned {
		return fmt.Errorf("the phase of Cluster %s is %q", c.Name, phase)
	}
	for _, condition := range c.Status.Conditions {
		if condition.Type == clusterv1.ClusterRemoteConnectionProbeCondition && condition.Status == metav1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("it has not reached Cluster %s: %+v", c.Name, c.Status.Conditions)
}
