package main

import (
	"encoding/json"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
)

const capiDocuments = `
{apiVersion: cert-manager.io/v1, kind: Issuer, metadata: {name: issuer}}
---
{apiVersion: cert-manager.io/v1, kind: Certificate, metadata: {name: certificate}}
---
{apiVersion: v1, kind: Service, metadata: {name: service}}
---
{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: crd}, spec: {conversion: {strategy: Webhook}}}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: MutatingWebhookConfiguration, metadata: {name: mutating}, webhooks: [{name: a}]}
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingWebhookConfiguration, metadata: {name: validating}, webhooks: [{name: a}]}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: manager}, spec: {template: {spec: {containers: [{name: manager, image: theirs}]}}}}
`

func TestManifestsOfClusterAPIWithoutCertManager(t *testing.T) {
	raw, err := capiManifest([]byte(capiDocuments), []byte("authority"))
	if err != nil {
		t.Fatal(err)
	}
	var list struct {
		Kind  string            `json:"kind"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(raw, &list); err != nil {
		t.Fatal(err)
	}
	if list.Kind != "List" || len(list.Items) != 5 {
		t.Fatalf("a %s of %d objects, want a List of 5", list.Kind, len(list.Items))
	}
	const trusted = `"caBundle":"YXV0aG9yaXR5"`
	for i, want := range []string{"service", trusted, trusted, trusted, capiImage} {
		if !strings.Contains(string(list.Items[i]), want) {
			t.Errorf("no %s in %s", want, list.Items[i])
		}
	}
}

func TestAClusterIsReconciledOnceClusterAPIHasReachedIt(t *testing.T) {
	for name, test := range map[string]struct {
		phase  clusterv1.ClusterPhase
		probed metav1.ConditionStatus
		want   bool
	}{
		"reached":                         {clusterv1.ClusterPhaseProvisioned, metav1.ConditionTrue, true},
		"not reached":                     {clusterv1.ClusterPhaseProvisioned, metav1.ConditionFalse, false},
		"nothing is known of it":          {"", "", false},
		"it is not provisioned any more":  {clusterv1.ClusterPhaseDeleting, metav1.ConditionTrue, false},
		"provisioned, and not probed yet": {clusterv1.ClusterPhaseProvisioned, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clusterv1.Cluster{}
			c.Status.SetTypedPhase(test.phase)
			if test.probed != "" {
				c.Status.Conditions = []metav1.Condition{{Type: clusterv1.ClusterRemoteConnectionProbeCondition,
					Status: test.probed}}
			}
			if err := reconciled(c); (err == nil) != test.want {
				t.Error(err)
			}
		})
	}
}
