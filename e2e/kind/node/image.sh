#!/bin/sh
# Makes a node image for kind where none can be pulled: kind's own files from its Go module, Debian packages, and programs
# that are built from Go modules. `make kind-node-image` runs it. It needs Debian, root and a Docker engine.
#
#   image.sh NAME FOLDER      makes the image NAME, keeps it and what it is made of in FOLDER, and loads it into Docker
#
# It exits with 75 where this machine, or what it reaches of Debian, does not do.
# KUBEBUILDER_ASSETS and NODE_ASSETS are the folders of the programs, KIND_VERSION and K8S_VERSION the versions.
set -eu

name=$1 folder=$2
here=$(cd "$(dirname "$0")" && pwd)
suite=bookworm
packages=systemd,runc,iptables,iproute2,conntrack,ethtool,socat,kmod,mount,procps,jq,ca-certificates,containernetworking-plugins

began=$(date +%s)
say() { echo "node image: $(($(date +%s) - began)) s: $*"; }
die() {
	echo "node image: $*" >&2
	exit 1
}
# cannot ends this where the machine is at fault, and nothing here is.
cannot() {
	echo "node image: $*" >&2
	exit 75
}

docker version >/dev/null 2>&1 || die "no Docker engine answers: start Docker, or run e2e/kind/engine.sh start"
archive=$folder/$(echo "$name" | tr '/:' '__').tar
if docker image inspect "$name" >/dev/null 2>&1; then
	say "Docker has $name already"
	exit 0
fi
if [ -f "$archive" ]; then
	say "loading $archive"
	docker load --quiet --input "$archive"
	exit 0
fi
[ "$(id -u)" = 0 ] || cannot "only root can make it: run this as root, or use a machine that can pull kindest/node"
command -v dpkg >/dev/null || cannot "this is not Debian: use a machine that is, or one that can pull kindest/node"
command -v debootstrap >/dev/null || cannot "debootstrap is missing: apt-get install debootstrap"

mkdir -p "$folder"
# What was left by runs that were killed.
find "$folder" -maxdepth 1 -name '.making-*' -mmin +60 -exec rm -rf {} + || :
work=$folder/.making-$$
trap 'rm -rf "$work" || :' EXIT
trap 'exit 130' HUP INT TERM
root=$work/root
mkdir -p "$root" "$work/images"

# pack NAME FOLDER CONFIG OUT: an archive for docker load and ctr import, of one layer
pack() {
	layer=$work/layer
	mkdir -p "$layer"
	tar -C "$2" --numeric-owner -cf "$layer/layer.tar" .
	digest=$(sha256sum "$layer/layer.tar" | cut -d' ' -f1)
	printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
		"$(dpkg --print-architecture)" "$3" "$digest" >"$layer/config.json"
	printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$1" >"$layer/manifest.json"
	tar -C "$layer" -cf "$work/packed" manifest.json config.json layer.tar
	mv "$work/packed" "$4"
	rm -rf "$layer"
}

# The base is the same until the packages or the suite change.
base=$folder/debian-$suite-$(echo "$packages" | cksum | cut -d' ' -f1).tar
if [ ! -f "$base" ]; then
	say "installing Debian packages, for two minutes"
	debootstrap --variant=minbase --include="$packages" "$suite" "$root" >"$folder/debootstrap.log" 2>&1 ||
		cannot "debootstrap failed: see $folder/debootstrap.log"
	rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/doc "$root"/usr/share/locale "$root"/usr/share/man
	tar -C "$root" --numeric-owner -cf "$work/base" .
	mv "$work/base" "$base"
else
	tar -C "$root" -xf "$base"
fi

say "adding kind's files and the programs"
kind=$(GOFLAGS=-mod=mod go mod download -json "sigs.k8s.io/kind@$KIND_VERSION" | sed -n 's/.*"Dir": "\(.*\)".*/\1/p')
[ -d "$kind/images/base/files" ] || die "the module sigs.k8s.io/kind@$KIND_VERSION has no images/base/files"
cp -r --no-preserve=mode,ownership "$kind/images/base/files/." "$root/"
chmod 755 "$root/usr/local/bin/entrypoint" "$root"/kind/bin/*.sh
for program in kubeadm kubelet kubectl; do
	cp "$(ls "$NODE_ASSETS/$program" "$KUBEBUILDER_ASSETS/$program" 2>/dev/null | head -n 1)" "$root/usr/bin/"
done
for program in containerd containerd-shim-runc-v2 ctr; do
	cp "$NODE_ASSETS/$program" "$root/usr/local/bin/"
done
mkdir -p "$root/opt/cni" "$root/kind/manifests" "$root/etc/kubernetes/manifests" "$root/etc/cni/net.d"
ln -s /usr/lib/cni "$root/opt/cni/bin"
ln -sf /usr/lib/systemd/systemd "$root/sbin/init"
printf %s "$K8S_VERSION" >"$root/kind/version"
cp "$here/default-cni.yaml" "$root/kind/manifests/default-cni.yaml"
cp "$here/cni.template" "$root/etc/containerd/cni.template"

images=$(chroot "$root" kubeadm config images list --kubernetes-version "$K8S_VERSION")
image_of() { echo "$images" | grep -E "/$1:" || die "kubeadm names no image of $1"; }

# The sandbox's image is the one that kubeadm names. Pods get addresses from their node's range: there is no network
# plugin beside that. Without CAP_SYS_RESOURCE nobody can ask to be killed last.
sed -i -e "s#sandbox_image = .*#sandbox_image = \"$(image_of pause)\"#" \
	-e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' "$root/etc/containerd/config.toml"
cat >>"$root/etc/containerd/config.toml" <<'EOF'
[plugins."io.containerd.grpc.v1.cri".cni]
  conf_template = "/etc/containerd/cni.template"
EOF
echo 'ReadKMsg=no' >>"$root/etc/systemd/journald.conf"
# As in kind's own image: nothing starts but what is asked for.
find "$root/lib/systemd/system/sysinit.target.wants/" -name systemd-tmpfiles-setup.service -delete
rm -f "$root"/lib/systemd/system/multi-user.target.wants/* "$root"/etc/systemd/system/*.wants/* \
	"$root"/lib/systemd/system/local-fs.target.wants/* "$root"/lib/systemd/system/sockets.target.wants/*udev* \
	"$root"/lib/systemd/system/sockets.target.wants/*initctl* "$root"/lib/systemd/system/basic.target.wants/*
for unit in kubelet containerd undo-mount-hacks; do
	chroot "$root" systemctl enable "$unit.service" >/dev/null 2>&1
done
chroot "$root" systemctl mask systemd-binfmt.service >/dev/null 2>&1
chroot "$root" sh -c 'ctr oci spec | jq "del(.process.rlimits)" >/etc/containerd/cri-base.json'

say "packing the images of the control plane"
# one NAME PROGRAM CONFIG: an image of one program
one() {
	mkdir -p "$work/one/usr/local/bin" "$work/one/tmp"
	chmod 1777 "$work/one/tmp"
	cp "$(ls "$NODE_ASSETS/$2" "$KUBEBUILDER_ASSETS/$2" 2>/dev/null | head -n 1)" "$work/one/usr/local/bin/"
	pack "$1" "$work/one" "{\"Entrypoint\":[\"/usr/local/bin/$2\"],\"Env\":[\"PATH=/usr/local/bin\"]}" "$work/images/$2.tar"
	rm -rf "$work/one"
}
for program in kube-apiserver kube-controller-manager kube-scheduler etcd pause coredns; do
	one "$(image_of "$program")" "$program"
done

# kube-proxy runs iptables: its tool, the libraries of all its modules, and those that they need.
proxy=$work/proxy
mkdir -p "$proxy/usr/local/bin" "$proxy/usr/sbin" "$proxy/tmp" "$proxy/etc"
cp "$NODE_ASSETS/kube-proxy" "$proxy/usr/local/bin/"
for tool in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
	ln -s xtables-nft-multi "$proxy/usr/sbin/$tool"
done
chroot "$root" sh -c 'for f in /usr/sbin/xtables-nft-multi /usr/sbin/conntrack /usr/bin/kmod /usr/lib/*/xtables/*.so; do
	echo "$f"; ldd "$f" | sed -n "s/^[^/]*\(\/[^ ]*\) .*/\1/p"; done' | sort -u | while read -r file; do
	mkdir -p "$proxy$(dirname "$file")"
	cp -L "$root$file" "$proxy$file"
done
pack "$(image_of kube-proxy)" "$proxy" '{"Env":["PATH=/usr/local/bin:/usr/sbin:/usr/bin"]}' "$work/images/kube-proxy.tar"

say "importing them into the node's containerd"
cat >"$work/import.sh" <<'EOF'
set -eu
root=$1 images=$2
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mkdir -p "$root/run/images"
mount --bind "$images" "$root/run/images"
chroot "$root" containerd --log-level error &
n=0
until chroot "$root" ctr version >/dev/null 2>&1; do
	n=$((n + 1))
	[ $n -lt 60 ] || exit 1
	sleep 0.5
done
for image in "$images"/*.tar; do
	chroot "$root" ctr --namespace k8s.io images import --local --snapshotter overlayfs "/run/images/$(basename "$image")" >/dev/null
done
chroot "$root" ctr --namespace k8s.io images list -q
kill $!
wait $! || :
EOF
unshare --mount --pid --fork --kill-child sh "$work/import.sh" "$root" "$work/images" >"$folder/import.log" 2>&1 ||
	die "importing failed: see $folder/import.log"
rm -rf "$work/images" "$proxy"

say "packing the node image"
pack "$name" "$root" '{"Entrypoint":["/usr/local/bin/entrypoint","/sbin/init"],"Env":["container=docker","PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],"StopSignal":"SIGRTMIN+3"}' "$archive"
say "loading it into Docker"
docker load --quiet --input "$archive"
say "made $name"
