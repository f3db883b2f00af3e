package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
	"github.com/leasecast/leasecast/e2e/must"
)

// outcome is what must follow a fault.
type outcome string

const (
	// failover: another cluster acts, although the leader was not notified.
	failover outcome = "failover"
	// handover: the cluster that was given the highest priority acts.
	handover outcome = "handover"
	// unmoved: the leader goes on, in the same term.
	unmoved outcome = "unmoved"
	// outage: the term ends, and a cluster acts again when the hub is back.
	outage outcome = "outage"
)

// fault is one way to break things.
type fault struct {
	name   string
	expect outcome
	make   breaker
}

// undo puts right what a fault broke.
type undo func(context.Context) error

// breaker breaks things, and returns what puts them right, also after an error.
type breaker func(ctx context.Context, s *testbed, leader cluster) (undo, error)

// faults are made in this order, over and over. A short drill makes the first few.
var faults = []fault{
	{"the leader's control plane is paused", failover, pauseControlPlane},
	{"the hub Pod that writes is killed", unmoved, killHubPod},
	{"a priority is edited", handover, editPriority},
	{"the leader's node is killed", failover, killNode},
	{"nothing from the hub reaches the leader", failover, cut("INPUT -s")},
	{"the hub is upgraded, one replica after the other", unmoved, rollHub},
	{"the leader's network is disconnected", failover, disconnect},
	{"the leader's kubeconfig is rotated", unmoved, rotate},
	{"the leader's control plane is killed", failover, killControlPlane},
	{"the hub's node is killed", outage, killHubNode},
	{"no answer of the leader reaches the hub", failover, cut("OUTPUT -d")},
	{"the leader's control plane is paused, without Cluster API", failover, withoutCAPI(pauseControlPlane)},
}

func nothing(context.Context) error { return nil }

// done is the error of a command.
func done(_ string, err error) error { return err }

// in runs a script in a node, and later the one that undoes it.
func in(ctx context.Context, c cluster, script, back string) (undo, error) {
	return func(ctx context.Context) error { return done(c.on(ctx, back)) }, done(c.on(ctx, script))
}

// pauseControlPlane leaves guestbooks and kubelet running: only their API is gone.
func pauseControlPlane(ctx context.Context, _ *testbed, leader cluster) (undo, error) {
	return in(ctx, leader, "pkill -STOP -x kube-apiserver; pkill -STOP -x etcd",
		"pkill -CONT -x kube-apiserver; pkill -CONT -x etcd")
}

// withoutCAPI makes a fault while Cluster API's manager is gone. Its webhooks then refuse every write to a Cluster.
func withoutCAPI(then breaker) breaker {
	return func(ctx context.Context, s *testbed, leader cluster) (undo, error) {
		scale := func(ctx context.Context, replicas string) error {
			return done(s.kubectl(ctx, hub, "-n", capiHome, "scale", "--replicas="+replicas, "deployment/"+capiDeployment))
		}
		back := undo(nothing)
		err := scale(ctx, "0")
		if err == nil {
			err = done(s.kubectl(ctx, hub, "-n", capiHome, "wait", "--for=delete", "--timeout=60s", "pod",
				"--selector=cluster.x-k8s.io/provider=cluster-api"))
		}
		if err == nil {
			back, err = then(ctx, s, leader)
		}
		return func(ctx context.Context) error {
			return errors.Join(back(ctx), scale(ctx, "1"), s.rolledOut(ctx, hub, capiHome, capiDeployment))
		}, err
	}
}

// killControlPlane takes the manifests away, too: the kubelet would restart the processes within a second.
func killControlPlane(ctx context.Context, _ *testbed, leader cluster) (undo, error) {
	return in(ctx, leader,
		"cd /etc/kubernetes; mkdir -p held; mv manifests/kube-apiserver.yaml manifests/etcd.yaml held/; pkill -KILL -x "+
			"kube-apiserver; pkill -KILL -x etcd",
		"cd /etc/kubernetes; mv held/*.yaml manifests/")
}

func killNode(ctx context.Context, _ *testbed, leader cluster) (undo, error) {
	back := func(ctx context.Context) error { return done(docker(ctx, "start", leader.node())) }
	return back, done(docker(ctx, "kill", leader.node()))
}

func killHubNode(ctx context.Context, s *testbed, _ cluster) (undo, error) {
	return killNode(ctx, s, hub)
}

func address(ctx context.Context, c cluster) (string, error) {
	return docker(ctx, "inspect", "--format", fmt.Sprintf(`{{(index .NetworkSettings.Networks %q).IPAddress}}`, network),
		c.node())
}

// cut drops packets between hub and leader in one direction.
func cut(rule string) breaker {
	return func(ctx context.Context, _ *testbed, leader cluster) (undo, error) {
		ip, err := address(ctx, hub)
		if err != nil {
			return nothing, err
		}
		rule := rule + " " + ip + " -j DROP"
		return in(ctx, leader, "iptables -w -I "+rule, "iptables -w -D "+rule)
	}
}

func disconnect(ctx context.Context, _ *testbed, leader cluster) (undo, error) {
	ip, err := address(ctx, leader)
	if err != nil {
		return nothing, err
	}
	back := func(ctx context.Context) error {
		return done(docker(ctx, "network", "connect", "--ip", ip, network, leader.node()))
	}
	return back, done(docker(ctx, "network", "disconnect", network, leader.node()))
}

// killHubPod kills the process of the replica that has the right to write. It has no time to release that.
func killHubPod(ctx context.Context, s *testbed, _ cluster) (undo, error) {
	l := &coordinationv1.Lease{}
	if err := s.hub.Get(ctx, client.ObjectKey{Namespace: harness.HubNamespace, Name: harness.HubName}, l); err != nil {
		return nothing, err
	}
	pods := &corev1.PodList{}
	if err := s.hub.List(ctx, pods, client.InNamespace(harness.HubNamespace)); err != nil {
		return nothing, err
	}
	for _, pod := range pods.Items {
		if strings.HasPrefix(ptr.Deref(l.Spec.HolderIdentity, ""), pod.Name) && len(pod.Status.ContainerStatuses) > 0 {
			_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
			return nothing, done(hub.on(ctx,
				`kill -KILL "$(ctr --namespace k8s.io task list | awk '$1 == "`+id+`" { print $2 }')"`))
		}
	}
	return nothing, errors.New("no Pod of the hub holds its election")
}

func rollHub(ctx context.Context, s *testbed, _ cluster) (undo, error) {
	err := done(s.kubectl(ctx, hub, "-n", harness.HubNamespace, "rollout", "restart", "deployment/"+harness.HubName))
	if err == nil {
		err = s.rolledOut(ctx, hub, harness.HubNamespace, harness.HubName)
	}
	return nothing, err
}

func editPriority(ctx context.Context, s *testbed, leader cluster) (undo, error) {
	r, err := record(ctx, s.hub)
	if err != nil {
		return nothing, err
	}
	priority := int32(10)
	for _, c := range r.Status.Candidates {
		priority = max(priority, c.Priority+10)
	}
	return nothing, done(s.kubectl(ctx, hub, "-n", harness.FleetNamespace, "label", "--overwrite",
		"clusters.cluster.x-k8s.io", successor(leader).name, fmt.Sprintf("%s=%d", fleet.PriorityLabel, priority)))
}

// successor is the follower that is given the highest priority.
func successor(leader cluster) cluster {
	if last := members[len(members)-1]; last != leader {
		return last
	}
	return members[len(members)-2]
}

// rotate gives the hub another client certificate for the same administrator.
func rotate(ctx context.Context, s *testbed, leader cluster) (undo, error) {
	kubeconfig, err := leader.on(ctx, fmt.Sprintf(
		"kubeadm kubeconfig user --config /kind/kubeadm.conf --org system:masters --client-name leasecast-%d 2>/dev/null",
		time.Now().Unix()))
	if err == nil && !strings.Contains(kubeconfig, leader.node()) {
		err = fmt.Errorf("the new kubeconfig does not lead to %s", leader.node())
	}
	if err == nil {
		err = must.Try(func() { s.setKubeconfig(ctx, leader, kubeconfig) })
	}
	return nothing, err
}
