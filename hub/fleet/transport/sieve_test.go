package transport

import (
	"bytes"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"runtime"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/e2e/hostile/worst"
	"github.com/leasecast/leasecast/e2e/must/musttest"
)

// marshaler is what Kubernetes encodes in protobuf.
type marshaler interface{ Marshal() ([]byte, error) }

func marshalled(o marshaler) []byte {
	raw, err := o.Marshal()
	if err != nil {
		panic(err) // plain data always marshals
	}
	return raw
}

// sieveAll sieves an answer.
func (r receipt) sieveAll(t testing.TB, body []byte) ([]byte, error) {
	t.Helper()
	return r.sieved(paced{from: bytes.NewReader(body)}, &share{})
}

// decoded is an answer as client-go decodes it.
func decoded(t testing.TB, body []byte) kruntime.Object {
	t.Helper()
	o, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// objectOf is a new object of a kind.
func objectOf(t testing.TB, q question) kruntime.Object {
	t.Helper()
	gv := musttest.Get(schema.ParseGroupVersion(q.apiVersion))(t)
	name := q.name
	if q.list {
		name += "List"
	}
	if q.list && !scheme.Scheme.Recognizes(gv.WithKind(name)) {
		name = q.name // there is no list of these
	}
	o := musttest.Get(scheme.Scheme.New(gv.WithKind(name)))(t)
	return o
}

// filled is an object of a kind, or a list, in which every field says something.
func filled(t testing.TB, q question) marshaler {
	t.Helper()
	o := objectOf(t, q)
	fill(reflect.ValueOf(o).Elem(), 0)
	m, ok := o.(marshaler)
	if !ok {
		t.Fatalf("%T has no protobuf", o)
	}
	return m
}

// fill sets all fields of a value.
func fill(v reflect.Value, depth int) {
	switch at := v.Addr().Interface().(type) {
	case *metav1.Time:
		*at = metav1.Unix(1_700_000_000, 0)
		return
	case *metav1.MicroTime:
		*at = metav1.NewMicroTime(time.Unix(1_700_000_000, 123_000))
		return
	case *metav1.TypeMeta:
		return
	case *metav1.FieldsV1:
		*at = *metav1.NewFieldsV1(`{"f:spec":{"f:renewTime":{}}}`)
		return
	}
	if depth > 12 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString("text")
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int32, reflect.Int64, reflect.Int:
		v.SetInt(7)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), depth+1)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), depth+1)
		}
	case reflect.Map:
		if v.Type().Elem().Kind() == reflect.String {
			entries := map[string]string{
				"a": "text", corev1.LabelMetadataName: "text", metav1.InitialEventsAnnotationKey: "true",
			}
			v.Set(reflect.ValueOf(entries).Convert(v.Type()))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i), depth+1)
			}
		}
	}
}

// sievedAs is what is left of an object that is answered for a kind.
func sievedAs[T kruntime.Object](t *testing.T, q question, o marshaler) T {
	t.Helper()
	body := musttest.Get(receipt{question: q}.sieveAll(t, enclose(q.apiVersion, q.name, marshalled(o))))(t)
	got, ok := decoded(t, body).(T)
	if !ok {
		t.Fatalf("it became a %T", decoded(t, body))
	}
	return got
}

// ask is what is asked for at a path.
func ask(path string) question { return question{kind: kinds[path], path: path} }

// What is written back must not lose what others have put there, and an edit of any field is to be seen.
func TestNothingIsLostOfWhatIsWrittenBack(t *testing.T) {
	for path, clear := range map[string]func(kruntime.Object){
		Leases: func(kruntime.Object) {},
		policies: func(o kruntime.Object) {
			p := o.(*admissionv1.ValidatingAdmissionPolicy)
			p.Spec, p.Status = admissionv1.ValidatingAdmissionPolicySpec{}, admissionv1.ValidatingAdmissionPolicyStatus{}
		},
		bindings: func(o kruntime.Object) {
			o.(*admissionv1.ValidatingAdmissionPolicyBinding).Spec = admissionv1.ValidatingAdmissionPolicyBindingSpec{}
		},
	} {
		t.Run(path, func(t *testing.T) {
			q := ask(path)
			whole := filled(t, q)
			got := sievedAs[kruntime.Object](t, q, whole)
			want := decoded(t, enclose(q.apiVersion, q.name, marshalled(whole)))
			clear(want)
			meta := want.(metav1.Object)
			meta.SetManagedFields(nil)
			meta.SetGenerateName("")
			meta.SetSelfLink("")
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// The keeper of the guard and the fences reads metadata alone, and goes by its marks.
func TestTheMetadataOfPoliciesKeepsTheirMarks(t *testing.T) {
	for _, path := range []string{policies, bindings} {
		q := askAs(t, path+"/text", protobufType+";"+onlyMetadata+";g=meta.k8s.io;v=v1")
		marks := map[string]string{"leasecast.dev/mark": "text"}
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: "text", UID: "text", Generation: 7, Labels: marks, Annotations: marks,
		}}
		body := musttest.Get(receipt{question: q}.sieveAll(t, enclose(q.apiVersion, q.name, marshalled(o))))(t)
		if n := bytes.Count(body, []byte("leasecast.dev/mark")); n != 2 {
			t.Errorf("%s: %d of the label and the annotation are left in %q", path, n, body)
		}
	}
}

func TestWhatIsKeptOfEachKind(t *testing.T) {
	at := ptr.To(metav1.Unix(1_700_000_000, 0))
	ns := sievedAs[*corev1.Namespace](t, ask(Namespaces), filled(t, ask(Namespaces)))
	ends := ns.Annotations[metav1.InitialEventsAnnotationKey]
	if ns.Name != "text" || ns.UID != "text" || ns.ResourceVersion != "text" || len(ns.Labels) != 3 ||
		!ns.DeletionTimestamp.Equal(at) || ns.Status.Phase != "text" || ns.ManagedFields != nil ||
		ns.Status.Conditions != nil || len(ns.Annotations) != 1 || ends != "true" {
		t.Errorf("of a Namespace: %+v", ns)
	}
	job := sievedAs[*batchv1.CronJob](t, ask(cronJobs), filled(t, ask(cronJobs)))
	if job.Name != "text" || job.Namespace != "text" || job.ResourceVersion != "text" || job.Labels != nil ||
		!job.CreationTimestamp.Equal(at) || len(job.Spec.JobTemplate.Labels) != 3 ||
		!job.Status.LastScheduleTime.Equal(at) || job.Spec.Schedule != "" {
		t.Errorf("of a CronJob: %+v", job)
	}
	review := sievedAs[*authorizationv1.SelfSubjectAccessReview](t, ask(reviews), filled(t, ask(reviews)))
	if !review.Status.Allowed || review.Spec.ResourceAttributes != nil {
		t.Errorf("of a review: %+v", review)
	}
}

// maxAllocated is how many bytes may be allocated for one object: what is kept of it, copied, and decoded. A list that
// is too long may take maxAllocatedForList.
const maxAllocated, maxAllocatedForList = 4 * maxLarge, 24 << 20

// The worst bodies that can be made of the Go types, as an object, an event of a watch, a list and an error. Where
// metadata alone is asked for, also of kinds that are not listed, the answer may be whole objects.
func TestTheWorstOfEachTypeDecodesToLittle(t *testing.T) {
	const deployments = "/apis/apps/v1/deployments"
	asked := maps.Clone(kinds)
	asked[deployments] = kind{apiVersion: "apps/v1", name: "Deployment"}
	types := scheme.Scheme.AllKnownTypes()
	for path, k := range asked {
		gv := musttest.Get(schema.ParseGroupVersion(k.apiVersion))(t)
		for _, q := range []question{ask(path), askAs(t, path, protobufType+";"+onlyMetadata)} {
			if q.name == "" {
				continue // a request that is not sent
			}
			list := q
			q.list, list.list = false, true
			worstIsBounded(t, q, gv.WithKind(k.name), types[gv.WithKind(k.name)])
			worstIsBounded(t, list, gv.WithKind(k.name+"List"), types[gv.WithKind(k.name+"List")])
			worstIsBounded(t, q, schema.GroupVersionKind{Version: "v1", Kind: statusKind}, reflect.TypeFor[metav1.Status]())
			if q.name != k.name {
				of := schema.GroupVersionKind{Group: "meta.k8s.io", Version: "v1", Kind: q.name}
				worstIsBounded(t, q, of, reflect.TypeFor[metav1.PartialObjectMetadata]())
				of.Kind += "List"
				worstIsBounded(t, list, of, reflect.TypeFor[metav1.PartialObjectMetadataList]())
			}
		}
	}
}

// askAs returns what a request for a path asks for.
func askAs(t *testing.T, path, accept string) question {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, "http://east"+path, nil)
	req.Header.Set("Accept", accept)
	q := musttest.Get(questionOf(req))(t)
	return q
}

// worstIsBounded checks what the worst answers of a type take. A nil type is no error: reviews have no lists.
func worstIsBounded(t *testing.T, q question, of schema.GroupVersionKind, is reflect.Type) {
	t.Helper()
	if is == nil {
		return
	}
	most := map[bool]int{true: maxAllocatedForList, false: maxAllocated}[q.list]
	for _, b := range worst.Bodies(of, is, 255<<10) {
		name := q.path + " as " + q.name + ": " + b.Name
		bounded(t, name, q, most, b.Object())
		if q.list {
			continue
		}
		kind := map[bool]string{true: "ERROR", false: "ADDED"}[of.Kind == statusKind]
		event := b.Event(kind)[prefix:]
		e := &events{receipt: receipt{question: q, clean: Shorten}}
		if took := allocated(func() { _, _ = e.event(event) }); took > maxAllocated {
			t.Errorf("%s: an event took %d KiB", name, took>>10)
		}
	}
}

// decoder also decodes metadata alone.
var decoder = func() kruntime.Decoder {
	all := kruntime.NewScheme()
	utilruntime.Must(errors.Join(scheme.AddToScheme(all), metav1.AddMetaToScheme(all)))
	return serializer.NewCodecFactory(all).UniversalDeserializer()
}()

// bounded checks what an answer takes. Of an object little is kept.
func bounded(t *testing.T, name string, q question, most int, body []byte) {
	t.Helper()
	var kept []byte
	var err error
	took := allocated(func() {
		if kept, err = (receipt{question: q}).sieveAll(t, body); err == nil {
			_, _, err = decoder.Decode(kept, nil, nil)
		}
	})
	if err != nil && kept == nil && !errors.Is(err, errMalformed) && !errors.Is(err, ErrTooLarge) {
		t.Errorf("%s: %v", name, err)
	}
	if took > uint64(most) || !q.list && len(kept) > q.most+256 {
		t.Errorf("%s: %d KiB were kept, and took %d KiB (%v)", name, len(kept)>>10, took>>10, err)
	}
}

// allocated returns how many bytes do allocates.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}
