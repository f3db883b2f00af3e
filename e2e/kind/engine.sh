#!/bin/sh
# Starts Debian's Docker engine where nothing else does, for CI and for machines without an init system:
#
#   engine.sh start    installs the engine if need be, starts it unless one answers, and returns when it answers
#   engine.sh stop     stops the engine that start has started, and no other, unless containers run
#
# It needs Debian and root. Everybody else starts Docker as they are used to.
set -eu

state=${XDG_RUNTIME_DIR:-/run}/leasecast-engine
# Where Debian's engine listens, and where it and its containerd keep the numbers of their processes.
host=unix:///var/run/docker.sock dockerd=/var/run/docker.pid containerd=/var/run/docker/containerd/containerd.pid
say() { echo "engine: $*"; }
die() {
	say "$*" >&2
	exit 1
}

answers() { timeout 5 docker version >/dev/null 2>&1; }

# is FILE NAME: whether the process with the number in the file has this name.
is() { [ "$(cat "/proc/$(cat "$1" 2>/dev/null)/comm" 2>/dev/null)" = "$2" ]; }

# ended PID: a process that only waits for its parent to notice has ended.
ended() {
	case $(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null) in
	'' | [ZX]*) ;;
	*) return 1 ;;
	esac
}

packages() {
	export DEBIAN_FRONTEND=noninteractive
	apt-get update -qq && apt-get install -y -qq --no-install-recommends "$@"
} >"$state/install.log" 2>&1

install() {
	[ -f /etc/debian_version ] || die "dockerd is not there, and this is not Debian: install Docker, and start it"
	say "installing Debian's docker.io, and debootstrap for make kind-node-image"
	packages docker.io iptables debootstrap || die "docker.io could not be installed: see $state/install.log"
}

# prepare does for the machine what root can do; make kind-up names what is missing nevertheless.
prepare() {
	[ "$(id -u)" = 0 ] || return 0
	# Each node watches many files.
	raise max_user_instances 1024
	raise max_user_watches 524288
	if [ -f /etc/debian_version ] && ! command -v debootstrap >/dev/null; then
		mkdir -p "$state"
		packages debootstrap || say "debootstrap, for make kind-node-image, could not be installed: see $state/install.log"
	fi
}

raise() {
	file=/proc/sys/fs/inotify/$1
	[ "$(cat "$file")" -ge "$2" ] || echo "$2" >"$file" || say "$file could not be raised to $2"
}

# A privileged container asks for all capabilities. Where this machine has not got CAP_SYS_RESOURCE itself, that fails. So
# the runtime drops it from what is asked for.
runtime() {
	cat >"$state/runc" <<'EOF'
#!/bin/sh
# What a container is made from is in config.json of its bundle, what is executed in it in the file after --process.
last= bundle=.
for word in "$@"; do
	case $last in
	--bundle | -b) bundle=$word ;;
	--process | -p) asked=$word ;;
	esac
	last=$word
done
case " $* " in
*" create "* | *" run "*) asked=$bundle/config.json ;;
esac
[ -z "${asked:-}" ] || sed -i 's/"CAP_SYS_RESOURCE",//g; s/,"CAP_SYS_RESOURCE"//g' "$asked"
exec runc "$@"
EOF
	chmod 755 "$state/runc"
}

# has CAPABILITY: whether this machine may have it, by number.
has() { [ $((0x$(awk '$1 == "CapBnd:" { print $2 }' /proc/self/status) >> $1 & 1)) -eq 1 ]; }

# await PID: until the engine of that process answers.
await() {
	n=0
	until answers; do
		n=$((n + 1))
		if [ $n -gt 60 ] || ended "$1"; then die "dockerd, process $1, does not answer: see its log; ours is $state/log"; fi
		sleep 1
	done
}

start() {
	if answers; then
		prepare
		say "an engine answers already"
		return
	fi
	[ "$(id -u)" = 0 ] || die "no engine answers, and only root can start one: start Docker"
	mkdir -p "$state"
	command -v dockerd >/dev/null || install
	prepare
	used=$(docker context inspect --format '{{.Endpoints.docker.Host}}') || die "see docker context ls"
	[ "$used" = "$host" ] || die "$used does not answer, and is not $host: unset DOCKER_HOST, or docker context use default"
	if is "$dockerd" dockerd; then
		await "$(cat "$dockerd")"
		say "an engine was starting already"
		return
	fi
	# Others may have got the numbers of processes that were killed.
	rm -f "$dockerd"
	is "$containerd" containerd || rm -f "$containerd"
	set --
	if ! has 24; then
		runtime
		set -- --add-runtime "leasecast=$state/runc" --default-runtime leasecast
	fi
	[ -f /sys/fs/cgroup/cgroup.controllers ] || set -- "$@" --default-cgroupns-mode private
	trap 'trap : HUP INT TERM; stop' EXIT
	trap 'exit 130' HUP INT TERM
	setsid dockerd "$@" >"$state/log" 2>&1 &
	echo $! >"$state/pid"
	await $!
	trap - EXIT
	say "started, by process $(cat "$state/pid"); its log is $state/log"
}

stop() {
	[ -f "$state/pid" ] || die "no engine was started from here"
	if is "$state/pid" dockerd; then
		[ -z "$(timeout 20 docker --host "$host" ps --quiet 2>/dev/null)" ] || die "containers run, see docker ps: end them first"
		pid=$(cat "$state/pid")
		kill "$pid" || :
		n=0
		until ended "$pid"; do
			n=$((n + 1))
			[ $n -ne 60 ] || kill -s KILL "$pid" || :
			[ $n -le 70 ] || die "dockerd, process $pid, does not end"
			sleep 1
		done
	fi
	rm -f "$state/pid"
	say "stopped"
}

case ${1:-} in
start | stop) "$1" ;;
*) die "want start or stop" ;;
esac
