package worker

import (
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	deployments  = schema.GroupResource{Group: "apps", Resource: "deployments"}
	statefulSets = schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	daemonSets   = schema.GroupResource{Group: "apps", Resource: "daemonsets"}
	databases    = schema.GroupResource{Group: "example.com", Resource: "databases"}
)

func TestWhatIsWrong(t *testing.T) {
	for name, test := range map[string]struct {
		of     schema.GroupResource
		object string
		wrong  string
	}{
		"a Deployment is Available": {deployments,
			`{"status":{"conditions":[{"type":"Progressing","status":"False"},{"type":"Available","status":"True"}]}}`, ""},
		"a Deployment is not Available": {deployments,
			`{"status":{"conditions":[{"type":"Available","status":"False"},{"type":"Ready","status":"True"}]}}`,
			"is not Available"},
		"a Deployment has no status yet": {deployments, `{"spec":{"replicas":3}}`,
			"has neither the condition Available nor"},
		"a StatefulSet has its replicas": {statefulSets, `{"spec":{"replicas":2},"status":{"availableReplicas":2}}`, ""},
		"a StatefulSet has fewer": {statefulSets, `{"spec":{"replicas":2},"status":{"availableReplicas":1}}`,
			"has fewer"},
		"a StatefulSet has none by choice": {statefulSets, `{"spec":{"replicas":0}}`, ""},
		"a StatefulSet names no number":    {statefulSets, `{"spec":{}}`, "has fewer"},
		"it names no number, and has one":  {statefulSets, `{"spec":{},"status":{"availableReplicas":1}}`, ""},
		"a DaemonSet is on all nodes": {daemonSets,
			`{"status":{"desiredNumberScheduled":3,"numberAvailable":3}}`, ""},
		"a DaemonSet is not on all nodes": {daemonSets,
			`{"status":{"desiredNumberScheduled":3,"numberAvailable":2}}`, "has fewer"},
		"another kind is Ready": {databases,
			`{"spec":{"replicas":"many"},"status":{"conditions":[{"type":"Ready","status":"True"}]}}`,
			""},
		"another kind is not Ready": {databases, `{"status":{"conditions":[{"type":"Ready","status":"Unknown"}]}}`,
			"is not Ready"},
		"its conditions are others": {databases, `{"status":{"conditions":[{"type":"Synced","status":"True"}]}}`,
			"has neither the condition Available nor Ready"},
	} {
		wrong, _, err := whatIsWrong(test.of, []byte(test.object))
		if err != nil || (wrong == "") != (test.wrong == "") || !strings.HasPrefix(wrong, test.wrong) {
			t.Errorf("%s: %q, %v", name, wrong, err)
		}
	}
	worst := []byte(`{"status":{"conditions":[` + strings.Repeat(`{},`, 256<<10/3) + `{}]}}`)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, _, _ = whatIsWrong(deployments, worst)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 16<<20 {
		t.Errorf("an object of %d KiB took %d KiB", len(worst)>>10, took>>10)
	}
	if _, version, err := whatIsWrong(databases, []byte(`{"metadata":{"resourceVersion":"7"}}`)); version != "7" ||
		err != nil {
		t.Errorf("its version is %q, %v", version, err)
	}
	for object, of := range map[string]schema.GroupResource{
		`{`: databases, `[]`: databases, `{"metadata":{"resourceVersion":7}}`: databases,
		`{"status":{"conditions":{"Ready":"True"}}}`: databases,
		`{"status":{"numberAvailable":"2"}}`:         daemonSets,
		`{"status":{"availableReplicas":"2"}}`:       statefulSets, `{"spec":{"replicas":"2"}}`: statefulSets,
	} {
		if wrong, _, err := whatIsWrong(of, []byte(object)); err == nil {
			t.Errorf("%s: no error, but %q", object, wrong)
		}
	}
}

// Whatever a tenant writes, an object is healthy, or its health is said in few words, or it cannot be read.
func FuzzWhatIsWrong(f *testing.F) {
	f.Add(`{"status":{"conditions":[{"type":"Available","status":"True"}]}}`)
	f.Add(`{"spec":{"replicas":2},"status":{"availableReplicas":-1,"numberAvailable":1e9}}`)
	f.Fuzz(func(t *testing.T, object string) {
		for _, of := range []schema.GroupResource{deployments, statefulSets, daemonSets} {
			wrong, _, err := whatIsWrong(of, []byte(object))
			if len(wrong) > 100 || err == nil && !json.Valid([]byte(object)) {
				t.Errorf("%q: %q, %v", object, wrong, err)
			}
		}
	})
}
