package locks

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

func TestWhichLocksAPolicyFences(t *testing.T) {
	byName := v1alpha1.LockFence{
		Namespace: "kube-system", Name: "cert-manager-controller",
		LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2, RequestTimeoutSeconds: 7,
	}
	slow := byName
	slow.LeaseDurationSeconds, slow.RenewDeadlineSeconds = 600, 500
	inKubeSystem := types.NamespacedName{Namespace: "kube-system", Name: "cert-manager-controller"}
	named := Lock{inKubeSystem, Elector{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second, Request: 7 * time.Second}}
	slowly := Lock{inKubeSystem, Elector{Lease: 600 * time.Second, Renew: 500 * time.Second, Retry: 2 * time.Second, Request: 7 * time.Second}}
	certManager := Lock{inKubeSystem, Elector{Lease: 60 * time.Second, Renew: 40 * time.Second, Retry: 15 * time.Second, Request: 60 * time.Second, Releases: true}}
	elsewhere := certManager
	elsewhere.Namespace = "cert-manager"
	controller := v1alpha1.LockFence{Controller: "cert-manager"}
	for name, test := range map[string]struct {
		asked []v1alpha1.LockFence
		want  []Lock
	}{
		"there are none": {nil, nil},
		"one by its name has the durations that it says":   {[]v1alpha1.LockFence{byName}, []Lock{named}},
		"that of a well-known controller has its own":      {[]v1alpha1.LockFence{controller}, []Lock{certManager}},
		"it may be in another namespace than usual":        {[]v1alpha1.LockFence{{Controller: "cert-manager", Namespace: "cert-manager"}}, []Lock{elsewhere}},
		"in two namespaces there are two":                  {[]v1alpha1.LockFence{controller, {Controller: "cert-manager", Namespace: "cert-manager"}}, []Lock{certManager, elsewhere}},
		"one that is asked for twice stops as the slower":  {[]v1alpha1.LockFence{controller, slow}, []Lock{slowly}},
		"wherever that is in the list":                     {[]v1alpha1.LockFence{slow, controller}, []Lock{slowly}},
		"and those of the controller, where it is slower":  {[]v1alpha1.LockFence{byName, controller}, []Lock{certManager}},
		"others keep their place beside one that is twice": {[]v1alpha1.LockFence{byName, {Controller: "cert-manager", Namespace: "cert-manager"}, controller}, []Lock{certManager, elsewhere}},
	} {
		t.Run(name, func(t *testing.T) {
			got := Of(&v1alpha1.Fencing{LeaderElectionLocks: test.asked})
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	if got := Of(nil); got != nil {
		t.Errorf("without fencing there are %v", got)
	}
}

func TestHowLongAHolderGoesOn(t *testing.T) {
	for name, test := range map[string]struct {
		elector Elector
		want    time.Duration
	}{
		"half of the renew deadline is for the request":          {usual, 17 * time.Second},
		"or what the program says":                               {Elector{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second, Request: 10 * time.Second}, 22 * time.Second},
		"one that releases its lock has its renew deadline more": {Elector{Lease: 15 * time.Second, Renew: 10 * time.Second, Retry: 2 * time.Second, Releases: true}, 27 * time.Second},
		"without a timeout the API server ends a request":        {wellKnown["cert-manager"].Elector, 155 * time.Second},
		"one that controller-runtime has made has half of it":    {wellKnown["cert-manager-cainjector"].Elector, 115 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.elector.StopTime(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

func TestHowLongALockMayBeHeldByNobody(t *testing.T) {
	for name, test := range map[string]struct {
		elector Elector
		want    time.Duration
	}{
		"a program needs some time to start":          {usual, 2 * time.Minute},
		"a slow elector needs three of its durations": {wellKnown["cert-manager"].Elector, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.elector.Patience(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// What the schema admits without asking must be right: no API server knows the table.
func TestEveryElectorAcceptsWellKnownDurations(t *testing.T) {
	for name, l := range wellKnown {
		if l.Namespace == "" || l.Name == "" || l.Lease <= l.Renew || l.Renew*5 <= l.Retry*6 || l.Retry <= 0 {
			t.Errorf("%s has %+v", name, l)
		}
	}
	seen := map[types.NamespacedName]v1alpha1.WellKnownController{}
	for name, l := range wellKnown {
		if other, twice := seen[l.NamespacedName]; twice {
			t.Errorf("%s and %s have one lock", name, other)
		}
		seen[l.NamespacedName] = name
	}
}

func TestWhatOnlyTheHubSeesInLocks(t *testing.T) {
	for name, test := range map[string]struct {
		asked              v1alpha1.LockFence
		namespace, written string
		want               string
	}{
		"a well-known controller":                           {v1alpha1.LockFence{Controller: "crossplane"}, "shop", "", ""},
		"a lock by its name":                                {v1alpha1.LockFence{Namespace: "stock", Name: "stock"}, "shop", "", ""},
		"a controller of a newer hub":                       {v1alpha1.LockFence{Controller: "newer"}, "shop", "", "the controller newer of leaderElectionLocks is not known"},
		"the Lease that the hub writes":                     {v1alpha1.LockFence{Controller: "crossplane"}, "crossplane-system", "crossplane-leader-election-core", "the lock crossplane-system/crossplane-leader-election-core has the name of the Lease that the hub writes itself"},
		"one of that name in another namespace":             {v1alpha1.LockFence{Controller: "crossplane"}, "shop", "crossplane-leader-election-core", "the lock crossplane-system/crossplane-leader-election-core has the name"},
		"the Lease by which the hub sees that it can write": {v1alpha1.LockFence{Namespace: "kube-system", Name: "leasecast-hub-probe"}, "shop", "", "the Lease kube-system/leasecast-hub-probe is the hub's own"},
		"another one in the managed namespace":              {v1alpha1.LockFence{Controller: "crossplane"}, "crossplane-system", "", ""},
		"the Lease that it writes by that name":             {v1alpha1.LockFence{Namespace: "shop", Name: "leasecast"}, "shop", "", "the lock shop/leasecast has the name"},
		"where the controller's lock was put it":            {v1alpha1.LockFence{Controller: "crossplane", Namespace: "shop"}, "shop", "crossplane-leader-election-core", "the lock shop/crossplane-leader-election-core has the name"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.LeadershipPolicy{}
			o.Spec.Namespaces.Names, o.Spec.LeaseName = []string{test.namespace}, test.written
			o.Spec.Fencing = &v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{test.asked}}
			err := Check(o)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
		})
	}
	if err := Check(&v1alpha1.LeadershipPolicy{}); err != nil {
		t.Errorf("without fencing: %v", err)
	}
}

func TestWellKnownControllersAreThoseOfTheAPI(t *testing.T) {
	content, err := os.ReadFile("../../../config/crd/bases/leasecast.dev_leadershippolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	fencing := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["fencing"]
	var got []string
	for _, value := range fencing.Properties["leaderElectionLocks"].Items.Schema.Properties["controller"].Enum {
		got = append(got, strings.Trim(string(value.Raw), `"`))
	}
	var want []string
	for _, name := range slices.Sorted(maps.Keys(wellKnown)) {
		want = append(want, string(name))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestTheReadmeTellsOfEachWellKnownController(t *testing.T) {
	content, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	readme := string(content)
	for name, l := range wellKnown {
		row := fmt.Sprintf("| %s | %s | %.f/%.f/%.f | %.f s |", name, l.Name, l.Lease.Seconds(), l.Renew.Seconds(), l.Retry.Seconds(), l.StopTime().Seconds())
		if !strings.Contains(readme, row) {
			t.Errorf("there is no row %s", row)
		}
		if !strings.Contains(readme, "`"+l.Namespace+"`") {
			t.Errorf("the namespace %s is not there", l.Namespace)
		}
	}
}
