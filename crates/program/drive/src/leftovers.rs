//! Detects what a cluster has left on the machine, by comparing two snapshots.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use crate::poll;

/// Everything on this machine that a cluster could leave behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Whether a cluster with kubelets is looked for, too.
    with_nodes: bool,
    things: BTreeSet<String>,
}

impl Snapshot {
    /// Takes a snapshot of processes of this program and of guests, mounts, loop devices of volumes, links, nft tables,
    /// cgroups and kept namespaces.
    pub fn take() -> Result<Self> {
        Self::take_one(false)
    }

    /// The same with what a Kubernetes cluster of `tests/cluster` consists of: its control plane, what runs on its
    /// nodes, and the directory with their disks.
    pub fn take_with_nodes() -> Result<Self> {
        Self::take_one(true)
    }

    fn take_one(with_nodes: bool) -> Result<Self> {
        let mut things = BTreeSet::new();
        processes(with_nodes, &mut things);
        for line in fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines() {
            if let Some(point) = line.split_whitespace().nth(4) {
                things.insert(format!("mount {point}"));
            }
        }
        for entry in fs::read_dir("/sys/class/net").into_iter().flatten().flatten() {
            things.insert(format!("link {}", entry.file_name().to_string_lossy()));
        }
        let nft = std::process::Command::new("nft").args(["list", "tables"]).output();
        for line in nft.map(|out| String::from_utf8_lossy(&out.stdout).into_owned()).unwrap_or_default().lines() {
            things.insert(format!("nft {line}"));
        }
        cgroups(Path::new("/sys/fs/cgroup"), 3, &mut things);
        loop_devices(Path::new("/sys/block"), &mut things);
        if with_nodes {
            directories(Path::new(DISKS), &mut things);
        }
        Ok(Self { with_nodes, things })
    }

    /// Waits until the machine is as it was: processes that were killed, and their cgroups, go a moment later.
    pub async fn nothing_left(&self, limit: Duration) -> Result<()> {
        poll("the machine as it was before", limit, || async {
            let now = Self::take_one(self.with_nodes).map_err(|err| err.to_string())?;
            let left = leftovers(self, &now);
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await
    }
}

/// What exists now and did not before, one per line.
fn leftovers(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    after.things.difference(&before.things).cloned().collect()
}

/// Names of the programs that a cluster starts; short-lived ones of others would be noise.
const PROGRAMS: &[&str] = &["ferrovirt", "virt-launcher", "libvirtd", "qemu-system-x86", "virtlogd"];

/// Those of a Kubernetes cluster, as the kernel cuts their names. A machine may have its own.
const NODE_PROGRAMS: &[&str] = &[
    "etcd",
    "kube-apiserver",
    "kube-controller",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
    "containerd",
    "containerd-shim",
    "coredns",
];

/// Where such a cluster makes its directory, and how that begins.
const DISKS: &str = "/var/tmp";
const DISKS_PREFIX: &str = "ferrovirt-cluster-";

/// In the path of every file that a volume engine attaches.
const POOL_VOLUMES: &str = "/volumes/vol-";

fn is_watched(comm: &str, with_nodes: bool) -> bool {
    PROGRAMS.contains(&comm) || (with_nodes && NODE_PROGRAMS.contains(&comm))
}

fn directories(parent: &Path, things: &mut BTreeSet<String>) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_string_lossy().starts_with(DISKS_PREFIX) {
            things.insert(format!("directory {}", entry.path().display()));
        }
    }
}

/// Loop devices on files of a pool: what nodes have shown Pods as block devices.
fn loop_devices(blocks: &Path, things: &mut BTreeSet<String>) {
    for entry in fs::read_dir(blocks).into_iter().flatten().flatten() {
        let Ok(file) = fs::read_to_string(entry.path().join("loop/backing_file")) else { continue };
        if file.contains(POOL_VOLUMES) {
            things.insert(format!("loop device {} on {}", entry.file_name().to_string_lossy(), file.trim()));
        }
    }
}

fn processes(with_nodes: bool, things: &mut BTreeSet<String>) {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else { continue };
        let Ok(comm) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let own = pid.parse() == Ok(std::process::id());
        if !own && is_watched(comm.trim(), with_nodes) {
            let words = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " ");
            things.insert(format!("process {pid} {}", words.trim()));
        }
    }
}

fn cgroups(dir: &Path, depth: usize, things: &mut BTreeSet<String>) {
    if depth == 0 {
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            things.insert(format!("cgroup {}", entry.path().display()));
            cgroups(&entry.path(), depth - 1, things);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_things_are_left_over() {
        let set = |names: &[&str]| Snapshot {
            things: names.iter().map(|name| (*name).to_owned()).collect(),
            ..Snapshot::default()
        };
        let left = leftovers(&set(&["mount /", "link lo"]), &set(&["mount /", "link lo", "link n1"]));
        assert_eq!(left, ["link n1"]);
    }

    #[test]
    fn loop_devices_of_volumes_are_seen_and_others_are_not() {
        let blocks = tempfile::tempdir().unwrap();
        for (name, file) in [("loop1", "/x/pool/volumes/vol-abc/disk.img"), ("loop2", "/x/image"), ("sda", "")] {
            fs::create_dir_all(blocks.path().join(name).join("loop")).unwrap();
            fs::write(blocks.path().join(name).join("loop/backing_file"), format!("{file}\n")).unwrap();
        }
        let mut things = BTreeSet::new();
        loop_devices(blocks.path(), &mut things);
        let expected = "loop device loop1 on /x/pool/volumes/vol-abc/disk.img";
        assert_eq!(things.into_iter().collect::<Vec<_>>(), [expected]);
    }

    #[test]
    fn programs_of_nodes_are_watched_on_request() {
        for name in NODE_PROGRAMS {
            assert!(name.len() <= 15 && is_watched(name, true) && !is_watched(name, false), "{name}");
        }
        assert!(is_watched("qemu-system-x86", false) && !is_watched("bash", true));
    }

    #[test]
    fn a_process_and_a_directory_that_come_are_seen() {
        let parent = tempfile::tempdir().unwrap();
        let found = |with_nodes| {
            let mut things = BTreeSet::new();
            directories(parent.path(), &mut things);
            processes(with_nodes, &mut things);
            things
        };
        let before = found(true);
        let disks = parent.path().join(format!("{DISKS_PREFIX}x"));
        fs::create_dir(&disks).unwrap();
        let program = parent.path().join("etcd");
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let mut child = std::process::Command::new(&program).arg("1000").spawn().unwrap();
        let (with, without) = (found(true), found(false));
        child.kill().and_then(|()| child.wait()).unwrap();
        let process = format!("process {} {} 1000", child.id(), program.display());
        assert!(with.contains(&process) && !without.contains(&process) && !before.contains(&process), "{with:?}");
        assert!(with.contains(&format!("directory {}", disks.display())), "{with:?}");
    }
}
