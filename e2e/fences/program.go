package main

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"github.com/leasecast/leasecast/api/v1alpha1"
)

// program is one that elects itself with a lock of its cluster and does not read our Leases. It runs in each member. It
// is an elector, or the kube-controller-manager. One of that one's controllers makes a ConfigMap in each namespace, and
// makes it again when it is deleted. The drill deletes it all the time.
type program struct {
	name string
	// namespace is what its clusters lead, by a policy of its own.
	namespace string
	lock      v1alpha1.LockFence
	stop      time.Duration // that the hub has to wait for
	dir       string        // for the logs of electors
	build
}

// isElector reports whether the program is one of ours.
func (p *program) isElector() bool { return p.binary != "" }

const (
	// publisher is the controller of the kube-controller-manager, and published the ConfigMap that it makes.
	publisher = "root-ca-certificate-publisher-controller"
	published = "kube-root-ca.crt"
)

// build is what only an elector has: the library that it is made with, and how.
type build struct {
	binary   string
	releases bool
	limits   limits
}

// unstated is a fence of a lock that states nothing but the durations.
func unstated(namespace, name string) v1alpha1.LockFence {
	return v1alpha1.LockFence{Namespace: namespace, Name: name, LeaseDurationSeconds: 6, RenewDeadlineSeconds: 4,
		RetryPeriodSeconds: 1}
}

// quick is the stop time of the next.
const quick = 7 * time.Second

// fence is that of an elector whose client has half of the renew deadline, and which releases no lock.
func fence(namespace, name string) v1alpha1.LockFence {
	f := unstated(namespace, name)
	f.RequestTimeoutSeconds, f.ReleaseTimeoutSeconds = f.RenewDeadlineSeconds/2, ptr.To[int32](0)
	return f
}

// flags are those of the kube-controller-manager's elector, and for a log that can be read.
func (p *program) flags() []string {
	return []string{
		"--logging-format=json", "--leader-elect=true",
		"--leader-elect-resource-namespace=" + p.lock.Namespace, "--leader-elect-resource-name=" + p.lock.Name,
		fmt.Sprintf("--leader-elect-lease-duration=%ds", p.lock.LeaseDurationSeconds),
		fmt.Sprintf("--leader-elect-renew-deadline=%ds", p.lock.RenewDeadlineSeconds),
		fmt.Sprintf("--leader-elect-retry-period=%ds", p.lock.RetryPeriodSeconds),
	}
}

// controllerManager is the kube-controller-manager.
func controllerManager() *program {
	return &program{name: "kube-controller-manager", namespace: "shop", lock: fence("upkeep", "upkeep"), stop: quick}
}

// The programs that electors are, by their libraries.
const (
	clientGo          = "client-go"
	controllerRuntime = "controller-runtime"
)

// electors are programs that differ in what bounds their requests. Each states in its fence what is true for it, and
// nothing else.
func electors(dir string) (all []*program) {
	for _, e := range []struct {
		name     string
		build    build
		request  int32 // stated; 0: it is not
		release  *int32
		stopTime time.Duration
	}{
		{"client", build{binary: clientGo}, 0, ptr.To[int32](0), 65 * time.Second},
		{"client-releases", build{binary: clientGo, releases: true}, 0, ptr.To[int32](4), 69 * time.Second},
		{"runtime-releases", build{binary: controllerRuntime, releases: true}, 2, ptr.To[int32](4), 11 * time.Second},
	} {
		p := &program{name: e.name, namespace: e.name, lock: unstated("upkeep", e.name), stop: e.stopTime, dir: dir,
			build: e.build}
		p.lock.RequestTimeoutSeconds, p.lock.ReleaseTimeoutSeconds = e.request, e.release
		p.limits.renew = time.Duration(p.lock.RenewDeadlineSeconds) * time.Second
		if p.binary == controllerRuntime { // since v0.22 it makes its client so
			p.limits.timeout = p.limits.renew / 2
		}
		all = append(all, p)
	}
	return all
}

// misstate states what is false for most programs: half of the renew deadline for each request, and no release.
func misstate(programs []*program) {
	for _, p := range programs {
		p.lock, p.stop = fence(p.lock.Namespace, p.lock.Name), quick
	}
}
