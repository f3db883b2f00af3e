package hostile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
)

// Read is a kind of request whose answer the hub reads: of a resource, or of a path that is of none.
type Read struct{ Verb, Group, Version, Resource, Subresource, Path string }

func (r Read) String() string {
	if r.Resource == "" {
		return r.Verb + " " + r.Path
	}
	what := schema.GroupVersionResource{Group: r.Group, Version: r.Version, Resource: r.Resource}
	text := r.Verb + " " + what.Resource + "." + strings.TrimPrefix(what.GroupVersion().String(), "/")
	if r.Subresource != "" {
		text += "/" + r.Subresource
	}
	return text
}

// IsWatch reports whether events answer it.
func (r Read) IsWatch() bool { return r.Verb == "watch" }

// Writes reports whether it changes something.
func (r Read) Writes() bool { return !slices.Contains([]string{"get", "list", "watch"}, r.Verb) }

var paths = request.RequestInfoFactory{
	APIPrefixes:          sets.NewString("api", "apis"),
	GrouplessAPIPrefixes: sets.NewString("api"),
}

// ReadOf is what a request reads.
func ReadOf(r *http.Request) (Read, error) {
	info, err := paths.NewRequestInfo(r)
	switch {
	case err != nil:
		return Read{}, err
	case !info.IsResourceRequest:
		return Read{Verb: info.Verb, Path: info.Path}, nil
	}
	return Read{
		Verb:        info.Verb,
		Group:       info.APIGroup,
		Version:     info.APIVersion,
		Resource:    info.Resource,
		Subresource: info.Subresource,
	}, nil
}

// Reads are what a hub was seen to read, with the kinds of objects that an honest API server answered. Its methods may
// be called from any goroutine.
type Reads struct {
	mu    sync.Mutex
	kinds map[Read]map[schema.GroupVersionKind]bool
}

// See adds a read, and the kind of the object in its answer, if known.
func (s *Reads) See(r Read, status int, head []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.kinds == nil {
		s.kinds = map[Read]map[schema.GroupVersionKind]bool{}
	}
	if s.kinds[r] == nil {
		s.kinds[r] = map[schema.GroupVersionKind]bool{}
	}
	if of, ok := kindIn(head); ok && status < http.StatusBadRequest {
		s.kinds[r][of] = true
	}
}

// All are the reads, in order.
func (s *Reads) All() []Read {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.kinds), func(a, b Read) int { return strings.Compare(a.String(), b.String()) })
}

// Type is a kind of objects and the Go type that they are decoded into.
type Type struct {
	schema.GroupVersionKind
	Go reflect.Type
}

// Types are those that a read may be answered with: those that were, and those of its resource, whatever was asked for.
func (s *Reads) Types(r Read) (all []Type, err error) {
	s.mu.Lock()
	kinds := maps.Clone(s.kinds[r])
	s.mu.Unlock()
	if of, ok := kindOf(r); ok {
		if kinds == nil {
			kinds = map[schema.GroupVersionKind]bool{}
		}
		kinds[of] = true
	}
	if len(kinds) == 0 {
		return nil, fmt.Errorf("%v: no answer has shown its kind, and no type has the name of the resource", r)
	}
	var errs []error
	for of := range kinds {
		is, known := knownTypes.AllKnownTypes()[of]
		if !known {
			errs = append(errs, fmt.Errorf("%v: no Go type is known for %v", r, of))
			continue
		}
		all = append(all, Type{of, is})
	}
	slices.SortFunc(all, func(a, b Type) int { return cmp.Compare(a.Kind, b.Kind) })
	return all, errors.Join(errs...)
}

// knownTypes are those that client-go knows.
var knownTypes = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(clientscheme.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}()

// kindOf is the kind that has the name of a resource.
func kindOf(r Read) (schema.GroupVersionKind, bool) {
	if r.Subresource != "" && r.Subresource != "status" {
		return schema.GroupVersionKind{}, false
	}
	for of := range knownTypes.AllKnownTypes() {
		plural, _ := meta.UnsafeGuessKindToResource(of)
		if of.Group == r.Group && of.Version == r.Version && plural.Resource == r.Resource {
			if r.Verb == "list" {
				of.Kind += "List"
			}
			return of, true
		}
	}
	return schema.GroupVersionKind{}, false
}

// headSize is how much of an answer is looked at for the kind of an object.
const headSize = 4 << 10

var (
	protobufMagic = []byte("k8s\x00")
	jsonKind      = regexp.MustCompile(`"kind":"(\w+)","apiVersion":"([\w./-]+)"`)
)

// kindIn is the kind of the first object in an answer or a watch.
func kindIn(head []byte) (schema.GroupVersionKind, bool) {
	if at := bytes.Index(head, protobufMagic); at >= 0 {
		_, _, tag := protowire.ConsumeTag(head[at+len(protobufMagic):])
		if tag < 0 {
			return schema.GroupVersionKind{}, false
		}
		meta, n := protowire.ConsumeBytes(head[at+len(protobufMagic)+tag:])
		var is runtime.TypeMeta
		if n < 0 || is.Unmarshal(meta) != nil {
			return schema.GroupVersionKind{}, false
		}
		return schema.FromAPIVersionAndKind(is.APIVersion, is.Kind), true
	}
	if found := jsonKind.FindSubmatch(head); found != nil {
		return schema.FromAPIVersionAndKind(string(found[2]), string(found[1])), true
	}
	return schema.GroupVersionKind{}, false
}

// recorder notes how an answer begins.
type recorder struct {
	http.ResponseWriter
	status int
	head   []byte
}

func (r *recorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(data []byte) (int, error) {
	r.head = append(r.head, data[:min(len(data), headSize-len(r.head))]...)
	return r.ResponseWriter.Write(data)
}

// Unwrap lets the answer be flushed.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// Recorded is the API server, and adds what is read of it.
func (s *Reads) Recorded(honest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		is, err := ReadOf(r)
		if err != nil {
			honest.ServeHTTP(w, r)
			return
		}
		seen := &recorder{ResponseWriter: w, status: http.StatusOK}
		defer func() { s.See(is, seen.status, seen.head) }() // ReverseProxy panics if a client hangs up
		honest.ServeHTTP(seen, r)
	})
}
