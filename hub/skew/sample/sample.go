// Package sample gets from a member what its clocks are measured by (package skew).
package sample

import (
	"context"
	"net/http"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/hub/skew"
)

const (
	// timeout bounds each list.
	timeout = 10 * time.Second
	// apiServers selects the Leases in kube-system that API servers renew for themselves.
	apiServers = "apiserver.kubernetes.io/identity=kube-apiserver"
)

// Leases are those that API servers, or hosts, renew for themselves.
type Leases struct {
	Renewals []skew.Renewal
	// Sent and Answered are when they were asked for, and when the answer came.
	Sent, Answered lease.Reading
}

// Servers lists the Leases of a member's API servers.
func Servers(ctx context.Context, client coordinationclient.LeasesGetter, clock lease.Clock) (Leases, error) {
	return list(ctx, client.Leases(metav1.NamespaceSystem), metav1.ListOptions{LabelSelector: apiServers}, clock)
}

// Hosts lists the Leases of a member's hosts, from the cache of an API server, because there are many.
func Hosts(ctx context.Context, client coordinationclient.LeasesGetter, clock lease.Clock) (Leases, error) {
	return list(ctx, client.Leases(corev1.NamespaceNodeLease), metav1.ListOptions{ResourceVersion: "0"}, clock)
}

func list(ctx context.Context, client coordinationclient.LeaseInterface, o metav1.ListOptions, clock lease.Clock) (Leases, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	found := Leases{Sent: clock.Now()}
	list, err := client.List(ctx, o)
	found.Answered = clock.Now()
	if err != nil {
		return found, err
	}
	for i := range list.Items {
		if l := &list.Items[i]; l.Spec.RenewTime != nil {
			found.Renewals = append(found.Renewals, skew.Renewal{Name: l.Name, RenewTime: l.Spec.RenewTime.Time, Admitted: admitted(l)})
		}
	}
	return found, nil
}

// admitted is the second in which an API server stored the renewTime of a Lease, by its own clock, or zero if
// the object does not say.
func admitted(l *coordinationv1.Lease) time.Time {
	var latest time.Time
	for _, f := range l.ManagedFields {
		if f.Time != nil && f.FieldsV1 != nil && f.Time.After(latest) && strings.Contains(f.FieldsV1.GetRawString(), `"f:renewTime"`) {
			latest = f.Time.Time
		}
	}
	return latest
}

// Date is when the API server wrote an answer, by its clock. An answer from a cache says nothing of now, and an error
// of a gateway says nothing of the API server.
func Date(status int, header http.Header) (time.Time, bool) {
	dates := header["Date"]
	if len(dates) != 1 || header["Age"] != nil || status >= http.StatusInternalServerError {
		return time.Time{}, false
	}
	return skew.ParseDate(dates[0])
}
