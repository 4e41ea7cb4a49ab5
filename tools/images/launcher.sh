#!/bin/bash
# The root file system of virt-launcher's image: Debian's QEMU and libvirt, and little else.
#
#   tools/images/launcher.sh DIR     DIR must not exist
#
# virt-launcher starts libvirtd in session mode as user 107, which starts QEMU, and qemu-img. virt-handler, from the same
# image, asks QEMU for its version and machine types and runs nft. Rendered Pods call bash and cp.
set -euo pipefail

[ $# -eq 1 ] || { echo "usage: launcher.sh DIR" >&2; exit 2; }
root=$1
suite=bookworm
packages=qemu-system-x86,qemu-utils,libvirt-daemon,libvirt-daemon-driver-qemu,nftables

# Documentation, translations and data that only desktops use. Licences stay.
left_out=(/usr/share/man /usr/share/locale /usr/share/info /usr/share/lintian /usr/share/bash-completion /usr/share/icons
    /usr/share/iso-codes /usr/share/xml/iso-codes /usr/share/gcc /usr/share/alsa /usr/share/applications /usr/share/zoneinfo)
options=(--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright')
for path in "${left_out[@]}"; do options+=(--dpkgopt="path-exclude=$path/*"); done

# Guests run as 107; the number is taken before any package can ask for one.
# shellcheck disable=SC2016
users='echo "qemu:x:107:107:virtual machines:/:/usr/sbin/nologin" >>"$1/etc/passwd"; echo "qemu:x:107:" >>"$1/etc/group"'

# Dates of files are of no concern: the image has none. What packages write in their scripts is.
export SOURCE_DATE_EPOCH=0
mmdebstrap --quiet --variant=essential --aptopt='APT::Install-Recommends "false"' "${options[@]}" \
    --essential-hook="$users" --include="$packages" "$suite" "$root"

# Other emulators and block tools of the same packages; what installing needed; what is made anew in every container.
# Perl comes with libraries' translations of names; the essential part of it stays.
cd "$root"
rm -rf usr/bin/qemu-system-i386 usr/libexec/qemu-system-i386 usr/bin/qemu-system-x86_64-microvm usr/bin/qemu-storage-daemon \
    usr/bin/qemu-nbd usr/bin/qemu-io usr/share/perl usr/share/perl5 usr/lib/x86_64-linux-gnu/perl usr/lib/x86_64-linux-gnu/libperl.so.* \
    var/lib/apt var/lib/dpkg/info var/lib/dpkg/*-old var/cache/* var/log/* var/backups/* tmp/* run/* dev/* \
    etc/machine-id etc/hostname etc/resolv.conf etc/apt etc/passwd- etc/group- etc/shadow- etc/gshadow- etc/.pwd.lock
# Nobody becomes anybody else in a container.
find . -xdev -type f -perm /6000 -exec chmod a-s {} +
