package worst

import (
	"reflect"
	"runtime"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

var codecs = scheme.Codecs

func TestFewBytesDecodeToMuch(t *testing.T) {
	const size = 32 << 10
	for name, c := range map[string]struct {
		of    schema.GroupVersionKind
		is    any
		times float64 // the memory in bytes for each byte
	}{
		"an admission policy": {
			of:    admissionv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy"),
			is:    admissionv1.ValidatingAdmissionPolicy{},
			times: 50,
		},
		"a FlowSchema":       {flowcontrolv1.SchemeGroupVersion.WithKind("FlowSchema"), flowcontrolv1.FlowSchema{}, 50},
		"a CronJob":          {batchv1.SchemeGroupVersion.WithKind("CronJob"), batchv1.CronJob{}, 100},
		"a page of CronJobs": {batchv1.SchemeGroupVersion.WithKind("CronJobList"), batchv1.CronJobList{}, 300},
		"a Status":           {schema.GroupVersionKind{Version: "v1", Kind: "Status"}, metav1.Status{}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			body := Bodies(c.of, reflect.TypeOf(c.is), size)[0].Object()
			if len(body) > size+1<<9 {
				t.Errorf("the body has %d bytes", len(body))
			}
			if times := held(t, body) / float64(len(body)); times < c.times {
				t.Errorf("it takes %.0f bytes of memory for each: want at least %.0f", times, c.times)
			} else {
				t.Logf("%.0f bytes of memory for each", times)
			}
		})
	}
}

// held is how much memory is taken while an answer is decoded.
func held(t *testing.T, body []byte) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	o, _, err := codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(o)
	return float64(after.TotalAlloc - before.TotalAlloc)
}

// Whatever the hub reads tomorrow: its worst is decoded, and not refused as broken.
func TestTheWorstOfEveryTypeIsDecoded(t *testing.T) {
	for of, message := range scheme.Scheme.AllKnownTypes() {
		if of.Version != "v1" || of.Kind == "WatchEvent" || strings.HasSuffix(of.Kind, "Options") {
			continue
		}
		for _, b := range Bodies(of, message, 1<<10) {
			if _, _, err := codecs.UniversalDeserializer().Decode(b.Object(), nil, nil); err != nil {
				t.Errorf("%s of %s: %v", b.Name, of.GroupVersion(), err)
			}
		}
	}
}
