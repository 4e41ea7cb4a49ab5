//! Which block devices the processes of a running container may open: rules of its control group.
//!
//! Version 1 has a list that can be changed. Version 2 has programs of the container runtime, which cannot be extended from
//! outside: where one is in the way, that is an error. Without a rule or a program every device may be opened.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

use crate::error::{Context, Error, Result};
use crate::mounts::{self, Mount};
use crate::ns;
use crate::process::ProcessId;

/// The root file system of the node, for a process in a container that sees the node's processes.
const NODE: &str = "/proc/1/root";

/// Where the rules of a control group are.
#[derive(Debug, PartialEq, Eq)]
enum Rules {
    V1(PathBuf),
    V2(PathBuf),
    None,
}

/// Lets the container of a process use a block device.
pub fn allow_block(process: ProcessId, number: u64) -> Result<()> {
    match rules_of(process)? {
        Rules::V1(group) if !allows_all(&group)? => write(&group.join("devices.allow"), &rule(number)),
        Rules::V2(group) if has_program(&group)? => {
            let why = "its control group is of version 2, and a program of the container runtime guards its devices; \
                       plug a claim in file system mode instead";
            Err(Error::new(
                "grant a block device to process",
                process.pid,
                io::Error::new(io::ErrorKind::Unsupported, why),
            ))
        }
        Rules::V1(_) | Rules::V2(_) | Rules::None => Ok(()),
    }
}

/// Takes back what [`allow_block`] gave. The process may be gone.
pub fn deny_block(process: ProcessId, number: u64) -> Result<()> {
    if !process.alive() {
        return Ok(());
    }
    match rules_of(process)? {
        Rules::V1(group) if !allows_all(&group)? => write(&group.join("devices.deny"), &rule(number)),
        Rules::V1(_) | Rules::V2(_) | Rules::None => Ok(()),
    }
}

fn rule(number: u64) -> String {
    format!("b {}:{} rwm", rustix::fs::major(number), rustix::fs::minor(number))
}

fn rules_of(process: ProcessId) -> Result<Rules> {
    let read = |path: String| fs::read(&path).doing("read", path);
    let groups = read(format!("/proc/{}/cgroup", process.pid))?;
    // Who may not look at the first process is not in a privileged container.
    let in_container = matches!(ns::same("/proc/self/ns/mnt", "/proc/1/ns/mnt"), Ok(false));
    let (mounts, root) = if in_container { ("/proc/1/mountinfo", NODE) } else { ("/proc/self/mountinfo", "/") };
    let mounts = mounts::parse(&read(mounts.to_owned())?);
    Ok(find(&String::from_utf8_lossy(&groups), &mounts, Path::new(root)))
}

/// `groups` is `/proc/<pid>/cgroup`, with lines such as `5:devices:/kubepods/pod1`.
fn find(groups: &str, mounts: &[Mount], root: &Path) -> Rules {
    let group = |wanted: &str| {
        groups.lines().find_map(|line| {
            let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
            controllers.split(',').any(|controller| controller == wanted).then_some(path)
        })
    };
    let below = |mount: &Mount, path: &str| {
        let target = mount.target.strip_prefix("/").unwrap_or(&mount.target);
        root.join(target).join(path.trim_start_matches('/'))
    };
    let v1 = mounts.iter().find(|m| m.kind == "cgroup" && m.super_options.split(',').any(|option| option == "devices"));
    if let (Some(mount), Some(path)) = (v1, group("devices")) {
        return Rules::V1(below(mount, path));
    }
    let v2 = mounts.iter().find(|m| m.kind == "cgroup2");
    match (v2, group("")) {
        (Some(mount), Some(path)) => Rules::V2(below(mount, path)),
        _ => Rules::None,
    }
}

fn allows_all(group: &Path) -> Result<bool> {
    let list = group.join("devices.list");
    let text = fs::read_to_string(&list).doing("read", list)?;
    Ok(text.lines().any(|line| line.starts_with("a ")))
}

fn write(file: &Path, rule: &str) -> Result<()> {
    let opened = fs::OpenOptions::new().write(true).open(file);
    opened.and_then(|mut file| io::Write::write_all(&mut file, rule.as_bytes())).doing("write", file)
}

/// Whether a program of this group, or of one above it, decides about devices.
fn has_program(group: &Path) -> Result<bool> {
    const BPF_PROG_QUERY: libc::c_int = 16;
    const BPF_CGROUP_DEVICE: u32 = 6;
    const BPF_F_QUERY_EFFECTIVE: u32 = 1;
    /// The part of `union bpf_attr` for queries.
    #[repr(C)]
    #[derive(Default)]
    struct Query {
        target_fd: u32,
        attach_type: u32,
        query_flags: u32,
        attach_flags: u32,
        prog_ids: u64,
        prog_cnt: u32,
        padding: u32,
    }
    let dir = File::open(group).doing("open control group", group)?;
    let target_fd = u32::try_from(dir.as_raw_fd()).unwrap_or_default();
    let mut query =
        Query { target_fd, attach_type: BPF_CGROUP_DEVICE, query_flags: BPF_F_QUERY_EFFECTIVE, ..Query::default() };
    // SAFETY: the structure is as large as is said, outlives the call, and names no memory to write IDs to.
    let result = unsafe { libc::syscall(libc::SYS_bpf, BPF_PROG_QUERY, &raw mut query, size_of::<Query>()) };
    if result != 0 {
        return Err(io::Error::last_os_error()).doing("look for device rules of control group", group);
    }
    Ok(query.prog_cnt > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    const MOUNTS: &str = "\
        36 32 0:31 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n\
        37 32 0:32 / /sys/fs/cgroup/devices rw shared:14 - cgroup cgroup rw,devices\n\
        34 32 0:29 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n";
    const UNIFIED: &str = "30 25 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_rules_of_a_process_are_found_from_its_groups_and_the_mounts() {
        let find = |groups, mounts: &str| super::find(groups, &mounts::parse(mounts.as_bytes()), Path::new(NODE));
        let v1 = Rules::V1("/proc/1/root/sys/fs/cgroup/devices/kube/pod1".into());
        let v2 = Rules::V2("/proc/1/root/sys/fs/cgroup/kube/pod1".into());
        assert_eq!(find("7:memory:/m\n5:devices:/kube/pod1\n0::/u\n", MOUNTS), v1);
        assert_eq!(find("5:cpu,devices:/kube/pod1\n", MOUNTS), v1);
        assert_eq!(find("0::/kube/pod1\n", UNIFIED), v2);
        assert_eq!(find("7:memory:/m\n", UNIFIED), Rules::None);
        assert_eq!(find("0::/kube/pod1\n", ""), Rules::None);
    }

    #[test]
    fn a_device_is_granted_to_a_running_container_and_taken_back() {
        let number = rustix::fs::makedev(7, 250);
        let mut child = Command::new("sleep").arg("100").spawn().unwrap();
        let process = ProcessId::of(child.id().try_into().unwrap()).unwrap();
        // Unrestricted: nothing to do.
        allow_block(process, number).unwrap();
        deny_block(process, number).unwrap();

        let devices = Path::new("/sys/fs/cgroup/devices");
        let group = devices.join(format!("ferrovirt-test-rules-{}", std::process::id()));
        if devices.exists() {
            fs::create_dir(&group).unwrap();
            fs::write(group.join("cgroup.procs"), child.id().to_string()).unwrap();
            fs::write(group.join("devices.deny"), "a").unwrap();
            let list = || fs::read_to_string(group.join("devices.list")).unwrap();
            for _ in 0..2 {
                allow_block(process, number).unwrap();
                assert_eq!(list(), "b 7:250 rwm\n");
            }
            for _ in 0..2 {
                deny_block(process, number).unwrap();
                assert_eq!(list(), "");
            }
        }
        child.kill().unwrap();
        child.wait().unwrap();
        deny_block(process, number).unwrap();
        if devices.exists() {
            fs::remove_dir(&group).unwrap();
        }
    }
}
