package locks

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/hub/seal"
)

// usual are the durations that controller-runtime sets where a program sets none.
var usual = v1alpha1.LockFence{Namespace: "till", Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2}

// stated is a lock whose user states how long its elector's requests and releases take.
func stated(request int32, release *int32) v1alpha1.LockFence {
	l := usual
	l.RequestTimeoutSeconds, l.ReleaseTimeoutSeconds = request, release
	return l
}

func TestPolicyFencesEachLockWithItsDurations(t *testing.T) {
	other := stated(5, ptr.To[int32](10))
	other.Namespace = "vault"
	got := Of(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{usual, other}})
	want := []Lock{
		{types.NamespacedName{Namespace: "till", Name: "stock"}, Elector{15 * time.Second, 10 * time.Second, 2 * time.Second, 60 * time.Second, 120 * time.Second}},
		{types.NamespacedName{Namespace: "vault", Name: "stock"}, Elector{15 * time.Second, 10 * time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := Of(nil); got != nil {
		t.Errorf("without fencing there are %v", got)
	}
}

func TestStopTimeAssumesTheWorstOfWhatAPolicyLeavesOut(t *testing.T) {
	slow := v1alpha1.LockFence{LeaseDurationSeconds: 120, RenewDeadlineSeconds: 90, RetryPeriodSeconds: 10}
	for name, test := range map[string]struct {
		asked v1alpha1.LockFence
		want  time.Duration
	}{
		"nothing is stated: the API server ends a request, and a release takes two":  {usual, (60 + 2 + 10 + 120) * time.Second},
		"a request timeout is stated: a release takes two of it":                     {stated(5, nil), (5 + 2 + 10 + 10) * time.Second},
		"no release is stated: the API server ends a request":                        {stated(0, ptr.To[int32](0)), (60 + 2 + 10) * time.Second},
		"a request timeout and no release are stated":                                {stated(5, ptr.To[int32](0)), (5 + 2 + 10) * time.Second},
		"a request timeout and the time of a release are stated":                     {stated(5, ptr.To[int32](10)), (5 + 2 + 10 + 10) * time.Second},
		"a renew deadline is longer than the API server's limit: a renewal takes it": {slow, (90 + 10 + 90 + 180) * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := electorOf(test.asked).StopTime(); got != test.want {
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
		"a program needs some time to start":          {Elector{Lease: 15 * time.Second}, 2 * time.Minute},
		"a slow elector needs three of its durations": {Elector{Lease: 60 * time.Second}, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.elector.Patience(); got != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// A hub that finds a longer stop time in its seal than any policy can ask for takes the seal for broken.
func TestNoPolicyAsksForALongerStopTimeThanTheSealAdmits(t *testing.T) {
	content, err := os.ReadFile("../../../config/crd/bases/leasecast.dev_leadershippolicies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(content, &crd); err != nil {
		t.Fatal(err)
	}
	fencing := crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["fencing"]
	fields := fencing.Properties["leaderElectionLocks"].Items.Schema.Properties
	most := func(field string) int32 {
		if fields[field].Maximum == nil {
			t.Fatalf("%s has no maximum", field)
		}
		return int32(*fields[field].Maximum)
	}
	longest := v1alpha1.LockFence{
		LeaseDurationSeconds: most("leaseDurationSeconds"), RenewDeadlineSeconds: most("renewDeadlineSeconds"),
		RetryPeriodSeconds: most("retryPeriodSeconds"), RequestTimeoutSeconds: most("requestTimeoutSeconds"),
	}
	releases := longest
	releases.ReleaseTimeoutSeconds = ptr.To(most("releaseTimeoutSeconds"))
	for _, l := range []v1alpha1.LockFence{longest, releases} {
		if stop := electorOf(l).StopTime(); stop > seal.MaxStop {
			t.Errorf("%+v has the stop time %v, and the seal admits %v", l, stop, seal.MaxStop)
		}
	}
}
