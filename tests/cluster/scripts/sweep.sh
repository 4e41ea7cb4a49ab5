#!/bin/sh
# sweep.sh CLUSTER DIRECTORY: waits until the owner of a cluster is gone, which closes our input, and removes what does not go
# with processes: control groups and the directory. Everything else does: namespaces have no names, mounts and links are in them.
cat > /dev/null
cluster=$1 directory=$2

# Fails while a process of the cluster is still dying.
remove_groups() {
  for group in /sys/fs/cgroup/"$cluster" /sys/fs/cgroup/*/"$cluster"; do
    [ -d "$group" ] || continue
    find "$group" -depth -type d -exec rmdir {} + 2> /dev/null
    [ ! -d "$group" ] || return 1
  done
}

tries=0
until remove_groups || [ $tries = 300 ]; do tries=$((tries + 1)); sleep 0.1; done
rm -rf --one-file-system "$directory"
