package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/e2e/harness"
)

const capiDocuments = `
{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: issuer}}
---
{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: certificate}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: crd}
spec: {conversion: {strategy: Webhook}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: mutating}
webhooks: [{name: a}, {name: b}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager}
spec: {template: {spec: {containers: [{image: theirs, command: [/manager]}]}}}
`

func TestManifestsOfClusterAPIWithoutCertManager(t *testing.T) {
	folder := t.TempDir()
	for name, content := range map[string]string{
		"kustomization.yaml": string(capiKustomization), "manifests.yaml": capiDocuments,
		"tls.crt": "authority", "tls.key": "key",
	} {
		harness.Must(t, os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600))
	}
	out := harness.Get(execute(t.Context(), nil, os.Getenv(harness.KustomizeVariable), "build", folder))(t)
	for want, times := range map[string]int{
		"cert-manager.io": 0, "caBundle: YXV0aG9yaXR5": 3, "tls.crt: YXV0aG9yaXR5": 1, "image: " + capiImage: 1, "theirs": 0,
		"- /capi-manager": 1, "kind: ": 4,
	} {
		if got := strings.Count(out, want); got != times {
			t.Errorf("the manifests have %q %d times, want %d:\n%s", want, got, times, out)
		}
	}
}
