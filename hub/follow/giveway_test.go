package follow

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// workload is a Deployment or StatefulSet with so many replicas.
func workload(kind, name string, replicas int) string {
	return fmt.Sprintf("apiVersion: apps/v1\nkind: %s\nmetadata: {name: %s}\n"+
		"spec: {replicas: %d, selector: {matchLabels: {app: %s}}}\n", kind, name, replicas, name)
}

// cronJob is a CronJob whose Pods have these labels.
func cronJob(name, labels string, suspend bool) string {
	return fmt.Sprintf("apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: %s}\n"+
		"spec: {suspend: %v, jobTemplate: {spec: {template: {metadata: {labels: {%s}}}}}}\n", name, suspend, labels)
}

func TestWhatIsStopped(t *testing.T) {
	two, none := workload("Deployment", "a", 2), workload("Deployment", "a", 0)
	jobs := "CronJob shop/a by batch.kubernetes.io/job-namea-"
	for name, test := range map[string]struct{ leader, followers, all, want string }{
		"nothing":                      {settings("a"), settings("a"), "", ""},
		"scaled down":                  {two, none, "", "Deployment shop/a by app=a"},
		"not in the followers' form":   {workload("StatefulSet", "a", 2), "", "", "StatefulSet shop/a by app=a"},
		"it runs everywhere":           {two, workload("Deployment", "a", 1), "", ""},
		"replicas are left open there": {two, strings.Replace(none, "replicas: 0,", "", 1), "", ""},
		"for all":                      {"", "", two, ""},
		"suspended":                    {cronJob("a", "job: a", false), cronJob("a", "job: a", true), "", jobs},
		"suspended, without labels":    {cronJob("a", "", false), cronJob("a", "", true), "", jobs},
		"with an empty selector": {
			"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {selector: {}}\n", "", "", "",
		},
	} {
		m := parse([]source{
			of(v1alpha1.RoleLeader, test.leader), of(v1alpha1.RoleFollowers, test.followers), of(v1alpha1.RoleAll, test.all),
		})
		var got []string
		runs := m.stopped("shop", true)
		for is := range maps.Keys(runs) {
			got = append(got, is.String()+" by "+runs[is].selector+runs[is].prefix)
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	alone := parse([]source{of(v1alpha1.RoleLeader, two)})
	if got := alone.stopped("shop", false); len(got) != 0 {
		t.Errorf("it is not pruned, so it goes on: %v", got)
	}
}
