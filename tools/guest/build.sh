#!/bin/bash
# Builds the test guest from Debian packages, without root and without installing anything:
#
#   OUTDIR/vmlinuz, OUTDIR/initrd.gz            for direct kernel boot
#   OUTDIR/kernel/boot/{vmlinuz,initrd.gz}      the same as an image's root file system (kernelBoot)
#   OUTDIR/containerdisk/disk/disk.qcow2        the same as a bootable BIOS disk (containerDisk)
#   OUTDIR/packages                             dpkg's status and the copyright files of what is in it
#
# Packages are kept in ${XDG_CACHE_HOME:-~/.cache}/ferrovirt/guest. Nothing is done when the output was built from
# the same sources; delete OUTDIR to take up newer packages. See rootfs/init for what the guest does.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/ferrovirt/guest

# Libraries and the boot loader's module come from packages too, so that the build does not depend on the host's.
packages=(busybox-static qemu-guest-agent dropbear-bin libtomcrypt1 libtommath1 libgmp10 libcrypt1 zlib1g
    libglib2.0-0 libpcre2-8-0 liburing2 libudev1 libnuma1 libcap2 libc6 syslinux-common)

# In loading order; dependencies are resolved. A driver that is built into the kernel is skipped.
modules=(pvpanic-mmio virtio_pci virtio_net virtio_blk virtio_console virtio_balloon virtio_scsi virtio_mem virtio_rng sd_mod sr_mod
    isofs ext4 vfat nls_ascii nls_cp437 button evdev pvpanic-pci virtiofs vmw_vsock_virtio_transport)

die() { echo "guest: $*" >&2; exit 1; }

need_tools() {
    local missing=() tool
    for tool in "$@"; do command -v "$tool" >/dev/null || missing+=("$tool"); done
    [ ${#missing[@]} -eq 0 ] ||
        die "missing: ${missing[*]}; install them with: apt-get install cpio dosfstools gcc kmod libc6-dev mtools qemu-utils syslinux"
}

# Package lists of the machine, or private ones if the machine has none: `apt-get update` proper would need root.
apt_options=(-o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=1)
prepare_lists() {
    candidate linux-image-cloud-amd64 >/dev/null && return
    mkdir -p "$cache/apt/lists/partial" "$cache/apt/archives/partial"
    apt_options+=(-o Dir::State::Lists="$cache/apt/lists" -o Dir::Cache="$cache/apt")
    candidate linux-image-cloud-amd64 >/dev/null && return
    apt-get "${apt_options[@]}" -qq update || die "no package lists; run apt-get update as root"
    candidate linux-image-cloud-amd64 >/dev/null || die "apt knows no linux-image-cloud-amd64; is this Debian?"
}

candidate() { apt-cache "${apt_options[@]}" show --no-all-versions "$1" 2>/dev/null | grep .; }

# The meta package depends on the newest kernel by its full name.
kernel_package() {
    candidate linux-image-cloud-amd64 | grep -o 'linux-image-[0-9][^ ,]*-cloud-amd64' | head -n 1
}

# unpack PACKAGE...: downloads what the cache lacks and unpacks everything into the directory $debs.
unpack() {
    local package deb
    mkdir -p "$cache/debs"
    cd "$cache/debs"
    # Without a network, what an earlier build left behind will do.
    apt-get "${apt_options[@]}" -qq download "$@" || echo "guest: cannot download packages, using those in $PWD" >&2
    for package in "$@"; do
        deb=$(ls -t "${package}"_*.deb 2>/dev/null | head -n 1)
        [ -n "$deb" ] || die "the package $package is not in $PWD and could not be downloaded"
        dpkg-deb -x "$deb" "$debs"
        { dpkg-deb -f "$deb"; echo; } >>"$work/status"
    done
    cd "$here"
}

copy_modules() {
    local version=$1 root=$2 module file
    depmod -b "$debs" "$version"
    for module in "${modules[@]}"; do
        modprobe -d "$debs" -S "$version" --show-depends "$module" || die "kernel $version has no module $module"
    done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
        cp "$file" "$root/lib/modules/"
        echo "/lib/modules/$(basename "$file")"
    done >"$root/lib/modules/order"
}

# copy_program PATH ROOT: a program of the packages with the libraries its loader would take from them.
copy_program() {
    local program=$1 root=$2 loader=$debs/lib64/ld-linux-x86-64.so.2 list
    local path=$debs/lib/x86_64-linux-gnu:$debs/usr/lib/x86_64-linux-gnu
    cp "$debs$program" "$root/usr/sbin/"
    list=$("$loader" --inhibit-cache --library-path "$path" --list "$debs$program")
    ! grep 'not found' <<<"$list" || die "$program needs a library that no package in the list has"
    ! awk '$2 == "=>" { print $3 }' <<<"$list" | grep -v "^$debs/" || die "$program took a library of this machine"
    awk '$2 == "=>" { print $3 }' <<<"$list" | while read -r file; do cp -Lu "$file" "$root/lib/x86_64-linux-gnu/"; done
    cp -Lu "$loader" "$root/lib64/"
}

make_root() {
    local root=$1 version=$2 applet
    mkdir -p "$root"/{bin,sbin,proc,sys,dev,etc,root,run,tmp,mnt,var,lib64,usr/sbin,usr/bin,lib/x86_64-linux-gnu,lib/modules}
    ln -s ../run "$root/var/run"
    cp "$debs/bin/busybox" "$root/bin/"
    for applet in $("$debs/bin/busybox" --list); do
        [ "$applet" = busybox ] || ln -s /bin/busybox "$root/bin/$applet"
    done
    cp -r --remove-destination "$here/rootfs/." "$root/"
    chmod 755 "$root/init" "$root"/bin/* "$root"/sbin/*
    gcc -O2 -static -Wall -Werror -o "$root/bin/dirty" "$here/dirty.c"
    echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
    echo 'root:x:0:' >"$root/etc/group"
    echo /bin/sh >"$root/etc/shells"
    echo "root:$("$debs/bin/busybox" mkpasswd -m sha512 -S ferrovirt root):19000::::::" >"$root/etc/shadow"
    chmod 600 "$root/etc/shadow"
    copy_modules "$version" "$root"
    copy_program /usr/sbin/qemu-ga "$root"
    copy_program /usr/sbin/dropbear "$root"
}

# make_disk VMLINUZ INITRD OUT.qcow2: a FAT file system on the whole disk, started by syslinux. Without `no_timer_check` an
# emulated guest on a busy machine may panic, because its check of the timer gets no tick in time.
make_disk() {
    local image=$work/disk.img library=$debs/usr/lib/syslinux/modules/bios
    printf '%s\n' 'DEFAULT guest' 'PROMPT 0' 'TIMEOUT 0' 'LABEL guest' ' KERNEL vmlinuz' ' INITRD initrd.gz' \
        ' APPEND console=ttyS0 quiet no_timer_check' >"$work/syslinux.cfg"
    mkfs.vfat -n GUEST -C "$image" 49152 >/dev/null
    mcopy -i "$image" "$1" "$2" "$work/syslinux.cfg" "$library/ldlinux.c32" ::/
    syslinux --install "$image"
    qemu-img convert -O qcow2 "$image" "$3"
}

# As in an installed system, for who reads it there.
list_packages() {
    local file
    rm -rf "$1"
    mkdir -p "$1/var/lib/dpkg"
    cp "$work/status" "$1/var/lib/dpkg/"
    (cd "$debs" && find usr/share/doc -name copyright) | while read -r file; do install -D -m 644 "$debs/$file" "$1/$file"; done
}

main() {
    [ $# -eq 1 ] || die "usage: build.sh OUTDIR"
    mkdir -p "$1"
    local out stamp
    out=$(cd "$1" && pwd)
    exec 9>"$out/.lock"
    flock 9
    stamp=$(cd "$here" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
    if [ "$(cat "$out/.stamp" 2>/dev/null)" = "$stamp" ] && [ -e "$out/containerdisk/disk/disk.qcow2" ] && [ -e "$out/packages" ]; then
        echo "guest: $out is up to date"
        return
    fi
    PATH=$PATH:/usr/sbin:/sbin
    need_tools apt-get cpio depmod dpkg-deb gcc mcopy mkfs.vfat modprobe qemu-img syslinux
    rm -f "$out/.stamp"
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    debs=$work/debs
    mkdir -p "$debs" "$cache"
    prepare_lists
    unpack "$(kernel_package)" "${packages[@]}"

    make_root "$work/root" "$(ls "$debs/lib/modules")"
    rm -rf "$out/kernel" "$out/containerdisk" "$out/vmlinuz" "$out/initrd.gz"
    mkdir -p "$out/kernel/boot" "$out/containerdisk/disk"
    # Sorted names and one date: the same sources and packages give the same bytes.
    find "$work/root" -exec touch -h -d @0 {} +
    (cd "$work/root" && find . -print0 | sort -z | cpio -0 -o -H newc --quiet -R 0:0 --reproducible) | gzip -n -1 >"$out/initrd.gz"
    cp "$debs"/boot/vmlinuz-* "$out/vmlinuz"
    chmod 644 "$out/vmlinuz" "$out/initrd.gz"
    ln "$out/vmlinuz" "$out/initrd.gz" "$out/kernel/boot/"
    make_disk "$out/vmlinuz" "$out/initrd.gz" "$out/containerdisk/disk/disk.qcow2"
    list_packages "$out/packages"
    echo "$stamp" >"$out/.stamp"
    du -h "$out/vmlinuz" "$out/initrd.gz" "$out/containerdisk/disk/disk.qcow2"
}

main "$@"
