package transport

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	// maxObject is how large an object may be that is read, in bytes. An etcd stores 1.5 MiB.
	maxObject = 4 << 20
	// maxKept and maxLarge are how many bytes are kept of one. What has more is reduced to its name.
	maxKept, maxLarge = 16 << 10, 256 << 10
	// onlyMetadata asks for the metadata of objects alone.
	onlyMetadata = "as=PartialObjectMetadata"
	// Plain is the Accept header of a request for one object of any kind, or for what kinds a version of a group has. Its
	// answer has at most maxLarge bytes.
	Plain = jsonType
)

// kind is a kind of object that the hub reads in members.
type kind struct {
	apiVersion, name string
	of               message
	most             int // how many bytes are kept of an object
}

// The paths of resources.
const (
	Namespaces = "/api/v1/namespaces"
	Leases     = "/apis/coordination.k8s.io/v1/leases"
)

// OfReaders selects the registrations of readers, which tenants write.
const OfReaders = v1alpha1.ReaderLabel + "=true"

const (
	admission     = "admissionregistration.k8s.io/v1"
	authorization = "authorization.k8s.io/v1"
	rbac          = "rbac.authorization.k8s.io/v1"
	flow          = "flowcontrol.apiserver.k8s.io/v1"

	policies = "/apis/" + admission + "/validatingadmissionpolicies"
	bindings = "/apis/" + admission + "/validatingadmissionpolicybindings"
	reviews  = "/apis/" + authorization + "/selfsubjectaccessreviews"
	cronJobs = "/apis/batch/v1/cronjobs"
)

// kinds are those that the hub asks for, by the paths of their resources without the namespace.
var kinds = map[string]kind{
	Namespaces:                               {"v1", "Namespace", ofNamespace, maxKept},
	Leases:                                   {"coordination.k8s.io/v1", "Lease", ofLease, maxKept},
	cronJobs:                                 {"batch/v1", "CronJob", ofCronJob, maxKept},
	cronJobs + "/status":                     {"batch/v1", "CronJob", onlyIdentity, maxKept},
	policies:                                 {admission, "ValidatingAdmissionPolicy", onlyDescribed, maxLarge},
	bindings:                                 {admission, "ValidatingAdmissionPolicyBinding", onlyDescribed, maxLarge},
	reviews:                                  {authorization, "SelfSubjectAccessReview", ofReview, maxKept},
	"/apis/" + rbac + "/clusterroles":        {rbac, "ClusterRole", onlyIdentity, maxKept},
	"/apis/" + rbac + "/clusterrolebindings": {rbac, "ClusterRoleBinding", onlyIdentity, maxKept},
	"/apis/" + flow + "/flowschemas":         {flow, "FlowSchema", onlyIdentity, maxKept},
}

// errUnlisted is for programmers.
var errUnlisted = errors.New("the hub does not read this kind in members: list its fields in package transport")

// question is what a request asks for.
type question struct {
	kind
	path        string // of the resource
	selector    string // of labels
	list, watch bool
	first       bool // the answer begins a list of everything
	isOfReaders bool // the answer shows registrations of readers
	plain       bool // the answer is JSON, and not sieved
	dropped     bool // no client reads the answer: what was deleted
}

// questionOf returns what a request asks for, or an error if the hub has no use for the answer.
func questionOf(req *http.Request) (question, error) {
	path, name := resourceOf(req.URL.EscapedPath())
	k, known := kinds[path]
	accepted := req.Header.Get("Accept")
	ofMetadata := strings.Contains(accepted, onlyMetadata)
	switch {
	case req.Method == http.MethodGet && (name != "" || isGroupVersion(path)) && accepted == Plain:
		return question{path: path, plain: true}, nil
	case req.Method == http.MethodDelete:
		return question{path: path, dropped: true}, nil
	case !known && ofMetadata:
		k = kind{of: onlyIdentity, most: maxKept}
	case !known:
		return question{}, fmt.Errorf("%w: %.100q", errUnlisted, req.URL.Path)
	}
	query := req.URL.Query()
	q := question{kind: k, path: path, selector: query.Get("labelSelector"), watch: isWatch(req.URL)}
	q.list = name == "" && req.Method == http.MethodGet && !q.watch
	q.first = q.list && query.Get("continue") == "" || query.Get("sendInitialEvents") == "true"
	q.isOfReaders = q.selector == OfReaders
	switch {
	case ofMetadata:
		q.apiVersion, q.name = "meta.k8s.io/v1", "PartialObjectMetadata"
	case path == Leases && q.isOfReaders:
		q.most = maxLarge
	}
	return q, nil
}

// resourceOf splits the path of a request into that of the resource, with a subresource but without the namespace, and
// the name of the object.
func resourceOf(path string) (resource, name string) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	versioned := 3 // apis, group and version
	if parts[0] == "api" {
		versioned = 2
	}
	if len(parts) <= versioned {
		return path, ""
	}
	of := parts[versioned:]
	if of[0] == "namespaces" && len(of) > 2 {
		of = of[2:]
	}
	resource = "/" + strings.Join(parts[:versioned], "/") + "/" + of[0]
	if len(of) > 1 {
		name = of[1]
	}
	if len(of) > 2 {
		resource += "/" + strings.Join(of[2:], "/")
	}
	return resource, name
}

// isGroupVersion reports whether a path shows what kinds a version of an API group has.
func isGroupVersion(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	return parts[0] == "api" && len(parts) == 2 || parts[0] == "apis" && len(parts) == 3
}

// enclose puts what was kept of an answer into an envelope of the kind that was asked for.
func (q question) enclose(kept []byte) []byte {
	name := q.name
	if q.list {
		name += "List"
	}
	return enclose(q.apiVersion, name, kept)
}
