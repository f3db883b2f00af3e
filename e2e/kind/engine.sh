#!/bin/sh
# Starts Debian's Docker engine where nothing else does, for CI and for machines without an init system:
#
#   engine.sh start    installs the engine if need be, starts it unless one answers, and returns when it answers
#   engine.sh stop     stops the engine that start has started, and no other
#
# It needs Debian and root. Everybody else starts Docker as they are used to.
set -eu

state=${XDG_RUNTIME_DIR:-/run}/leasecast-engine
say() { echo "engine: $*"; }
die() {
	say "$*" >&2
	exit 1
}

answers() { docker version >/dev/null 2>&1; }

install() {
	[ -f /etc/debian_version ] || die "dockerd is not there, and this is not Debian: install Docker, and start it"
	say "installing Debian's docker.io, and debootstrap for make kind-node-image"
	apt-get update -qq >/dev/null || die "apt-get update failed: run it by hand and see"
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends docker.io iptables debootstrap >"$state/install.log" 2>&1 ||
		die "docker.io could not be installed: see $state/install.log"
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

start() {
	if answers; then
		say "an engine answers already"
		return
	fi
	[ "$(id -u)" = 0 ] || die "no engine answers, and only root can start one: start Docker"
	mkdir -p "$state"
	command -v dockerd >/dev/null || install
	set --
	if ! has 24; then
		runtime
		set -- --add-runtime "leasecast=$state/runc" --default-runtime leasecast
	fi
	[ -f /sys/fs/cgroup/cgroup.controllers ] || set -- "$@" --default-cgroupns-mode private
	# Each node watches many files.
	[ "$(cat /proc/sys/fs/inotify/max_user_instances)" -ge 1024 ] || echo 1024 >/proc/sys/fs/inotify/max_user_instances
	[ "$(cat /proc/sys/fs/inotify/max_user_watches)" -ge 524288 ] || echo 524288 >/proc/sys/fs/inotify/max_user_watches
	setsid dockerd "$@" >"$state/log" 2>&1 &
	echo $! >"$state/pid"
	n=0
	until answers; do
		n=$((n + 1))
		[ $n -le 60 ] && kill -0 "$(cat "$state/pid")" 2>/dev/null || die "dockerd does not answer: see $state/log"
		sleep 1
	done
	say "started, by process $(cat "$state/pid"); its log is $state/log"
}

stop() {
	[ -f "$state/pid" ] || die "no engine was started from here"
	pid=$(cat "$state/pid")
	if [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ]; then
		kill "$pid"
		while kill -0 "$pid" 2>/dev/null; do sleep 1; done
	fi
	rm -f "$state/pid"
	say "stopped"
}

case ${1:-} in
start | stop) "$1" ;;
*) die "want start or stop" ;;
esac
