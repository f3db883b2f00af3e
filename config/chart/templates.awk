# Makes templates of Helm out of the objects of kustomization.yaml: expressions lose the quotes that YAML puts around them
# and the key all, each optional kind depends on its value, and the grant of a fleet is repeated for each of them.
BEGIN {
	RS = "(^|\n)---\n"
	value["CustomResourceDefinition"] = "crds.install"
	value["NetworkPolicy"] = "networkPolicy.enabled"
	value["PodDisruptionBudget"] = "podDisruptionBudget.enabled"
	value["ServiceMonitor"] = "serviceMonitor.enabled"
}

{
	match($0, /(^|\n)kind: [A-Za-z]+/)
	kind = substr($0, RSTART, RLENGTH)
	sub(/^.*: /, "", kind)
	if (kind == "Namespace") {
		next # Helm makes it
	}
	fleet = /namespace: '\{\{ quote \. \}\}'/
	gsub(/'\{\{/, "{{")
	gsub(/\}\}'/, "}}")
	gsub(/:\n +all: /, ": ")
	gsub(/leasecast-system/, "{{ $.Release.Namespace }}")
	sub(/\n+$/, "")
	if (kind in value) {
		print "{{- if .Values." value[kind] " }}"
	} else if (fleet) {
		print "{{- range .Values.fleetNamespaces }}"
	}
	print "---\n" $0
	if (kind in value || fleet) {
		print "{{- end }}"
	}
}
