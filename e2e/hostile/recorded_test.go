package hostile

import (
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"

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

// Reads are what a hub was seen to read. Its methods may be called from any goroutine.
type Reads struct {
	mu   sync.Mutex
	seen map[Read]bool
}

// Recorded is the API server, and adds what is read of it.
func (s *Reads) Recorded(honest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if is, err := ReadOf(r); err == nil {
			s.add(is)
		}
		honest.ServeHTTP(w, r)
	})
}

func (s *Reads) add(r Read) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen == nil {
		s.seen = map[Read]bool{}
	}
	s.seen[r] = true
}

// All are the reads, in order.
func (s *Reads) All() []Read {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Keys(s.seen), func(a, b Read) int { return strings.Compare(a.String(), b.String()) })
}

// Type is a kind of objects and the Go type that they are decoded into.
type Type struct {
	schema.GroupVersionKind
	Go reflect.Type
}

// TypesOf are those that a read may be answered with: that of its resource, and its metadata alone, whatever was asked
// for.
func TypesOf(r Read) ([]Type, error) {
	of, ok := kindOf(r)
	if !ok {
		return nil, fmt.Errorf("%v: no type has the name of the resource", r)
	}
	metadata := metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	metadata.Group = "meta.k8s.io"
	if strings.HasSuffix(of.Kind, "List") {
		metadata.Kind += "List"
	}
	all := knownTypes.AllKnownTypes()
	return []Type{{of, all[of]}, {metadata, all[metadata]}}, nil
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
