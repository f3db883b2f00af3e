package locks

import (
	"os"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
	"github.com/leasecast/leasecast/hub/seal"
)

// usual are the durations that controller-runtime sets where a program sets none.
var usual = v1alpha1.LockFence{
	Namespace: "till", Name: "stock", LeaseDurationSeconds: 15, RenewDeadlineSeconds: 10, RetryPeriodSeconds: 2,
}

func TestOf_AssumesTheWorstOfWhatAPolicyLeavesOut(t *testing.T) {
	slow := usual
	slow.LeaseDurationSeconds, slow.RenewDeadlineSeconds, slow.RetryPeriodSeconds = 120, 90, 10
	stated := func(request int32, release *int32) v1alpha1.LockFence {
		l := usual
		l.RequestTimeoutSeconds, l.ReleaseTimeoutSeconds = request, release
		return l
	}
	for name, test := range map[string]struct {
		asked            v1alpha1.LockFence
		request, release time.Duration
		stop, patience   time.Duration
	}{
		"nothing is stated":         {usual, 60, 120, 60 + 2 + 10 + 120, 120},
		"a request is stated":       {stated(5, nil), 5, 10, 5 + 2 + 10 + 10, 120},
		"no release is stated":      {stated(0, ptr.To[int32](0)), 60, 0, 60 + 2 + 10, 120},
		"a request, and no release": {stated(5, ptr.To[int32](0)), 5, 0, 5 + 2 + 10, 120},
		"a request and a release":   {stated(5, ptr.To[int32](10)), 5, 10, 5 + 2 + 10 + 10, 120},
		"a long renew deadline":     {slow, 90, 180, 90 + 10 + 90 + 180, 3 * 120},
	} {
		t.Run(name, func(t *testing.T) {
			locks := Of(&v1alpha1.Fencing{LeaderElectionLocks: []v1alpha1.LockFence{test.asked, usual}})
			if len(locks) != 2 || locks[0].String() != "till/stock" {
				t.Fatalf("the locks are %v", locks)
			}
			e := locks[0].Elector
			want := Elector{
				seconds(test.asked.LeaseDurationSeconds), seconds(test.asked.RenewDeadlineSeconds),
				seconds(test.asked.RetryPeriodSeconds), test.request * time.Second, test.release * time.Second,
			}
			if e != want || e.StopTime() != test.stop*time.Second || e.Patience() != test.patience*time.Second {
				t.Errorf("%+v stops in %v and has %v to start, want %+v", e, e.StopTime(), e.Patience(), want)
			}
		})
	}
	if got := Of(nil); got != nil {
		t.Errorf("without fencing there are %v", got)
	}
}

// A hub that finds a longer stop time in its seal than any policy can ask for takes the seal for broken.
func TestNoPolicyAsksForALongerStopTimeThanTheSealAdmits(t *testing.T) {
	content := musttest.Get(os.ReadFile("../../../config/crd/bases/leasecast.dev_leadershippolicies.yaml"))(t)
	var crd apiextensionsv1.CustomResourceDefinition
	musttest.Do(t, yaml.Unmarshal(content, &crd))
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
