#!/usr/bin/env bash
# Installs what building and running Ferrovirt needs on Debian 12, and nothing that is already there.
#   tools/setup.sh demo    to build and run
#   tools/setup.sh test    the same, and what only the tests use
#   tools/setup.sh bench   what counts instructions
#   tools/setup.sh fuzz    what compiles the fuzzer's driver
#   tools/setup.sh kube    what nodes of a test cluster call; `test` has it, too
#   tools/setup.sh images  what `demo` has, and what makes the static program and the images
#   tools/setup.sh go      installs nothing: checks for Go, without which there is no Kubernetes cluster
# Toolchains (Rust, and a C compiler for the TLS library) are not installed here: a missing or old one gets one sentence. Neither
# is Go, with which `test` builds programs of other projects: without it those tests are skipped, or fail if CI is `true`.
set -euo pipefail

want=${1:-demo}
rust_min=1.95

fail() { echo "setup: $*" >&2; exit 1; }

at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

if [ "$want" = go ]; then
  # The module that asks for the newest.
  cd "$(dirname "$0")/containerd"
  go_min=$(sed -n 's/^go //p' go.mod)
  command -v go >/dev/null || fail "go is not on the PATH; Kubernetes' programs are built with it: install Go $go_min or newer from https://go.dev/dl, then run this again."
  # An older one gets the one that a module asks for from the network, unless GOTOOLCHAIN forbids it.
  go env GOVERSION >/dev/null 2>&1 || fail "$(cd / && GOTOOLCHAIN=local go env GOVERSION || echo this Go) is too old, and the newer one that it asks for cannot be had; install Go $go_min or newer from https://go.dev/dl."
  exit 0
fi

command -v cargo >/dev/null || fail "cargo is not on the PATH; install Rust $rust_min or newer with rustup, then run this again."
rust_have=$(rustc --version | cut -d' ' -f2)
at_least "$rust_min" "$rust_have" || fail "rustc $rust_have is too old; Ferrovirt needs $rust_min or newer: run 'rustup update stable'."
[ "$(id -u)" = 0 ] || fail "this must run as root: Ferrovirt makes network namespaces, mounts and cgroups. Use sudo or a root shell."

# What to look for, and the Debian package that brings it. A name with a slash is a file, otherwise a command.
needs() {
  cat <<'LIST'
cc gcc
make make
LIST
  case $want in
    bench) echo valgrind valgrind ;;
    fuzz) echo c++ g++ ;;
    images) echo musl-gcc musl-tools; echo mmdebstrap mmdebstrap; needs_guests ;;
    kube) needs_nodes ;;
    *) needs_guests ;;
  esac
}

needs_nodes() {
  cat <<'LIST'
/usr/lib/x86_64-linux-gnu/libc.a libc6-dev
runc runc
nft nftables
ip iproute2
nsenter util-linux
sysctl procps
pidof sysvinit-utils
busybox busybox-static
LIST
}

needs_guests() {
  cat <<'LIST'
qemu-system-x86_64 qemu-system-x86
qemu-img qemu-utils
libvirtd libvirt-daemon
/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so libvirt-daemon-driver-qemu
nft nftables
ip iproute2
ping iputils-ping
busybox busybox-static
cpio cpio
depmod kmod
mcopy mtools
mkfs.vfat dosfstools
syslinux syslinux
/usr/lib/syslinux/modules/bios/ldlinux.c32 syslinux-common
curl curl
LIST
  [ "$want" = test ] && cat <<'LIST'
virsh libvirt-clients
xmllint libxml2-utils
isoinfo genisoimage
mkfs.xfs xfsprogs
xz xz-utils
zstd zstd
kubectl kubernetes-client
mmdebstrap mmdebstrap
strip binutils
script bsdutils
LIST
  [ "$want" = test ] && needs_nodes
  return 0
}

if [ "$want" = images ] && ! rustc --print target-libdir --target x86_64-unknown-linux-musl | xargs test -d; then
  command -v rustup >/dev/null || fail "this Rust has no target x86_64-unknown-linux-musl and there is no rustup to add it; the static program needs it."
  rustup target add x86_64-unknown-linux-musl || fail "rustup could not add the target x86_64-unknown-linux-musl; check the network."
fi

missing=()
while read -r probe package; do
  case $probe in
    /*) [ -e "$probe" ] || missing+=("$package") ;;
    *) PATH=$PATH:/usr/sbin:/sbin command -v "$probe" >/dev/null || missing+=("$package") ;;
  esac
done < <(needs)

[ ${#missing[@]} = 0 ] && exit 0
command -v apt-get >/dev/null || fail "these Debian packages are missing and there is no apt-get to install them: ${missing[*]}"
echo "setup: installing Debian packages: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq || fail "apt-get update failed; check the machine's package sources."
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null || fail "apt-get could not install: ${missing[*]}"
