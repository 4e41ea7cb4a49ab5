#!/usr/bin/env bash
# root.sh NODE ROOT: the first program in the new namespaces. It makes ROOT the node's root directory.
# $KUBE, $CONTAINERD, $CNI and $MULTUS are the folders of programs, $HIERARCHIES the control groups to mount.
set -euo pipefail
hostname "$1"
mount --bind "$2" "$2"
mount --make-private "$2"
cd "$2"

mount --bind /usr usr
mount -o remount,bind,ro usr
for pair in "$KUBE opt/kube" "$CONTAINERD opt/containerd" "$CNI opt/cni/bin" "$MULTUS opt/multus/bin"; do
  mount --bind "${pair% *}" "${pair#* }"
  mount -o remount,bind,ro "${pair#* }"
done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t tmpfs -o mode=755,size=512m tmpfs run

# No /dev/kvm: programs that find one use it, also where it does not work.
mount -t tmpfs -o mode=755,size=16m tmpfs dev
while read -r name major minor; do mknod -m 666 "dev/$name" c "$major" "$minor"; done <<'LIST'
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
kmsg 1 11
fuse 10 229
loop-control 10 237
LIST
mkdir dev/net dev/pts dev/shm dev/mqueue
mknod -m 666 dev/net/tun c 10 200
# All nodes share the kernel's loop devices.
for i in $(seq 0 127); do mknod -m 660 dev/loop$i b 7 $i; done
mount -t devpts -o newinstance,ptmxmode=0666,mode=620 devpts dev/pts
mount -t tmpfs tmpfs dev/shm
mount -t mqueue mqueue dev/mqueue
ln -s pts/ptmx dev/ptmx
ln -s /proc/self/fd dev/fd
for i in 0:stdin 1:stdout 2:stderr; do ln -s "/proc/self/fd/${i%:*}" "dev/${i#*:}"; done

if [ "$HIERARCHIES" = v2 ]; then
  # Processes are in leaves only: process 1 makes room for the kubelet's groups.
  mount -t cgroup2 cgroup2 sys/fs/cgroup
  mkdir sys/fs/cgroup/init
  echo 1 > sys/fs/cgroup/init/cgroup.procs
else
  mount -t tmpfs -o mode=755 tmpfs sys/fs/cgroup
  for hierarchy in $HIERARCHIES; do
    mkdir "sys/fs/cgroup/${hierarchy%%:*}"
    mount -t cgroup -o "${hierarchy#*:}" cgroup "sys/fs/cgroup/${hierarchy%%:*}"
  done
fi

# The kubelet would set these for the whole machine; it finds the values it wants instead. A new boot ID makes a restart a reboot.
mkdir run/sysctl
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1 "kernel/random/boot_id=$(< /proc/sys/kernel/random/uuid)"; do
  file=run/sysctl/$(tr / _ <<< "${setting%=*}")
  echo "${setting#*=}" > "$file"
  mount --bind "$file" "proc/sys/${setting%=*}"
done

pivot_root . oldroot
cd /
umount -l /oldroot
# Mounts that a node agent makes have to reach Pods.
mount --make-rshared /
exec env -i PATH=/opt/kube:/opt/containerd:/usr/sbin:/usr/bin HOME=/root bash /node/main.sh "$1"
