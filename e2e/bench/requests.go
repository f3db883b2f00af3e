package main

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/process"
)

const (
	// requestsWindow is how long requests are counted.
	requestsWindow = time.Minute
	// answered is how long after the window its last requests have been answered, and logged.
	answered = time.Second
)

// countRequests counts the requests to all servers together in a time in which nothing happens: reads and watches
// too, whatever the answer was. What the API servers ask themselves does not count, nor
// their controller managers, nor this program.
func countRequests(ctx context.Context, b *bench, servers []*fleet.Server) (perSecond float64, err error) {
	b.say(fmt.Sprintf("counting requests for %s", requestsWindow))
	from := time.Now()
	to := from.Add(requestsWindow)
	if err := process.Pass(ctx, requestsWindow+answered); err != nil {
		return 0, err
	}
	var all []fleet.Request
	for _, s := range servers {
		requests, err := s.Requests()
		if err != nil {
			return 0, err
		}
		requests = within(requests, from, to)
		b.say(fmt.Sprintf("%s: %.2f requests a second: %s", s.Name(), float64(len(requests))/requestsWindow.Seconds(), inKinds(requests)))
		all = append(all, requests...)
	}
	return float64(len(all)) / requestsWindow.Seconds(), nil
}

// within are the requests that count and were received in [from, to).
func within(requests []fleet.Request, from, to time.Time) []fleet.Request {
	var counted []fleet.Request
	for _, r := range requests {
		if counts(r) && !r.Received.Before(from) && r.Received.Before(to) {
			counted = append(counted, r)
		}
	}
	return counted
}

// counts says that a request comes neither from the control plane itself nor from this program. The children of this program
// call themselves otherwise.
func counts(r fleet.Request) bool {
	return r.User != "system:apiserver" &&
		!strings.HasPrefix(r.Agent, "kube-controller-manager/") &&
		r.Agent != rest.DefaultKubernetesUserAgent()
}

// inKinds sums requests up for a person, the most frequent first.
func inKinds(requests []fleet.Request) string {
	counts := map[string]int{}
	for _, r := range requests {
		counts[r.Verb+" "+resource(r.URI)]++
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b))
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", counts[kind], kind)
	}
	return strings.Join(kinds, ", ")
}

// resource is the resource that a path of an API server names, or the path if it names none.
func resource(uri string) string {
	path, _, _ := strings.Cut(uri, "?")
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	switch {
	case parts[0] == "api" && len(parts) > 2:
		parts = parts[2:]
	case parts[0] == "apis" && len(parts) > 3:
		parts = parts[3:]
	default:
		return path
	}
	if parts[0] == "namespaces" && len(parts) > 2 {
		parts = parts[2:]
	}
	return parts[0]
}
