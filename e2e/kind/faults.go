package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/leasecast/leasecast/e2e/fleet"
	"github.com/leasecast/leasecast/e2e/harness"
)

// outcome is what must follow a fault.
type outcome string

const (
	// failover: another cluster acts, although nobody has told the leader.
	failover outcome = "failover"
	// handover: the cluster that was given the highest priority acts.
	handover outcome = "handover"
	// unmoved: the leader goes on, in the same term.
	unmoved outcome = "unmoved"
	// outage: the term ends, and somebody acts again when the hub is back.
	outage outcome = "outage"
)

// fault is one way to break things.
type fault struct {
	name   string
	expect outcome
	make   breaker
}

// breaker breaks things, and returns what puts them right, also after an error.
type breaker func(ctx context.Context, s *site, leader cluster) (undo func(context.Context) error, err error)

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

// in runs a script in a node, and later the one that undoes it.
func in(ctx context.Context, c cluster, script, undo string) (func(context.Context) error, error) {
	_, err := c.on(ctx, script)
	return func(ctx context.Context) error {
		_, err := c.on(ctx, undo)
		return err
	}, err
}

// Its guestbooks and its kubelet go on: only its API is gone.
func pauseControlPlane(ctx context.Context, _ *site, leader cluster) (func(context.Context) error, error) {
	signal := func(name string) string {
		return fmt.Sprintf("pkill -%s -x kube-apiserver; pkill -%s -x etcd", name, name)
	}
	return in(ctx, leader, signal("STOP"), signal("CONT"))
}

// withoutCAPI makes a fault while Cluster API's manager is gone. Its webhooks then refuse every write to a Cluster.
func withoutCAPI(then breaker) breaker {
	return func(ctx context.Context, s *site, leader cluster) (func(context.Context) error, error) {
		kubectl := func(ctx context.Context, args ...string) error {
			_, err := s.kubectlOn(ctx, hub, nil, append([]string{"-n", capiHome}, args...)...)
			return err
		}
		undo := nothing
		err := kubectl(ctx, "scale", "--replicas=0", "deployment/"+capiDeployment)
		if err == nil {
			err = kubectl(ctx, "wait", "--for=delete", "--timeout=60s", "pod",
				"--selector=cluster.x-k8s.io/provider=cluster-api")
		}
		if err == nil {
			undo, err = then(ctx, s, leader)
		}
		return func(ctx context.Context) error {
			return errors.Join(undo(ctx), kubectl(ctx, "scale", "--replicas=1", "deployment/"+capiDeployment),
				s.rolledOut(ctx, hub, capiHome, capiDeployment))
		}, err
	}
}

// The kubelet would start it again within a second; without manifests it does not.
func killControlPlane(ctx context.Context, _ *site, leader cluster) (func(context.Context) error, error) {
	return in(ctx, leader,
		"cd /etc/kubernetes; mkdir -p held; mv manifests/kube-apiserver.yaml manifests/etcd.yaml held/; pkill -KILL -x "+
			"kube-apiserver; pkill -KILL -x etcd",
		"cd /etc/kubernetes; mv held/*.yaml manifests/")
}

func killNode(ctx context.Context, _ *site, leader cluster) (func(context.Context) error, error) {
	_, err := docker(ctx, "kill", leader.node())
	return func(ctx context.Context) error {
		_, err := docker(ctx, "start", leader.node())
		return err
	}, err
}

func killHubNode(ctx context.Context, s *site, _ cluster) (func(context.Context) error, error) {
	return killNode(ctx, s, hub)
}

func address(ctx context.Context, c cluster) (string, error) {
	return docker(ctx, "inspect", "--format", fmt.Sprintf(`{{(index .NetworkSettings.Networks %q).IPAddress}}`, network),
		c.node())
}

// cut drops packets between hub and leader in one direction.
func cut(rule string) breaker {
	return func(ctx context.Context, _ *site, leader cluster) (func(context.Context) error, error) {
		ip, err := address(ctx, hub)
		if err != nil {
			return nothing, err
		}
		return in(ctx, leader, fmt.Sprintf("iptables -w -I %s %s -j DROP", rule, ip),
			fmt.Sprintf("iptables -w -D %s %s -j DROP", rule, ip))
	}
}

func disconnect(ctx context.Context, _ *site, leader cluster) (func(context.Context) error, error) {
	ip, err := address(ctx, leader)
	if err != nil {
		return nothing, err
	}
	_, err = docker(ctx, "network", "disconnect", network, leader.node())
	return func(ctx context.Context) error {
		_, err := docker(ctx, "network", "connect", "--ip", ip, network, leader.node())
		return err
	}, err
}

// killHubPod kills the process of the replica that has the right to write. It has no time to give that back.
func killHubPod(ctx context.Context, s *site, _ cluster) (func(context.Context) error, error) {
	l := &coordinationv1.Lease{}
	if err := s.hub.Get(ctx, client.ObjectKey{Namespace: harness.HubNamespace, Name: harness.HubName}, l); err != nil {
		return nothing, err
	}
	pods := &corev1.PodList{}
	if err := s.hub.List(ctx, pods, client.InNamespace(harness.HubNamespace)); err != nil {
		return nothing, err
	}
	for _, pod := range pods.Items {
		if l.Spec.HolderIdentity == nil || !strings.HasPrefix(*l.Spec.HolderIdentity,
			pod.Name) || len(pod.Status.ContainerStatuses) == 0 {
			continue
		}
		_, id, _ := strings.Cut(pod.Status.ContainerStatuses[0].ContainerID, "://")
		_, err := hub.on(ctx, `kill -KILL "$(ctr --namespace k8s.io task list | awk '$1 == "`+id+`" { print $2 }')"`)
		return nothing, err
	}
	return nothing, errors.New("no Pod of the hub holds its election")
}

func rollHub(ctx context.Context, s *site, _ cluster) (func(context.Context) error, error) {
	if _, err := s.kubectlOn(ctx, hub, nil, "-n", harness.HubNamespace, "rollout", "restart",
		"deployment/"+harness.HubName); err != nil {
		return nothing, err
	}
	return nothing, s.rolledOut(ctx, hub, harness.HubNamespace, harness.HubName)
}

func editPriority(ctx context.Context, s *site, leader cluster) (func(context.Context) error, error) {
	r, err := s.record(ctx)
	if err != nil {
		return nothing, err
	}
	priority := int32(10)
	for _, c := range r.Status.Candidates {
		priority = max(priority, c.Priority+10)
	}
	_, err = s.kubectlOn(ctx, hub, nil, "-n", harness.FleetNamespace, "label", "--overwrite", "clusters.cluster.x-k8s.io",
		successor(leader).name, fmt.Sprintf("%s=%d", fleet.PriorityLabel, priority))
	return nothing, err
}

// successor is the follower that is given the highest priority.
func successor(leader cluster) cluster {
	if last := members[len(members)-1]; last != leader {
		return last
	}
	return members[len(members)-2]
}

// rotate gives the hub another client certificate for the same administrator.
func rotate(ctx context.Context, s *site, leader cluster) (func(context.Context) error, error) {
	kubeconfig, err := leader.on(ctx, fmt.Sprintf(
		"kubeadm kubeconfig user --config /kind/kubeadm.conf --org system:masters --client-name leasecast-%d 2>/dev/null",
		time.Now().Unix()))
	if err != nil {
		return nothing, err
	}
	if !strings.Contains(kubeconfig, leader.node()) {
		return nothing, fmt.Errorf("the new kubeconfig does not lead to %s", leader.node())
	}
	return nothing, setKubeconfig(ctx, s.hub, leader, []byte(kubeconfig))
}
