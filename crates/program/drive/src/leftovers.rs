//! Detects what a cluster has left on the machine, by comparing two snapshots.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::Result;

/// Everything on this machine that a cluster could leave behind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    things: BTreeSet<String>,
}

impl Snapshot {
    /// Takes a snapshot of processes of this program and of guests, mounts, links, nft tables, cgroups and kept
    /// namespaces.
    pub fn take() -> Result<Self> {
        let mut things = BTreeSet::new();
        processes(&mut things);
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
        Ok(Self { things })
    }
}

/// What exists now and did not before, one per line.
pub fn leftovers(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    after.things.difference(&before.things).cloned().collect()
}

/// Names of the programs that a cluster starts; short-lived ones of others would be noise.
const PROGRAMS: &[&str] = &["ferrovirt", "virt-launcher", "libvirtd", "qemu-system-x86", "virtlogd"];

fn processes(things: &mut BTreeSet<String>) {
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) else { continue };
        let Ok(comm) = fs::read_to_string(entry.path().join("comm")) else { continue };
        let own = pid.parse() == Ok(std::process::id());
        if !own && PROGRAMS.contains(&comm.trim()) {
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
        let set = |names: &[&str]| Snapshot { things: names.iter().map(|name| (*name).to_owned()).collect() };
        let left = leftovers(&set(&["mount /", "link lo"]), &set(&["mount /", "link lo", "link n1"]));
        assert_eq!(left, ["link n1"]);
    }
}
