#!/usr/bin/env bash
# enter.sh CLUSTER NODE ROOT: makes the node's control groups, enters them, and becomes process 1 of new namespaces. The network
# namespace is new and ready already: whoever calls this is in it.
set -euo pipefail
group=$1/$2 root=$3

# What an earlier boot of this node left.
clear_group() { if [ -d "$1" ]; then find "$1" -mindepth 1 -depth -type d -exec rmdir {} +; fi; }

# In version 2 a controller is there only if every group above hands it down.
enter_v2() {
  local top=/sys/fs/cgroup directory controller
  mkdir -p "$top/$group"
  clear_group "$top/$group"
  for directory in "$top" "$top/$1"; do
    for controller in $(< "$directory/cgroup.controllers"); do echo "+$controller" > "$directory/cgroup.subtree_control" || :; done
  done
  echo $$ > "$top/$group/cgroup.procs"
}

# In version 1 a group without processors and memory nodes takes no process.
fill_cpuset() {
  local file
  for file in cpuset.cpus cpuset.mems; do
    if [ -e "$2/$file" ] && [ -z "$(< "$2/$file")" ]; then cat "$1/$file" > "$2/$file"; fi
  done
}

enter_v1() {
  local mount=$1 directory
  for directory in "$mount/${group%/*}" "$mount/$group"; do mkdir -p "$directory"; fill_cpuset "$mount" "$directory"; done
  clear_group "$mount/$group"
  echo $$ > "$mount/$group/cgroup.procs"
}

# How the node mounts a hierarchy again: its controllers, or its name.
options_v1() {
  local options
  options=$(tr ',' '\n' <<< "$1" | grep -vxE 'rw|ro|relatime|nosuid|nodev|noexec|xattr|release_agent=.*|clone_children' | paste -sd,)
  case $options in name=*) options=none,$options ;; esac
  echo "$options"
}

hierarchies=
if [ "$(stat -fc %T /sys/fs/cgroup)" = cgroup2fs ]; then
  enter_v2 "$1"
  hierarchies=v2
else
  while read -r _ mount type options _; do
    [[ $type = cgroup && $mount = /sys/fs/cgroup/* ]] || continue
    enter_v1 "$mount"
    hierarchies="$hierarchies ${mount##*/}:$(options_v1 "$options")"
  done < /proc/self/mounts
fi
exec unshare --mount --uts --ipc --pid --cgroup --fork --kill-child --propagation private \
  env HIERARCHIES="$hierarchies" bash "$root/node/root.sh" "$2" "$root"
