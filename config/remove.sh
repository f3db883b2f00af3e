#!/bin/sh
# Takes out of all members, and out of the management cluster of the current kubeconfig, what the hub has made there. The hub must
# run: it alone knows the members. Afterwards remove the hub itself, as you have installed it.
#
# Nobody leads from the first step on. Policies and priority labels are deleted: save them if you want them back.
set -eu
kubectl=${KUBECTL:-kubectl}
limit=${LIMIT:-180} # seconds

# wait_until WHAT COMMAND...: until the command prints nothing
wait_until() {
	what=$1
	shift
	waited=0
	while left=$("$@") && [ -n "$left" ]; do
		if [ "$waited" -ge "$limit" ]; then
			echo "after $limit s there are still $what:" >&2
			echo "$left" >&2
			echo "the hub must run and reach the clusters; a cluster that is gone for good: delete its Cluster, or the annotation" >&2
			exit 1
		fi
		sleep 1
		waited=$((waited + 1))
	done
}

pinned() {
	$kubectl get clusters.cluster.x-k8s.io -A -o go-template='{{range .items}}{{if .metadata.annotations}}{{if index .metadata.annotations "leasecast.dev/cluster-uid"}}{{.metadata.namespace}}/{{.metadata.name}}{{"\n"}}{{end}}{{end}}{{end}}'
}

records() {
	$kubectl get namespaceleaders.leasecast.dev -A -o name
}

fleets=$($kubectl get leadershippolicies.leasecast.dev,namespaceleaders.leasecast.dev -A -o go-template='{{range .items}}{{.metadata.namespace}}{{"\n"}}{{end}}' | sort -u)
fleets="$fleets
$(pinned | cut -d/ -f1 | sort -u)"

$kubectl delete leadershippolicies.leasecast.dev -A --all
wait_until "records" records
$kubectl label clusters.cluster.x-k8s.io -A -l leasecast.dev/priority leasecast.dev/priority-
wait_until "Clusters with the annotation leasecast.dev/cluster-uid, in which something may be left" pinned
$kubectl delete --ignore-not-found clusterrolebinding/leasecast-hub-fleet
for fleet in $(echo "$fleets" | sort -u); do
	$kubectl -n "$fleet" delete --ignore-not-found secret/leasecast-seal rolebinding/leasecast-hub-fleet
done
echo "nothing of the hub is left in the members; remove the hub itself now"
