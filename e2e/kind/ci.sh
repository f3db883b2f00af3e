#!/bin/sh
# A short drill for CI, after make test: three faults, on clusters that are deleted afterwards. `make ci-kind` runs it, and
# sets the variables that ./e2e/kind and image.sh read. Where no drill can be made, one line tells why, and it succeeds.
set -eu
: "${NODE_IMAGE:?run make ci-kind}"

started='' begun='' child=''
why=$(mktemp)

# end ends what `within` has started, also what outlives the command itself: it is in the group that timeout makes.
end() {
	kill "$child" 2>/dev/null || :
	wait "$child" || :
	n=0
	while [ $n -lt 60 ] && kill -s 0 -- "-$child" 2>/dev/null; do
		n=$((n + 1))
		sleep 1
	done
	kill -s KILL -- "-$child" 2>/dev/null || :
}

finish() {
	rc=$?
	trap : HUP INT TERM
	[ -z "$child" ] || end
	[ -z "$begun" ] || timeout -k 10 300 make kind-down || echo "kind: clusters may be left: run make kind-down"
	[ -z "$started" ] || timeout -k 10 120 e2e/kind/engine.sh stop || echo "kind: the engine that was started may be left"
	rm -f "$why"
	exit "$rc"
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

# skip REASON...; without one, the reason is what the last command has told.
skip() {
	echo "kind: no drill on this machine: ${*:-$(tail -n 1 "$why")}"
	exit 0
}

# within SECONDS COMMAND... keeps in $why what the command tells of errors.
within() {
	limit=$1
	shift
	timeout -k 60 "$limit" "$@" 2>"$why" &
	child=$! rc=0
	wait "$child" || rc=$?
	case $rc in
	0) child= ;;
	124 | 137) echo "this did not end within $limit s: $*" >>"$why" ;;
	*) [ -s "$why" ] || echo "this exited with $rc: $*" >"$why" ;;
	esac
	cat "$why" >&2
	return $rc
}

# ours is the number of the engine that engine.sh has started last.
ours() { cat "${XDG_RUNTIME_DIR:-/run}/leasecast-engine/pid" 2>/dev/null || :; }

before=$(ours)
within 300 e2e/kind/engine.sh start || skip
[ "$(ours)" = "$before" ] || started=yes

if [ -n "$started" ]; then
	# Clusters that came up with the engine: nobody uses them.
	docker ps --all --quiet --filter 'name=^leasecast-(hub|east|west|south)-control-plane$' |
		timeout 120 xargs -r docker rm --force --volumes || skip "clusters that an earlier run has left cannot be deleted"
fi

mkdir -p dist
within 600 env CGO_ENABLED=0 go build -trimpath -o dist/kind ./e2e/kind
# As make kind-node-image, which cannot pass on what image.sh exits with.
if ! within 300 dist/kind stock; then
	# shellcheck disable=SC2016 # it is for the other shell
	within 900 sh -c 'make node-programs && exec e2e/kind/node/image.sh "$NODE_IMAGE" "${NODE_ASSETS%/*}"' || case $rc in
	75 | 124 | 137) skip ;;
	*) exit $rc ;;
	esac
fi
within 300 dist/kind ready || skip
begun=yes
within 900 make kind-up kind-drill ROUNDS=3
