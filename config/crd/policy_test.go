package crd_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/leasecast/leasecast/api/v1alpha1"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

const admitted = ""

// The messages of the API server.
const (
	sumTooLarge = "renewIntervalMilliseconds twice, requestTimeoutMilliseconds and maxClockSkewMilliseconds " +
		"must not add up to more than leaseDurationMilliseconds, or one lost renewal ends the term: " +
		"raise leaseDurationMilliseconds or lower the others"
	badSelector = "each of matchExpressions needs the operator In or NotIn and values, " +
		"or the operator Exists or DoesNotExist and no values"
	badLeaseName = "leaseName must be a DNS subdomain, such as leasecast"
	fixedName    = "leaseName cannot be changed, because readers in every cluster know it: " +
		"delete the policy and create it again with the other name"
	tooLong = "leaseDurationMilliseconds of more than 3600000 needs failover Manual, and neither leaderElectionLocks " +
		"nor schedules in fencing"
	noNamespaces  = "name at least one namespace in names, or give a selector"
	badNamespace  = "a namespace name must be a DNS label, such as team-a"
	kubeNamespace = "kube-* namespaces cannot be managed"
)

const some = "namespaces: {names: [team-a]}\n"

func TestPolicyIsAdmittedOrRefusedInWordsThatHelp(t *testing.T) {
	timings := func(fields string) string { return some + "timings: {" + fields + "}" }
	names := func(names ...string) string {
		return fmt.Sprintf("namespaces: {names: [%s]}", strings.Join(names, ", "))
	}
	selector := func(expression string) string {
		return "namespaces: {selector: {matchExpressions: [{" + expression + "}]}}"
	}
	tests := map[string]struct{ spec, want string }{
		"one namespace is enough": {some, admitted},

		"the fast profile": {timings("leaseDurationMilliseconds: 3000, renewIntervalMilliseconds: 1000, " +
			"requestTimeoutMilliseconds: 500, maxClockSkewMilliseconds: 250"), admitted},
		"the sum may be D": {timings("leaseDurationMilliseconds: 14000"), admitted},
		"the sum may not exceed D by 1 ms": {
			timings("leaseDurationMilliseconds: 14000, maxClockSkewMilliseconds: 1001"), sumTooLarge,
		},
		"r counts twice": {timings("renewIntervalMilliseconds: 6000"), sumTooLarge},
		"τ counts":       {timings("requestTimeoutMilliseconds: 5000"), sumTooLarge},
		"ε counts":       {timings("maxClockSkewMilliseconds: 3000"), sumTooLarge},
		"D may be a day where people fail over": {
			some + "failover: Manual\ntimings: {leaseDurationMilliseconds: 86400000}", admitted,
		},
		"D may not be a day where the hub fails over": {timings("leaseDurationMilliseconds: 86400000"), tooLong},
		"D may not be a day where a lock is fenced": {
			some + "failover: Manual\ntimings: {leaseDurationMilliseconds: 86400000}\nfencing: {leaderElectionLocks: " +
				"[{namespace: kube-system, name: a, leaseDurationSeconds: 15, renewDeadlineSeconds: 10, retryPeriodSeconds: 2, " +
				"requestTimeoutSeconds: 5, releaseTimeoutSeconds: 0}]}", tooLong,
		},
		"D may not be a day where schedules are fenced": {
			some + "failover: Manual\ntimings: {leaseDurationMilliseconds: 86400000}\nfencing: {schedules: {}}", tooLong,
		},
		"the name of a Lease is in lower case":  {some + "leaseName: Leasecast", badLeaseName},
		"the choice of namespaces is not empty": {"namespaces: {}", noNamespaces},
		"an empty selector selects all":         {"namespaces: {selector: {}}", admitted},
		"names and a selector":                  {"namespaces: {names: [a], selector: {matchLabels: {team: a}}}", admitted},
		"kube-anything is not managed":          {names("team-a", "kube-x"), kubeNamespace},
		"kube is managed":                       {names("kube", "kubernetes"), admitted},
		"a namespace is in lower case":          {names("Team-A"), badNamespace},
		"In needs values":                       {selector("key: team, operator: In"), badSelector},
		"In with values":                        {selector("key: team, operator: In, values: [a]"), admitted},
		"Exists takes no values":                {selector("key: team, operator: Exists, values: [a]"), badSelector},
		"an operator is not made up":            {selector("key: team, operator: Like, values: [a]"), badSelector},
		"an operator for Clusters is not made up": {
			spec: some + "clusterSelector: {matchExpressions: [{key: a, operator: Is}]}",
			want: badSelector,
		},
		"something is required": {some + "requires: {}", "name resources, or set reader to true"},
		"what is required is no subresource": {
			some + "requires: {resources: [{group: apps, names: [Deployments/status]}]}", "in the plural",
		},
		"a field that does not exist is not lost": {some + "failsBack: Automatic", `unknown field "spec.failsBack"`},
	}
	checkSpecs(t, tests)
}

func TestPolicyMayBeChangedButForTheNameOfItsLease(t *testing.T) {
	tests := map[string]struct {
		before string // leaseName
		change func(*v1alpha1.LeadershipPolicy)
		want   string
	}{
		"timings": {change: func(p *v1alpha1.LeadershipPolicy) { p.Spec.Timings.LeaseDurationMilliseconds = 30_000 }},
		"timings, badly": {
			change: func(p *v1alpha1.LeadershipPolicy) { p.Spec.Timings.LeaseDurationMilliseconds = 3_000 },
			want:   sumTooLarge,
		},
		"namespaces":                  {change: func(p *v1alpha1.LeadershipPolicy) { p.Spec.Namespaces.Names[0] = "team-b" }},
		"the default name, to itself": {"", func(p *v1alpha1.LeadershipPolicy) { p.Spec.LeaseName = "" }, admitted},
		"the default name":            {"", func(p *v1alpha1.LeadershipPolicy) { p.Spec.LeaseName = "other" }, fixedName},
		"a chosen name, to another":   {"chosen", func(p *v1alpha1.LeadershipPolicy) { p.Spec.LeaseName = "new" }, fixedName},
		"a chosen name, to none":      {"chosen", func(p *v1alpha1.LeadershipPolicy) { p.Spec.LeaseName = "" }, fixedName},
	}
	c := newClient(t)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			policy := &v1alpha1.LeadershipPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "test-"},
				Spec: v1alpha1.LeadershipPolicySpec{
					LeaseName:  test.before,
					Namespaces: v1alpha1.NamespaceSelection{Names: []string{"team-a"}},
				},
			}
			musttest.Do(t, c.Create(t.Context(), policy))
			test.change(policy)
			mustBe(t, c.Update(t.Context(), policy), test.want)
		})
	}
}

func TestSamplePolicyGetsTheDefaultProfile(t *testing.T) {
	content := musttest.Get(os.ReadFile("../../config/samples/leadershippolicy.yaml"))(t)
	var sample v1alpha1.LeadershipPolicy
	musttest.Do(t, yaml.UnmarshalStrict(content, &sample))
	c := newClient(t)
	musttest.Do(t, c.Create(t.Context(), object(t, sample.Kind, string(content))))
	var got v1alpha1.LeadershipPolicy
	musttest.Do(t, c.Get(t.Context(), client.ObjectKeyFromObject(&sample), &got))
	want := v1alpha1.LeadershipPolicySpec{
		LeaseName:  v1alpha1.DefaultLeaseName,
		Namespaces: sample.Spec.Namespaces,
		Timings: v1alpha1.Timings{
			LeaseDurationMilliseconds:  15_000,
			RenewIntervalMilliseconds:  5000,
			RequestTimeoutMilliseconds: 3000,
			MaxClockSkewMilliseconds:   1000,
		},
		InitialDelaySeconds: ptr.To(int32(v1alpha1.DefaultInitialDelay / time.Second)),
		Health:              v1alpha1.Health{WhenMostUnreachable: v1alpha1.FailOverWhenMostUnreachable},
		Handover:            v1alpha1.HandoverExpiry,

		Failover: v1alpha1.Automatic, Failback: v1alpha1.Manual, FailbackAfterSeconds: v1alpha1.DefaultFailbackAfter,
		Placement: v1alpha1.PlacementPriority, MaxConcurrentMoves: v1alpha1.DefaultMaxConcurrentMoves,
	}
	if diff := cmp.Diff(want, got.Spec); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func mustBe(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == admitted && err != nil:
		t.Fatalf("refused: %v", err)
	case want != admitted && err == nil:
		t.Fatalf("admitted, want refused: %s", want)
	case want != admitted && !strings.Contains(err.Error(), want):
		t.Fatalf("refused with: %v\nwant: %s", err, want)
	case want != admitted && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err):
		t.Fatalf("refused with reason %s", apierrors.ReasonForError(err))
	case err != nil && strings.Contains(err.Error(), "evaluating rule"):
		t.Fatalf("a rule failed instead of answering: %v", err)
	}
}
