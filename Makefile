# Everything that is needed beyond Go, gcc and make is built from Go modules, once, into a cache that all
# checkouts share. `make help` lists the targets.

SHELL := /bin/sh
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/leasecast
BUILD_ONCE := e2e/k8s/build.sh

# The versions of the control plane and of Cluster API are those that their modules pin.
pinned = $(shell awk '$$1 == "$(1)" { print $$2; exit }' $(2))
K8S_VERSION := $(call pinned,k8s.io/kubernetes,e2e/k8s/go.mod)
OLDER_K8S_VERSION := $(call pinned,k8s.io/kubernetes,e2e/k8s/older/go.mod)
CAPI_VERSION := $(call pinned,sigs.k8s.io/cluster-api,e2e/capi/go.mod)

# Linker flags that stamp a version into a Kubernetes-style version package; Cluster API, for one, refuses to run
# against an API server that has none. $(1) is the package, $(2) the version.
stamp = -X $(1).gitVersion=$(2) -X $(1).gitMajor=$(patsubst v%,%,$(word 1,$(subst ., ,$(2)))) -X $(1).gitMinor=$(word 2,$(subst ., ,$(2)))

k8s-ldflags = -s -w $(call stamp,k8s.io/component-base/version,$(1)) $(call stamp,k8s.io/client-go/pkg/version,$(1))

# What authors import are modules of their own. The root module takes them from their folders, with its own versions of
# what they need. In their folders they are built with the oldest versions that they work with.
MODULES := api member
OURS := github.com/leasecast/leasecast

# Regenerates in the checkout $(1) what is derived from the API types, the sample's included.
SAMPLE_API := e2e/guestbook/api
generate-in = (cd $(1)/api && $(CONTROLLER_GEN) object crd paths=./... output:crd:artifacts:config=../config/crd/bases) && \
	(cd $(1) && $(CONTROLLER_GEN) object crd paths=./$(SAMPLE_API)/... output:crd:artifacts:config=$(SAMPLE_API))

CONTROLLER_GEN_VERSION := v0.21.0
GOLANGCI_LINT_VERSION := v2.12.2
KUSTOMIZE_VERSION := v5.8.2
KUBE_API_LINTER_VERSION := v0.0.0-20260716143926-092fe0c72997

# Tests, demo and drills find what they run through these.
export KUBEBUILDER_ASSETS := $(CACHE)/k8s/$(K8S_VERSION)
OLDER_ASSETS := $(CACHE)/k8s/$(OLDER_K8S_VERSION)
export CAPI_ASSETS := $(CACHE)/capi/$(CAPI_VERSION)
export ELECTOR_ASSETS := $(CACHE)/electors
export ARGOCD_ASSETS := $(CACHE)/argocd
TOOLS := $(CACHE)/tools
export CONTROLLER_GEN := $(TOOLS)/controller-gen-$(CONTROLLER_GEN_VERSION)
export GOLANGCI_LINT := $(TOOLS)/golangci-lint-$(GOLANGCI_LINT_VERSION)
export KUSTOMIZE := $(TOOLS)/kustomize-$(KUSTOMIZE_VERSION)
HELM_VERSION := v3.21.4
export HELM := $(TOOLS)/helm-$(HELM_VERSION)
PROMTOOL_VERSION := v0.316.0
export PROMTOOL := $(TOOLS)/promtool-$(PROMTOOL_VERSION)
KUBE_API_LINTER := $(TOOLS)/golangci-lint-kube-api-linter-$(KUBE_API_LINTER_VERSION)

# Built like the programs, so that a fresh machine compiles what they share once.
RUN := CGO_ENABLED=0 go run -trimpath

##@ Use it

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^##@/ { print "\n" substr($$0, 5) } /^[a-z0-9-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' Makefile

.PHONY: demo
demo: k8s build $(KUSTOMIZE) ## Watch a fleet elect leaders, lose one, and hand over; writes out/report.html and out/demo.json
	$(RUN) ./e2e/drill demo

.PHONY: up
up: k8s build $(KUSTOMIZE) ## Start the demo's fleet and leave it running: what ends is restarted; kubeconfigs in out/
	$(RUN) ./e2e/drill up

.PHONY: down
down: ## Stop the fleet that `make up` started
	$(RUN) ./e2e/drill down

# Which measurements to make: steady, blackhole, reader, failover, handover, change, mass, drain, fence, renewal, look,
# follow, fifty. None: all.
PARTS :=

.PHONY: bench
bench: k8s build $(KUSTOMIZE) ## Measure failovers and costs in a quarter of an hour, or some PARTS; writes out/bench.json
	$(RUN) ./e2e/bench $(PARTS)

##@ Drill it on kind (kind-configs/README.md)

KIND_VERSION := v0.33.0
CONTAINERD_VERSION := v2.4.2
export K8S_VERSION KIND_VERSION
export NODE_ASSETS := $(CACHE)/node/$(K8S_VERSION)
export KIND := $(TOOLS)/kind-$(KIND_VERSION)
# An image that is made here is named by what it is made from.
NODE_SOURCES := $(addprefix e2e/kind/node/,image.sh cni.template default-cni.yaml go.sum pause/main.go coredns/go.sum coredns/main.go)
export NODE_IMAGE := leasecast.dev/kind-node:$(K8S_VERSION)-$(shell \
	{ echo $(KIND_VERSION) $(CONTAINERD_VERSION); cat $(NODE_SOURCES); } | cksum | cut -d' ' -f1)
export HUB_IMAGE = $(IMAGE)
export HUB_ARCHIVE = $(DIST)/leasecast-hub-$(ARCH).tar
ROUNDS := 20

.PHONY: kind-up
kind-up: kubectl capi image $(KIND) $(KUSTOMIZE) ## Start a hub and three members on kind, with hub and Cluster API as Pods; reuses what runs
	$(RUN) ./e2e/kind up

.PHONY: kind-drill
kind-drill: kubectl $(KIND) $(KUSTOMIZE) ## Break these clusters in ROUNDS ways, judged by what guestbooks did; writes out/kind-drill.json
	$(RUN) ./e2e/kind -rounds $(ROUNDS) drill

.PHONY: kind-down
kind-down: $(KIND) $(KUSTOMIZE) ## Delete the clusters of kind-up, and no others
	$(RUN) ./e2e/kind down

.PHONY: ci-kind
ci-kind: ## Where Docker runs or can be started: kind-up, a drill of three rounds, kind-down; elsewhere one line with the reason why not
	e2e/kind/ci.sh

.PHONY: kind-node-image
kind-node-image: $(KIND) $(KUSTOMIZE) ## Make a node image from Go modules and Debian packages, where kindest/node cannot be used
	@if $(RUN) ./e2e/kind stock; then echo "kind's own node image can be used here: nothing to make"; \
	else $(MAKE) node-programs && e2e/kind/node/image.sh $(NODE_IMAGE) $(CACHE)/node; fi

.PHONY: kubectl
kubectl:
	@LDFLAGS="$(call k8s-ldflags,$(K8S_VERSION))" $(BUILD_ONCE) $(KUBEBUILDER_ASSETS) e2e/k8s kubectl=k8s.io/kubernetes/cmd/kubectl

.PHONY: node-programs
node-programs: k8s
	@LDFLAGS="$(call k8s-ldflags,$(K8S_VERSION))" \
	$(BUILD_ONCE) $(NODE_ASSETS) e2e/kind/node \
		kubeadm=k8s.io/kubernetes/cmd/kubeadm \
		kubelet=k8s.io/kubernetes/cmd/kubelet \
		kube-scheduler=k8s.io/kubernetes/cmd/kube-scheduler \
		kube-proxy=k8s.io/kubernetes/cmd/kube-proxy \
		pause=github.com/leasecast/leasecast/e2e/kind/node/pause
	@LDFLAGS="-s -w" GOFLAGS=-tags=no_btrfs,no_zfs,no_devmapper $(BUILD_ONCE) $(NODE_ASSETS) - \
		containerd=github.com/containerd/containerd/v2/cmd/containerd@$(CONTAINERD_VERSION) \
		containerd-shim-runc-v2=github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@$(CONTAINERD_VERSION) \
		ctr=github.com/containerd/containerd/v2/cmd/ctr@$(CONTAINERD_VERSION)
	@LDFLAGS="-s -w" $(BUILD_ONCE) $(NODE_ASSETS) e2e/kind/node/coredns \
		coredns=github.com/leasecast/leasecast/e2e/kind/node/coredns

##@ Install it (config/README.md)

# What is released: VERSION is stamped into the program, IMAGE is the name that the manifests give to its image.
VERSION := v0.1.0
IMAGE := ghcr.io/leasecast/leasecast-hub:$(VERSION)
ARCH := $(shell go env GOARCH)
# Where `make image` and `make build-installer` write.
DIST := dist
KUBECTL := kubectl
SOURCE_IMAGE := ghcr.io/leasecast/leasecast-hub

image-tag = $(lastword $(subst :, ,$(IMAGE)))
# A folder of config/, with IMAGE.
render = $(if $(findstring :,$(notdir $(IMAGE))),,$(error IMAGE=$(IMAGE) has no tag: write name:tag)) \
	mkdir -p dist/.$(1) && printf 'resources: [../../config/$(1)]\nimages: [{name: $(SOURCE_IMAGE), newName: "%s", newTag: "%s"}]\n' \
	'$(IMAGE:%:$(image-tag)=%)' '$(image-tag)' >dist/.$(1)/kustomization.yaml && \
	$(KUSTOMIZE) build dist/.$(1)

.PHONY: image
image: ## Make an image of the hub and leasecast-gate without a registry or Docker: dist/leasecast-hub-ARCH.tar, for docker load and kind load, and its SBOM
	@mkdir -p $(DIST)/$(ARCH)
	CGO_ENABLED=0 GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags "-s -w -X main.version=$(VERSION)" -o $(DIST)/$(ARCH)/ ./cmd/...
	$(RUN) ./config/image -program $(DIST)/$(ARCH)/leasecast-hub,$(DIST)/$(ARCH)/leasecast-gate -name $(IMAGE) -arch $(ARCH) -out $(DIST)/leasecast-hub-$(ARCH).tar
	$(RUN) ./config/sbom -version $(VERSION) -arch $(ARCH) -out $(DIST)/leasecast-hub-$(ARCH).cdx.json ./cmd/...

.PHONY: build-installer
build-installer: $(KUSTOMIZE) $(HELM) ## Make the release files in dist/: install.yaml, the Helm chart, the add-on of clusterctl
	@rm -rf $(DIST)/leasecast && mkdir -p $(DIST)
	$(call render,default) >$(DIST)/install.yaml
	$(call render,addon) >$(DIST)/addon-components.yaml
	cp config/addon/metadata.yaml $(DIST)/metadata.yaml
	mkdir -p $(DIST)/leasecast/templates
	$(KUSTOMIZE) build config/chart >$(DIST)/chart.yaml && { echo ---; cat config/prometheus/service_monitor.yaml; } >>$(DIST)/chart.yaml
	awk -f config/chart/templates.awk $(DIST)/chart.yaml >$(DIST)/leasecast/templates/leasecast.yaml
	cp config/chart/NOTES.txt $(DIST)/leasecast/templates/ && cp config/chart/values.schema.json $(DIST)/leasecast/
	sed 's/VERSION/$(VERSION)/; s/^version: v/version: /' config/chart/Chart.yaml >$(DIST)/leasecast/Chart.yaml
	sed 's|REPOSITORY|$(IMAGE:%:$(image-tag)=%)|; s|TAG|$(image-tag)|' config/chart/values.yaml >$(DIST)/leasecast/values.yaml
	$(HELM) lint --quiet --strict $(DIST)/leasecast
	$(HELM) package --destination $(DIST) $(DIST)/leasecast

.PHONY: install
install: $(KUSTOMIZE) ## Install the CRDs into the cluster of the current kubeconfig
	$(KUSTOMIZE) build config/crd | $(KUBECTL) apply --server-side -f -

.PHONY: deploy
deploy: $(KUSTOMIZE) ## Install CRDs and hub into the cluster of the current kubeconfig, with IMAGE
	$(call render,default) | $(KUBECTL) apply --server-side -f -

.PHONY: undeploy
undeploy: $(KUSTOMIZE) ## Take out of members and management cluster all that the hub has made, and then the hub
	KUBECTL="$(KUBECTL)" config/remove.sh
	for folder in manager fleet rbac; do $(KUBECTL) delete --ignore-not-found -k config/$$folder || exit 1; done

.PHONY: uninstall
uninstall: $(KUSTOMIZE) ## Take the CRDs out, with all policies and records; after undeploy
	$(KUSTOMIZE) build config/crd | $(KUBECTL) delete --ignore-not-found -f -

##@ Work on it

.PHONY: build
build: ## Build the programs into bin/
	CGO_ENABLED=0 go build -trimpath -o bin/ ./cmd/...

.PHONY: generate
generate: $(CONTROLLER_GEN) ## Regenerate the deep copies and the CRDs from the API types, and the PrometheusRule from the rules
	$(call generate-in,.)
	@rule=config/prometheus/prometheus_rule.yaml && made="$$(sed '/^spec:/q' $$rule; sed -n '/^groups/,$$p' config/prometheus/rules.yaml | \
		sed 's/^/  /')" && printf '%s\n' "$$made" >$$rule

.PHONY: fmt
fmt: $(GOLANGCI_LINT) ## Format the code and sort its imports
	$(GOLANGCI_LINT) fmt

##@ Test it

# The quick checks go first, so that most mistakes are known within a minute.
TEST_STEPS := verify lint sim unit core
ALL_STEPS := oldest fuzz alerts integration ci-kind

# run-steps runs targets, and reports how long each took.
define run-steps
@all=$$(date +%s); for step in $(1); do \
	echo "==> $$step"; began=$$(date +%s); \
	$(MAKE) $$step || { echo "==> $$step FAILED after $$(($$(date +%s) - began)) s" >&2; exit 1; }; \
	echo "==> $$step passed in $$(($$(date +%s) - began)) s"; \
done; echo "==> all of: $(1) passed in $$(($$(date +%s) - all)) s"
endef

.PHONY: test
test: ## Run verify, lint, sim, unit and core: the one command before a commit
	$(call run-steps,$(TEST_STEPS))

.PHONY: test-more
test-more: ## Run what test leaves out: oldest, fuzz, alerts, integration and ci-kind
	$(call run-steps,$(ALL_STEPS))

.PHONY: test-all
test-all: ## Run test and test-more
	$(call run-steps,test test-more)

.PHONY: alerts
alerts: $(PROMTOOL) ## Check the alerts and the dashboard, and have promtool show that each alert fires and clears
	$(PROMTOOL) check rules config/prometheus/rules.yaml
	$(PROMTOOL) test rules config/prometheus/rules_test.yaml
	@queries=$$(mktemp --suffix=.yaml) && trap 'rm -f "$$queries"' EXIT && \
	QUERIES=$$queries go test -count=1 ./config -run '^TestDashboard$$' && $(PROMTOOL) check rules --lint=none $$queries

.PHONY: verify
verify: $(CONTROLLER_GEN) ## Check that generated files and go.mod are up to date, and the licenses of what is linked
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; cp -R go.mod go.sum api "$$fresh" && \
	mkdir -p "$$fresh/member" "$$fresh/$(SAMPLE_API)" && cp member/go.mod "$$fresh/member" && cp -R $(SAMPLE_API)/. "$$fresh/$(SAMPLE_API)" && $(call generate-in,"$$fresh") && \
	{ diff -ru api "$$fresh/api" && diff -ru $(SAMPLE_API) "$$fresh/$(SAMPLE_API)" && diff -ru config/crd/bases "$$fresh/config/crd/bases" || \
		{ echo "generated files differ from the API types: run make generate and commit the result" >&2; exit 1; }; }
	@for module in . $(MODULES); do go -C $$module mod tidy -diff || \
		{ echo "go.mod or go.sum is not tidy: run go -C $$module mod tidy and commit the result" >&2; exit 1; }; done
	@$(RUN) ./config/sbom ./cmd/...

# The linter's cache remembers where a file stood when it was looked at, and rules go by folder: one cache a checkout.
.PHONY: lint
lint: $(GOLANGCI_LINT) $(KUBE_API_LINTER) ## Check style, import rules, the ban on wall clocks, and the API's conventions
	@for module in . $(MODULES); do echo "golangci-lint run in $$module"; \
		(cd $$module && GOLANGCI_LINT_CACHE=$(CACHE)/lint$(CURDIR) $(GOLANGCI_LINT) run -c $(CURDIR)/.golangci.yml) || exit 1; done
	cd api && GOLANGCI_LINT_CACHE=$(CACHE)/lint-api$(CURDIR) $(KUBE_API_LINTER) run -c $(CURDIR)/.golangci-api.yml ./v1alpha1

# Step lint runs go vet.
.PHONY: unit
unit: k8s $(KUSTOMIZE) ## Run the tests beside the code, some on real API servers, with the race detector
	packages=$$(go list ./... $(MODULES:%=$(OURS)/%/...)) && go test -race -vet=off $$(echo "$$packages" | grep -Ev '/e2e(/|$$)')

.PHONY: oldest
oldest: ## Run the tests of api and member with the oldest Go, Kubernetes and controller-runtime that they work with
	@for module in $(MODULES); do go=$$(awk '$$1 == "go" { print $$2 }' $$module/go.mod); \
		echo "module $$module with Go $$go"; GOTOOLCHAIN=go$$go go -C $$module test -vet=off ./... || exit 1; done

# The core of what runs on real API servers: elections, handovers, the demo, make up, and the harness with what it runs.
# The tests of guard and fences are in step unit, and what waits most of the time, as drills of fences and failovers of
# the hub, is in step integration.
CORE := $(addprefix ./e2e/,drill handover harness fleet process proxy)

# Each package starts a fleet of its own, so few run at a time. Compiling before that keeps it off their clocks.
e2e-test = go test -race -count=1 -vet=off -timeout 20m -p 2

.PHONY: core
core: k8s build $(KUSTOMIZE) ## Run the core of the tests on real API servers, with the race detector
	go build -race ./e2e/...
	$(e2e-test) $(CORE)

# The packages that take longest start first. The first one takes 11 minutes on two cores, beside the others.
.PHONY: integration
integration: k8s capi argocd build $(KUSTOMIZE) $(HELM) $(PROMTOOL) ## Run the other tests of the whole and the drills, with the race detector
	go build -race ./e2e/...
	$(e2e-test) -timeout 30m ./e2e/integration ./e2e/clusterctlmove ./e2e/fences $$(go list ./e2e/... | grep -Ev '$(subst $(subst ,, ),|,$(CORE:./e2e/%=/e2e/%$$))')

# The race detector makes seeds ten times as dear: step unit runs a few hundred with it, this one the many, and all
# worlds that are made for one rule.
SEEDS := 10000
FROM := 1
SEED :=

.PHONY: sim
sim: ## Simulate the hub's real code: SEEDS runs from seed FROM on, writes out/sim.json; or replay one SEED with its trace
	@mkdir -p out && rm -f out/sim.json
	go test -count=1 -timeout 12h ./hub/controller -run '^Test(Simulation$(if $(SEED),,|NarrowWorlds|Stories|StoriesOfLocks))$$' -v -args \
		$(if $(SEED),-sim.seed=$(SEED),-sim.seeds=$(SEEDS) -sim.from=$(FROM) -sim.out=$(CURDIR)/out/sim.json)

.PHONY: soak
soak: ## Simulate a million seeds; takes an hour or so on two cores
	@$(MAKE) sim SEEDS=1000000

.PHONY: explore
explore: ## Look at every state of small worlds of the hub's real code, sound and broken; writes out/explore.json
	@mkdir -p out && rm -f out/explore.json
	go test -count=1 -timeout 3h ./hub/publish -run '^(TestExploration|TestNothingIsLostByMerging)$$' -v -args -explore.all -explore.out=$(CURDIR)/out/explore.json

# What is handed to the command: MUTANTS=-all tries every generated mutant, MUTANTS="-generated=0" none.
MUTANTS :=

.PHONY: mutants
mutants: k8s ## Break the rules one by one, and a sample of all code beside them; tests must notice; writes out/mutants.json
	@mkdir -p out && rm -f out/mutants.json
	go run ./e2e/mutants $(MUTANTS)

# A line counts if it is neither blank nor comment, generated files aside. Product is api, cmd, config, hub and member.
define COUNT_LINES
FNR == 1 { comment = 0 }
length($$0) > 120 { long++ }
/^[ \t]*\/\*/ { comment = 1 }
!comment && !/^[ \t]*(\/\/.*)?$$/ {
	package = FILENAME; sub("/?[^/]*$$", "", package)
	kind = FILENAME ~ /_test\.go$$/ ? "tests" : FILENAME ~ /^e2e\// ? "e2e" : "product"
	n[package, kind]++; all[kind]++; seen[package]
}
/\*\// { comment = 0 }
END {
	for (p in seen) printf "%-32s %8d %8d\n", p, n[p, "product"] + n[p, "e2e"], n[p, "tests"] | "sort"
	close("sort")
	printf "product %d, e2e %d, tests %d; lines over 120 characters: %d\n", all["product"], all["e2e"], all["tests"], long
	printf "{\"product\": %d, \"e2e\": %d, \"tests\": %d, \"long\": %d}\n", all["product"], all["e2e"], all["tests"], long >out
}
endef
export COUNT_LINES

.PHONY: lines
lines: ## Count Go lines that are neither blank nor comment: each package's and its tests'; writes out/lines.json
	@mkdir -p out && rm -f out/lines.json
	@git ls-files '*.go' | grep -v zz_generated | xargs awk -v out=out/lines.json "$$COUNT_LINES"

KILLS := 100
ASLEEP := 60s

.PHONY: pair
pair: k8s build $(KUSTOMIZE) ## Take away the hub that writes: KILLS kills, and a replica ASLEEP
	go test -v -count=1 -timeout 2h ./e2e/hubfailover -args -kills=$(KILLS) -asleep=$(ASLEEP)

.PHONY: follow
follow: ROUNDS := 10
follow: k8s build $(KUSTOMIZE) ## Have Pods of a real Deployment follow the leader in ROUNDS planned changes and ROUNDS failovers; writes out/follow.json
	@rm -f out/follow.json
	go test -v -count=1 -timeout 2h ./e2e/follow -args -rounds=$(ROUNDS) -report=$(CURDIR)/out/follow.json

.PHONY: hostile
hostile: k8s build $(KUSTOMIZE) ## Play hostile members and tenants against two replicas of the hub, for some 8 minutes; writes out/hostile.json
	@mkdir -p out && rm -f out/hostile.json
	go test -v -count=1 -timeout 30m ./e2e/hostile -args -full -report=$(CURDIR)/out/hostile.json

# How many inputs each target is tried with. A number of them, not a time: where the time runs out, Go 1.26 may report a
# failure without one (https://go.dev/issue/75804).
FUZZ := 50000x

.PHONY: fuzz
fuzz: ## Fuzz what is read from members and Secrets, each target for FUZZ
	@grep -ro '^func Fuzz[A-Za-z]*' --include=*_test.go api hub member | sed 's|/[^/]*_test.go:func | |' | sort | while read -r dir target; do \
		echo "$$dir $$target"; go -C $$dir test . -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZ) || exit 1; done

N := 10

.PHONY: chaos
chaos: k8s build $(KUSTOMIZE) ## Break real processes at random: N schedules, seeds SEED and up; writes out/chaos.json
	@rm -f out/chaos.json
	$(RUN) ./e2e/chaos -n $(N) -seed $(or $(SEED),1)

# One of: leader-lost, partition, drain, hub-lost, failback, rotation, flapping; cronjob, unmodified.
SCENARIO := leader-lost
# What is handed to cronjob and unmodified: DRILL=-unwoken, say, or DRILL="-rounds 2".
DRILL :=
FENCE_DRILLS := cronjob unmodified

.PHONY: drill
drill: k8s $(if $(filter unmodified,$(SCENARIO)),electors) build $(KUSTOMIZE) ## Play and narrate SCENARIO=leader-lost, partition, drain, hub-lost, failback, rotation or flapping, drawn in out/report.html; or drill fences: cronjob, unmodified
	$(RUN) $(if $(filter $(FENCE_DRILLS),$(SCENARIO)),./e2e/fences,./e2e/drill) $(SCENARIO) $(DRILL)

.PHONY: versions
versions: k8s older-k8s capi build $(KUSTOMIZE) $(HELM) ## Run tests and drills on the Kubernetes minor before: everywhere, on the hub, in one member
	KUBEBUILDER_ASSETS=$(OLDER_ASSETS) go test -count=1 -vet=off -timeout 40m -p 1 \
		./config ./config/crd ./hub/fleet ./hub/rights ./hub/guard ./e2e/fences
	KUBEBUILDER_ASSETS_HUB=$(OLDER_ASSETS) go test -count=1 -vet=off -timeout 40m -p 1 ./e2e/handover ./e2e/hubfailover ./e2e/install
	KUBEBUILDER_ASSETS_LAST_MEMBER=$(OLDER_ASSETS) go test -count=1 -vet=off -timeout 40m -p 1 ./e2e/handover ./e2e/gate ./e2e/guestbook

.PHONY: upgrade
upgrade: k8s build $(KUSTOMIZE) ## Replace the hub of the commit OLD by this one, replica by replica: no term may lapse
	@test -n "$(OLD)" || { echo "name the commit to upgrade from: make upgrade OLD=<commit>" >&2; exit 1; }
	@old=$$(mktemp -d) && trap 'rm -rf "$$old"' EXIT && git archive $(OLD) | tar -x -C "$$old" && \
	UPGRADE_FROM="$$old" go test -v -count=1 -timeout 30m ./e2e/install -run '^TestARollingUpgradeEndsNoTerm$$'

##@ Build what the above need (each does so by itself)

CONTROL_PLANE := \
	etcd=go.etcd.io/etcd/server/v3 \
	kube-apiserver=k8s.io/kubernetes/cmd/kube-apiserver \
	kube-controller-manager=k8s.io/kubernetes/cmd/kube-controller-manager \
	kubectl=k8s.io/kubernetes/cmd/kubectl

.PHONY: k8s older-k8s
k8s: ## Build etcd and a real Kubernetes control plane into the cache
	@LDFLAGS="$(call k8s-ldflags,$(K8S_VERSION))" $(BUILD_ONCE) $(KUBEBUILDER_ASSETS) e2e/k8s $(CONTROL_PLANE)

older-k8s: ## The same of the Kubernetes minor before
	@LDFLAGS="$(call k8s-ldflags,$(OLDER_K8S_VERSION))" $(BUILD_ONCE) $(OLDER_ASSETS) e2e/k8s/older $(CONTROL_PLANE)

.PHONY: capi
capi: ## Build the real Cluster API manager and clusterctl into the cache
	@LDFLAGS="-s -w $(call stamp,sigs.k8s.io/cluster-api/version,$(CAPI_VERSION))" \
	$(BUILD_ONCE) $(CAPI_ASSETS) e2e/capi \
		capi-manager=sigs.k8s.io/cluster-api/core \
		clusterctl=sigs.k8s.io/cluster-api/cmd/clusterctl

.PHONY: argocd
argocd: ## Build the real ApplicationSet controller of Argo CD into the cache
	@LDFLAGS="-s -w" $(BUILD_ONCE) $(ARGOCD_ASSETS) e2e/argocd argocd=$(OURS)/e2e/argocd

ELECTORS := github.com/leasecast/leasecast/e2e/fences

.PHONY: electors
electors: ## Build electors of client-go and controller-runtime into the cache
	@LDFLAGS="-s -w" $(BUILD_ONCE) $(ELECTOR_ASSETS) . client-go=$(ELECTORS)/clientgo controller-runtime=$(ELECTORS)/controllerruntime

TOOL_PROGRAMS := \
	$(notdir $(CONTROLLER_GEN))=sigs.k8s.io/controller-tools/cmd/controller-gen@$(CONTROLLER_GEN_VERSION) \
	$(notdir $(KUSTOMIZE))=sigs.k8s.io/kustomize/kustomize/v5@$(KUSTOMIZE_VERSION) \
	$(notdir $(HELM))=helm.sh/helm/v3/cmd/helm@$(HELM_VERSION) \
	$(notdir $(KIND))=sigs.k8s.io/kind@$(KIND_VERSION) \
	$(notdir $(GOLANGCI_LINT))=github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION) \
	$(notdir $(KUBE_API_LINTER))=sigs.k8s.io/kube-api-linter/cmd/golangci-lint-kube-api-linter@$(KUBE_API_LINTER_VERSION)

# Without service discovery, whose libraries are most of it.
$(PROMTOOL):
	@LDFLAGS="-s -w" GOFLAGS=-tags=remove_all_sd $(BUILD_ONCE) $(TOOLS) - \
		$(@F)=github.com/prometheus/prometheus/cmd/promtool@$(PROMTOOL_VERSION)

.PHONY: tools
tools: ## Build controller-gen, kustomize, helm and the linters into the cache
	@LDFLAGS="-s -w" $(BUILD_ONCE) $(TOOLS) - $(TOOL_PROGRAMS)

$(CONTROLLER_GEN) $(KUSTOMIZE) $(HELM) $(KIND) $(GOLANGCI_LINT) $(KUBE_API_LINTER):
	@LDFLAGS="-s -w" $(BUILD_ONCE) $(TOOLS) - $(filter $(@F)=%,$(TOOL_PROGRAMS))
