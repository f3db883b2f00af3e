package locks

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// The durations that controller-runtime sets where a program sets none, and those of Flux.
var (
	// sigs.k8s.io/controller-runtime, pkg/manager/internal.go, v0.22.3 to v0.24.1.
	usual = Elector{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second}
	// github.com/fluxcd/pkg, runtime/leaderelection/leaderelection.go, runtime/v0.110.0 and v0.110.1. It releases by default.
	flux = Elector{Lease: 35 * time.Second, Renew: 30 * time.Second, Retry: 5 * time.Second, Releases: true}
)

// wellKnown are the locks of controllers by the names that policies give them, as their own sources and manifests set
// them. Each row names repository, files and version.
//
// Where nothing else is noted, the request timeout is half of the renew deadline: pkg/leaderelection/leader_election.go
// of controller-runtime v0.22.3 to v0.24.1, and no program here makes an elector's client by itself. Those that release
// their lock set ReleaseOnCancel in the file that sets its name.
var wellKnown = map[v1alpha1.WellKnownController]Lock{
	// github.com/cert-manager/cert-manager v1.21.1: cmd/controller/app/controller.go (name, client),
	// internal/apis/config/shared/v1alpha1/defaults.go (namespace, durations). Its client has no timeout
	// (internal/kube/config.go). client-go bounds a renewal by the renew deadline, and does not bound the request that
	// takes the lock. An API server ends that after 60 s.
	"cert-manager": known("kube-system", "cert-manager-controller", Elector{Lease: 60 * time.Second, Renew: 40 * time.Second, Retry: 15 * time.Second, Request: 60 * time.Second, Releases: true}),
	// The same, cmd/cainjector/app/controller.go: by controller-runtime.
	"cert-manager-cainjector": known("kube-system", "cert-manager-cainjector-leader-election", Elector{Lease: 60 * time.Second, Renew: 40 * time.Second, Retry: 15 * time.Second, Releases: true}),

	// github.com/crossplane/crossplane v2.3.4: cmd/crossplane/core/core.go, cmd/crossplane/rbac/rbac.go,
	// cluster/charts/crossplane/README.md (namespace).
	"crossplane":              known("crossplane-system", "crossplane-leader-election-core", Elector{Lease: 60 * time.Second, Renew: 50 * time.Second, Retry: 2 * time.Second, Releases: true}),
	"crossplane-rbac-manager": known("crossplane-system", "crossplane-leader-election-rbac", usual),

	// github.com/argoproj/argo-cd v3.5.1: cmd/argocd-applicationset-controller/commands/applicationset_controller.go,
	// docs/getting_started.md (namespace). No other program of it has an election.
	"argocd-applicationset-controller": known("argocd", "58ac56fa.applicationsets.argoproj.io", usual),

	// github.com/external-secrets/external-secrets v1.3.2: cmd/controller/root.go, cmd/controller/certcontroller.go,
	// docs/introduction/getting-started.md (namespace).
	"external-secrets":                 known("external-secrets", "external-secrets-controller", usual),
	"external-secrets-cert-controller": known("external-secrets", "crd-certs-controller", usual),

	// github.com/fluxcd/flux2 v2.9.4: pkg/manifestgen/install/options.go (namespace). Names: main.go of
	// github.com/fluxcd/source-controller v1.9.1, kustomize-controller v1.9.4, helm-controller v1.6.3,
	// notification-controller v1.9.3, image-automation-controller v1.2.1 and image-reflector-controller v1.2.0.
	"flux-source-controller":           known("flux-system", "source-controller-leader-election", flux),
	"flux-kustomize-controller":        known("flux-system", "kustomize-controller-leader-election", flux),
	"flux-helm-controller":             known("flux-system", "helm-controller-leader-election", flux),
	"flux-notification-controller":     known("flux-system", "notification-controller-leader-election", flux),
	"flux-image-automation-controller": known("flux-system", "image-automation-controller-leader-election", flux),
	"flux-image-reflector-controller":  known("flux-system", "image-reflector-controller-leader-election", flux),
	// github.com/fluxcd/source-watcher v2.2.1, cmd/main.go: it does not pass its retry period on to controller-runtime.
	"flux-source-watcher": known("flux-system", "source-watcher-leader-election", Elector{Lease: 35 * time.Second, Renew: 30 * time.Second, Retry: 2 * time.Second, Releases: true}),

	// sigs.k8s.io/cluster-api v1.14.2: main.go and config/default/kustomization.yaml (namespace) of core,
	// bootstrap/kubeadm and controlplane/kubeadm.
	"cluster-api":                       known("capi-system", "controller-leader-election-capi", usual),
	"cluster-api-bootstrap-kubeadm":     known("capi-kubeadm-bootstrap-system", "kubeadm-bootstrap-manager-leader-election-capi", usual),
	"cluster-api-control-plane-kubeadm": known("capi-kubeadm-control-plane-system", "kubeadm-control-plane-manager-leader-election-capi", Elector{Lease: 60 * time.Second, Renew: 40 * time.Second, Retry: 5 * time.Second}),
	// main.go and config/default/kustomization.yaml (namespace) of sigs.k8s.io/cluster-api-provider-aws/v2 v2.13.0,
	// sigs.k8s.io/cluster-api-provider-gcp v1.13.1 and github.com/kubernetes-sigs/cluster-api-provider-openstack v0.14.7.
	"cluster-api-provider-aws":       known("capa-system", "controller-leader-elect-capa", usual),
	"cluster-api-provider-gcp":       known("capg-system", "controller-leader-election-capg", usual),
	"cluster-api-provider-openstack": known("capo-system", "controller-leader-election-capo", Elector{Lease: usual.Lease, Renew: usual.Renew, Retry: usual.Retry, Releases: true}),
	// github.com/kubernetes-sigs/cluster-api-provider-azure v1.26.0: main.go, config/capz/kustomization.yaml (namespace).
	"cluster-api-provider-azure": known("capz-system", "controller-leader-election-capz", usual),
	// github.com/metal3-io/cluster-api-provider-metal3 v1.13.2: main.go, config/default/capm3/kustomization.yaml.
	"cluster-api-provider-metal3": known("capm3-system", "controller-leader-election-capm3", usual),
	// github.com/kubernetes-sigs/cluster-api-provider-vsphere v1.16.1: main.go, pkg/manager/constants.go (name),
	// config/default/kustomization.yaml (namespace).
	"cluster-api-provider-vsphere": known("capv-system", "capv-controller-manager-runtime", usual),
}

func known(namespace, name string, e Elector) Lock {
	return Lock{types.NamespacedName{Namespace: namespace, Name: name}, e}
}
