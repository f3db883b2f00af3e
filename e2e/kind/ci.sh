#!/bin/sh
# A short drill for CI, after make test: three faults, on clusters that are deleted afterwards. `make ci-kind` runs it.
# Where no Docker engine or no node image can be had, it tells why, and succeeds.
set -eu

started=
finish() {
	docker version >/dev/null 2>&1 && make kind-down
	[ -z "$started" ] || e2e/kind/engine.sh stop
}
trap finish EXIT
trap 'exit 130' HUP INT TERM

skip() {
	echo "kind: no drill on this machine: $*"
	exit 0
}

if ! docker version >/dev/null 2>&1; then
	e2e/kind/engine.sh start || skip "there is no Docker engine, and none could be started"
	started=yes
fi
timeout 900 make kind-node-image || skip "there is no node image, and none could be made in 15 minutes"
timeout 900 make kind-up kind-drill ROUNDS=3
