// Package fleet starts and stops a fleet of real control planes on this machine: one hub and any number of members,
// each an etcd, a kube-apiserver and a kube-controller-manager on loopback, with a [proxy.Proxy] in front of every API
// server that breaks its network. It needs no container runtime and no root. The binaries come from the folder that the
// environment variable KUBEBUILDER_ASSETS names; `make k8s` builds them.
//
//	func TestSomething(t *testing.T) {
//		f := fleet.NewWith(t, fleet.Options{Members: []string{"east", "west"}}) // stopped by t.Cleanup
//		east := f.Member("east")
//		_, err := f.RegisterMember(t.Context(), east, "default", "100")
//		...
//		east.Proxy().BlackHole()                      // the hub no longer reaches east
//		east.Pause()                                  // or: no client does
//		east.Restore(t.Context(), snapshot)           // or: its etcd goes back by an hour
//	}
//
// A program calls [Start] and [Fleet.Stop] instead. When it is killed first, the kernel kills the servers (on Linux;
// elsewhere they live on), and the next fleet removes the files that were left.
//
// # Two ways to each server
//
// [Server.AdminConfig] goes straight to the API server: for the test itself and for controllers that live in the
// member. [Server.ViaProxy] turns any configuration into one that goes through the proxy: for the hub, so that the
// drill can break it. The kubeconfig Secrets of [Fleet.RegisterMember] go through the proxy. The hub has a proxy too,
// between the hub process and its own API server.
//
// # What is real and what is not
//
// The controller manager runs three controllers: namespaces, so that deleted ones go; service accounts, so that every
// namespace gets its default one; and role aggregation, without which the roles admin, edit and view grant nothing.
// There is no garbage collection by owner, no workload and no node. RBAC, admission, priority and fairness are as the
// API server has them by default. Each server has a key and a CA of its own, so that no token or certificate is good at
// another. etcd does not wait for the disk.
//
// The hub has the CRDs of Cluster API, as clusterctl labels them, and those of this repository.
package fleet
