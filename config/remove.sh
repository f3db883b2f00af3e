#!/bin/sh
# Takes out of all members, and out of the management cluster of the current kubeconfig, what the hub has made there. The hub must
# run: it alone knows the members. Afterwards remove the hub itself, as you have installed it. After a failure run it again.
#
# Nobody leads from the first step on. Policies and priority labels are deleted: save them if you want them back.
set -eu
kubectl=${KUBECTL:-kubectl}
limit=${LIMIT:-180} # seconds

# wait_until WHAT COMMAND...: until the command succeeds and prints nothing
wait_until() {
	what=$1
	shift
	end=$(($(date +%s) + limit))
	while :; do
		if ! left=$("$@"); then # kubectl has printed why
			problem="after $limit s kubectl still fails, so that nobody knows whether there are $what"
		elif [ -n "$left" ]; then
			problem="after $limit s there are still $what:
$left
the hub must run and reach the clusters; a cluster that refuses the removal: see the events of its Cluster; a cluster that is gone for good: delete its Cluster, or the annotation; a fleet whose Clusters are all paused: unpause them"
		else
			return 0
		fi
		if [ "$(date +%s)" -ge "$end" ]; then
			echo "$problem" >&2
			exit 1
		fi
		sleep 1
	done
}

pinned() {
	$kubectl get clusters.cluster.x-k8s.io -A -o go-template='{{range .items}}{{if .metadata.annotations}}{{if index .metadata.annotations "leasecast.dev/cluster-uid"}}{{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}{{end}}{{end}}'
}

records() {
	$kubectl get namespaceleaders.leasecast.dev -A -o name
}

sets() {
	$kubectl get leaderresourcesets.leasecast.dev -A -o name
}

# grants prints the namespaces with a RoleBinding of that name to the hub's role.
grants() {
	$kubectl get rolebindings.rbac.authorization.k8s.io -A --field-selector metadata.name=leasecast-hub-fleet -o go-template='{{range .items}}{{if and (eq .roleRef.kind "ClusterRole") (eq .roleRef.name "leasecast-hub-fleet")}}{{.metadata.namespace}}{{"\n"}}{{end}}{{end}}'
}

# seals prints the namespaces with a Secret of that name which a hub has made or marked.
seals() {
	$kubectl get secrets -A --field-selector metadata.name=leasecast-seal -o go-template='{{range .items}}{{$ours := false}}{{with .metadata.labels}}{{if eq (or (index . "app.kubernetes.io/managed-by") "") "leasecast"}}{{$ours = true}}{{end}}{{end}}{{with .metadata.annotations}}{{if index . "leasecast.dev/hub"}}{{$ours = true}}{{end}}{{end}}{{if $ours}}{{.metadata.namespace}}{{"\n"}}{{end}}{{end}}'
}

# First: the hub finds what sets keep in members only while these take part. An earlier version has no sets.
if [ -n "$($kubectl get crd leaderresourcesets.leasecast.dev --ignore-not-found -o name)" ]; then
	$kubectl delete leaderresourcesets.leasecast.dev -A --all --wait=false
	wait_until "resource sets" sets
fi
$kubectl delete leadershippolicies.leasecast.dev -A --all
wait_until "records" records
$kubectl label clusters.cluster.x-k8s.io -A -l leasecast.dev/priority leasecast.dev/priority-
wait_until "Clusters with the annotation leasecast.dev/cluster-uid, in which something may be left" pinned
$kubectl delete --ignore-not-found clusterrolebinding/leasecast-hub-fleet
# What a failed run has left is found too, because nothing is remembered. Without its grant no hub makes a seal again.
fleets=$(grants)
for fleet in $fleets; do
	$kubectl -n "$fleet" delete --ignore-not-found rolebinding/leasecast-hub-fleet
done
fleets=$(seals)
for fleet in $fleets; do
	$kubectl -n "$fleet" delete --ignore-not-found secret/leasecast-seal
done
echo "nothing of the hub that promises or refuses anything is left in the members; remove the hub itself now"
