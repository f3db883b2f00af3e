package member_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/leasecast/leasecast/api/lease"
	"github.com/leasecast/leasecast/api/lease/wire"
	"github.com/leasecast/leasecast/api/v1alpha1"
)

const (
	us   = "east.fleet" // the cluster that the copies of these tests live in
	them = "west.fleet"
)

var testKey = lease.Key("only for tests")

// leaseIn returns the copy in our cluster that names holder in a term.
func leaseIn(t testing.TB, namespace, holder string, term lease.Term) *coordinationv1.Lease {
	t.Helper()
	term.Holder = holder
	l := &coordinationv1.Lease{}
	if err := wire.Write(testKey, lease.Copy{
		Term: term, Namespace: namespace, Name: v1alpha1.DefaultLeaseName, Cluster: us, ClusterUID: "uid", Hub: "hub",
	}, l); err != nil {
		t.Fatal(err)
	}
	return l
}
