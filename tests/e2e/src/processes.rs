//! The machine's processes, as a test needs to see (and kill) them.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hostfs::process::{ProcessId, Signal};

/// More than the kernel needs for the memory of a guest, also when both cores are taken.
const DEATH_LIMIT: Duration = Duration::from_secs(30);

/// Processes named `comm` whose command line contains `word`.
pub fn find(comm: &str, word: &str) -> Vec<ProcessId> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let words = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
        if name.trim() == comm && words.contains(word) {
            found.extend(ProcessId::of(pid).ok().filter(ProcessId::alive));
        }
    }
    found
}

/// Whether a process is in a control group below others of these names, each in the one before.
pub fn in_group(process: &ProcessId, names: &[&str]) -> bool {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process.pid)).unwrap_or_default();
    groups.lines().any(|group| is_below(group, names))
}

fn is_below(group: &str, names: &[&str]) -> bool {
    let path: Vec<&str> = group.splitn(3, ':').nth(2).unwrap_or_default().split('/').collect();
    path.windows(names.len()).any(|part| part == names)
}

/// QEMU processes of one guest of the `default` namespace. libvirt puts the domain's name on their command lines.
pub fn qemus_of(guest: &str) -> Vec<ProcessId> {
    find("qemu-system-x86", &format!("guest=default_{guest},"))
}

/// The parent of a process.
pub fn parent(process: &ProcessId) -> Result<i32> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.pid)).context("cannot read a process's state")?;
    let after_name = stat.rsplit_once(") ").context("a process's state has no name")?.1;
    after_name.split(' ').nth(1).and_then(|pid| pid.parse().ok()).context("a process's state has no parent")
}

/// The libvirtd of the launcher that runs this QEMU: both live in the launcher's pid namespace.
pub fn libvirtd_beside(qemu: &ProcessId) -> Result<ProcessId> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid"));
    let own = namespace(qemu.pid).context("cannot read QEMU's pid namespace")?;
    find("libvirtd", "")
        .into_iter()
        .find(|process| namespace(process.pid).is_ok_and(|other| other == own))
        .context("no libvirtd runs beside this QEMU")
}

/// Kills a process and waits for its end: one with much memory takes a while, and until then it looks alive to others.
pub fn kill(process: &ProcessId) -> Result<()> {
    process.signal(Signal::KILL).context("cannot kill a process")?;
    ensure!(process.wait_gone(DEATH_LIMIT)?, "process {} was killed and still runs", process.pid);
    Ok(())
}
