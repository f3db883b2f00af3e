#!/bin/sh
# Builds programs from Go modules into a cache folder, and does nothing for those that are there already.
#
#   build.sh FOLDER MODULE NAME=PACKAGE...    packages of the module in the directory MODULE, as its go.sum pins them
#   build.sh FOLDER - NAME=PACKAGE@VERSION... packages of any published module
#
# LDFLAGS is passed to the linker. A program is built under a temporary name and renamed, and only then the stamp
# beside it (.NAME.stamp: what it was built from) is written. So an interrupted build is never taken for a complete
# one, a program in use is never overwritten, and the next run goes on where this one stopped.
set -eu

folder=$1 module=$2
shift 2
mkdir -p "$folder"
# Some programs need a newer Go than this repository, and CI's Go may be set to take no other one.
export CGO_ENABLED=0 GOWORK=off GOTOOLCHAIN=auto

# Packages of this repository are built anew when they change; others change with go.sum.
ours=github.com/leasecast/leasecast

pins=
[ "$module" = - ] || pins=$(cksum <"$module/go.sum")

work= ticker=
cleanup() {
	[ -z "$ticker" ] || kill "$ticker" 2>/dev/null || :
	[ -z "$work" ] || rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' HUP INT TERM

# tick says every ten seconds how long this has taken and which package came last; it ends with this script.
tick() {
	while sleep 1 >/dev/null 2>&1 && kill -0 $$ 2>/dev/null; do
		elapsed=$(($(date +%s) - started))
		[ $((elapsed % 10)) -ne 0 ] || echo "      $1: $elapsed s, at $(tail -n 1 "$work/log")"
	done
}

compile() { # PACKAGE
	case $1 in
	*@*) GOBIN=$work/bin go install -v -ldflags "${LDFLAGS:-}" "$1" ;;
	*) go -C "$module" build -v -trimpath -ldflags "${LDFLAGS:-}" -o "$work/bin/" "$1" ;;
	esac >"$work/log" 2>&1
}

n=0
for program in "$@"; do
	n=$((n + 1))
	name=${program%%=*} package=${program#*=}
	stamp=$folder/.$name.stamp
	source="$package ${LDFLAGS:-} $pins"
	case $package in
	"$ours"/*) source="$source $(cat "${package#"$ours"/}"/*.go | cksum)" ;;
	esac
	if [ -x "$folder/$name" ] && [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$source" ]; then
		continue
	fi

	started=$(date +%s)
	echo "[$n/$#] building $name, once; it is kept in $folder"
	work=$folder/.building-$name-$$
	mkdir -p "$work/bin"
	echo "the start" >"$work/log"
	tick "$name" &
	ticker=$!
	if ! compile "$package"; then
		tail -n 40 "$work/log" >&2
		echo "building $name from $package failed; see above" >&2
		exit 1
	fi
	kill "$ticker" 2>/dev/null || :
	ticker=
	rm -f "$stamp"
	mv -f "$work"/bin/* "$folder/$name"
	echo "$source" >"$stamp"
	rm -rf "$work"
	work=
	echo "[$n/$#] built $name in $(($(date +%s) - started)) s"
done
