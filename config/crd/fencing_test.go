package crd_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestFencingIsAdmittedOrRefusedInWordsThatHelp(t *testing.T) {
	fencing := func(fields string) string { return "namespaces: {names: [team-a]}\nfencing: {" + fields + "}" }
	writes := func(account, resources string) string {
		return fencing(fmt.Sprintf("writes: [{serviceAccounts: [%s], resources: [%s]}]", account, resources))
	}
	const checkout, pods = "{name: checkout}", "{names: [pods]}"
	const badResource = "a resource is named in the plural, in lower case and without subresources, such as deployments"
	tests := map[string]struct{ spec, want string }{
		"writes of an account":                     {writes(checkout, pods), admitted},
		"of an account of another namespace":       {writes("{namespace: shop, name: checkout}", pods), admitted},
		"of the core group by its name":            {writes(checkout, "{group: '', names: [pods]}"), admitted},
		"of a group":                               {writes(checkout, "{group: apps, names: [deployments, statefulsets]}"), admitted},
		"schedules":                                {fencing("schedules: {matchLabels: {run: once}}"), admitted},
		"all Jobs":                                 {fencing("schedules: {}"), admitted},
		"a fence that warns":                       {fencing("enforcement: Warn, schedules: {}"), admitted},
		"an enforcement is not made up":            {fencing("enforcement: Audit, schedules: {}"), `supported values: "Deny", "Warn"`},
		"something is fenced":                      {fencing("enforcement: Warn"), "say what is fenced: leaderElectionLocks, writes or schedules"},
		"writes are not empty":                     {fencing("writes: []"), "should have at least 1 items"},
		"writes are somebody's":                    {writes("", pods), "should have at least 1 items"},
		"writes are of something":                  {writes(checkout, ""), "should have at least 1 items"},
		"an account of kube-system cannot be":      {writes("{namespace: kube-system, name: namespace-controller}", pods), "the accounts of kube-* namespaces cannot be fenced"},
		"an account has a name":                    {writes("{namespace: shop}", pods), "Required value"},
		"an account is no pattern":                 {writes("{name: '*'}", pods), "the name of an account must be a DNS subdomain"},
		"an account holds no expression":           {writes(`{name: "a' || true"}`, pods), "the name of an account must be a DNS subdomain"},
		"writes of objects with a label":           {fencing("writes: [{objectLabels: {led: shop}, resources: [" + pods + "]}]"), admitted},
		"objects have a label":                     {fencing("writes: [{objectLabels: {}, resources: [" + pods + "]}]"), "should have at least 1 properties"},
		"a fence has accounts or objects":          {fencing("writes: [{resources: [" + pods + "]}]"), "exactly one of the fields in [serviceAccounts objectLabels] must be set"},
		"and not both":                             {fencing("writes: [{objectLabels: {led: shop}, serviceAccounts: [" + checkout + "], resources: [" + pods + "]}]"), "exactly one of the fields in [serviceAccounts objectLabels] must be set"},
		"Leases cannot be":                         {writes(checkout, "{group: coordination.k8s.io, names: [leases]}"), "Leases cannot be fenced"},
		"Leases cannot be, among others":           {writes(checkout, "{group: coordination.k8s.io, names: [leasecandidates, leases]}"), "Leases cannot be fenced"},
		"a resource is no pattern":                 {writes(checkout, "{names: ['*']}"), badResource},
		"a resource has no subresource":            {writes(checkout, "{names: [pods/status]}"), badResource},
		"a group is no pattern":                    {writes(checkout, "{group: '*', names: [pods]}"), "a group must be a DNS subdomain"},
		"17 fences are too many":                   {fencing("writes: [" + strings.Repeat("{serviceAccounts: ["+checkout+"], resources: ["+pods+"]},", 17) + "]"), "must have at most 16 items"},
		"Jobs are selected as anything else":       {fencing("schedules: {matchExpressions: [{key: run, operator: In}]}"), badSelector},
		"a field that does not exist is not lost":  {fencing("deletes: []"), `unknown field "spec.fencing.deletes"`},
		"schedules may be fenced besides writes":   {fencing("schedules: {}, writes: [{serviceAccounts: [" + checkout + "], resources: [" + pods + "]}]"), admitted},
		"an account of a namespace like kube may":  {writes("{namespace: kube, name: a}", pods), admitted},
		"a namespace of an account is a DNS label": {writes("{namespace: a.b, name: a}", pods), "a namespace name must be a DNS label"},
	}
	c := newClient(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := "spec:\n  " + strings.ReplaceAll(test.spec, "\n", "\n  ")
			mustBe(t, c.Create(t.Context(), object(t, "LeadershipPolicy", text)), test.want)
		})
	}
}

func TestALockIsAdmittedOrRefusedInWordsThatHelp(t *testing.T) {
	policy := func(namespaces, locks string) string {
		return "namespaces: {" + namespaces + "}\nfencing: {leaderElectionLocks: [" + locks + "]}"
	}
	const one = "names: [team-a]"
	lock := func(namespace, name string, lease, renew, retry int) string {
		return fmt.Sprintf("{namespace: %s, name: %s, leaseDurationSeconds: %d, renewDeadlineSeconds: %d, retryPeriodSeconds: %d}", namespace, name, lease, renew, retry)
	}
	locks := func(locks ...string) string { return policy(one, strings.Join(locks, ", ")) }
	usual := lock("cert-manager", "cert-manager-controller", 60, 40, 15)
	const itsOwn = "the cluster itself works with this Lease"
	tests := map[string]struct{ spec, want string }{
		"a lock":                                {locks(usual), admitted},
		"one in kube-system":                    {locks(lock("kube-system", "cert-manager-controller", 60, 40, 15)), admitted},
		"one with a request timeout":            {locks("{namespace: a, name: b, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2, requestTimeoutSeconds: 10}"), admitted},
		"one that is never released":            {locks("{namespace: a, name: b, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2, releaseTimeoutSeconds: 0}"), admitted},
		"one that is released":                  {locks("{namespace: a, name: b, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2, releaseTimeoutSeconds: 10}"), admitted},
		"a request takes some time":             {locks("{namespace: a, name: b, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2, requestTimeoutSeconds: 0}"), "requestTimeoutSeconds in body should be greater than or equal to 1"},
		"a release takes no negative time":      {locks("{namespace: a, name: b, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2, releaseTimeoutSeconds: -1}"), "releaseTimeoutSeconds in body should be greater than or equal to 0"},
		"one that is named twice":               {locks(usual, usual), "Duplicate value"},
		"one of that name elsewhere":            {locks(usual, lock("kube-system", "cert-manager-controller", 60, 40, 15)), admitted},
		"another one in that namespace":         {locks(usual, lock("cert-manager", "other", 60, 40, 15)), admitted},
		"a controller is no lock":               {locks("{controller: cert-manager}"), `unknown field "spec.fencing.leaderElectionLocks[0].controller"`},
		"a lock has a name":                     {locks("{namespace: a, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2}"), "name: Required value"},
		"a lock has a namespace":                {locks("{name: b, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2}"), "namespace: Required value"},
		"and a lease duration":                  {locks("{namespace: a, name: b, renewDeadlineSeconds: 10, retryPeriodSeconds: 2}"), "leaseDurationSeconds: Required value"},
		"and a renew deadline":                  {locks("{namespace: a, name: b, leaseDurationSeconds: 15, retryPeriodSeconds: 2}"), "renewDeadlineSeconds: Required value"},
		"and a retry period":                    {locks("{namespace: a, name: b, leaseDurationSeconds: 15, renewDeadlineSeconds: 10}"), "retryPeriodSeconds: Required value"},
		"no elector renews for so long":         {locks(lock("a", "b", 10, 10, 2)), "leaseDurationSeconds must be more than renewDeadlineSeconds"},
		"no elector tries so seldom":            {locks(lock("a", "b", 15, 12, 10)), "renewDeadlineSeconds must be more than 1.2 times retryPeriodSeconds"},
		"an elector may try as seldom as that":  {locks(lock("a", "b", 15, 13, 10)), admitted},
		"heartbeats of nodes cannot be":         {locks(lock("kube-node-lease", "node-1", 40, 20, 10)), "the heartbeats of nodes"},
		"the cluster's controllers cannot be":   {locks(lock("kube-system", "kube-controller-manager", 15, 10, 2)), itsOwn},
		"its scheduler cannot be":               {locks(lock("kube-system", "kube-scheduler", 15, 10, 2)), itsOwn},
		"its API servers cannot be":             {locks(lock("kube-system", "apiserver-abc", 15, 10, 2)), itsOwn},
		"its cloud controllers cannot be":       {locks(lock("kube-system", "cloud-controller-manager", 15, 10, 2)), itsOwn},
		"a controller manager elsewhere can be": {locks(lock("stock", "kube-controller-manager", 15, 10, 2)), admitted},
		"the hub's election cannot be":          {locks(lock("leasecast-system", "leasecast-hub", 15, 10, 2)), "are the hub's own, and none of them is a lock"},
		"nor the Lease of its probe":            {locks(lock("kube-system", "leasecast-hub-probe", 15, 10, 2)), "are the hub's own, and none of them is a lock"},
		"the managed Lease cannot be":           {locks(lock("team-a", "leasecast", 15, 10, 2)), "has the name of the Leases that the hub writes itself"},
		"nor one of that name elsewhere":        {locks(lock("team-b", "leasecast", 15, 10, 2)), "has the name of the Leases that the hub writes itself"},
		"nor under another name":                {locks(lock("team-a", "other", 15, 10, 2)) + "\nleaseName: other", "has the name of the Leases that the hub writes itself"},
		"locks follow one namespace":            {policy("names: [team-a, team-b]", usual), "name exactly one in namespaces.names"},
		"which has a name":                      {policy("selector: {}", usual), "name exactly one in namespaces.names"},
		"and no others that match":              {policy(one+", selector: {}", usual), "name exactly one in namespaces.names"},
	}
	c := newClient(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			text := "spec:\n  " + strings.ReplaceAll(test.spec, "\n", "\n  ")
			mustBe(t, c.Create(t.Context(), object(t, "LeadershipPolicy", text)), test.want)
		})
	}
}
