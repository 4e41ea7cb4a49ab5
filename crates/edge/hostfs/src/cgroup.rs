//! Cgroups, whichever version the machine uses: v1 hierarchies, v2, or both with the controllers spread over them. A
//! [`Cgroup`] is a directory of the same name in every relevant hierarchy.
//!
//! Setting a limit without its controller is an error. Killing needs no controller: v2 has `cgroup.kill`, and otherwise
//! members are killed until none is left.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::error::{Context, Error, Result, invalid};
use crate::mounts::{self, Mount};

const CONTROLLERS: [&str; 3] = ["cpu", "memory", "pids"];
const PERIOD_MICROSECONDS: u64 = 100_000;

/// Resource limits of a group; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// CPU share under contention, in millicores. Best effort: ignored without a controller.
    pub cpu_request_milli: Option<u64>,
    /// CPU limit, in millicores.
    pub cpu_milli: Option<u64>,
    pub memory_bytes: Option<u64>,
    pub pids: Option<u64>,
}

/// The hierarchies mounted on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchies {
    /// Version 1: mount points, each with our controllers that it has.
    v1: Vec<(PathBuf, Vec<&'static str>)>,
    v2: Option<V2>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct V2 {
    mount: PathBuf,
    controllers: Vec<&'static str>,
}

impl Hierarchies {
    pub fn detect() -> Result<Hierarchies> {
        let controllers = |mount: &Path| {
            let file = mount.join("cgroup.controllers");
            fs::read_to_string(&file).doing("read", &file)
        };
        Hierarchies::of(mounts::mountinfo()?, controllers)
    }

    /// The hierarchies among these mounts. `controllers` reads which ones a v2 hierarchy has.
    fn of(mounts: Vec<Mount>, controllers: impl Fn(&Path) -> Result<String>) -> Result<Hierarchies> {
        let mut found = Hierarchies { v1: Vec::new(), v2: None };
        for mount in mounts {
            match mount.kind.as_str() {
                "cgroup" => {
                    let carried = known(mount.super_options.split(','));
                    if !carried.is_empty() && found.v1.iter().all(|(_, c)| *c != carried) {
                        found.v1.push((mount.target, carried));
                    }
                }
                "cgroup2" if found.v2.is_none() => {
                    let text = controllers(&mount.target)?;
                    found.v2 = Some(V2 { mount: mount.target, controllers: known(text.split_ascii_whitespace()) });
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// Whether this controller is available.
    pub fn has(&self, controller: &str) -> bool {
        let v1 = self.v1.iter().any(|(_, carried)| carried.contains(&controller));
        v1 || self.v2.as_ref().is_some_and(|v2| v2.controllers.contains(&controller))
    }

    /// Whether there is nothing but version 2.
    pub fn is_unified(&self) -> bool {
        self.v1.is_empty() && self.v2.is_some()
    }

    /// The group of this name, such as `ferrovirt/pod1/compute`; it is not created yet.
    pub fn group(&self, name: &str) -> Result<Cgroup> {
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        if !name.split('/').all(plain) {
            return Err(invalid("use the control group name", name, "empty, \".\" and \"..\" parts are not allowed"));
        }
        Ok(Cgroup { hierarchies: self.clone(), name: name.to_owned() })
    }
}

fn known<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    let names: BTreeSet<&str> = names.collect();
    CONTROLLERS.into_iter().filter(|c| names.contains(c)).collect()
}

/// A cgroup by name. Its parents are created with it and stay until [`Cgroup::remove`] is called on them.
#[derive(Clone, Debug)]
pub struct Cgroup {
    hierarchies: Hierarchies,
    name: String,
}

impl Cgroup {
    pub fn create(&self) -> Result<()> {
        // Somebody may remove an unused parent concurrently.
        const ATTEMPTS: usize = 5;
        for _ in 1..ATTEMPTS {
            match self.try_create() {
                Err(e) if e.is_not_found() => {}
                other => return other,
            }
        }
        self.try_create()
    }

    fn try_create(&self) -> Result<()> {
        for (mount, _) in &self.hierarchies.v1 {
            let dir = mount.join(&self.name);
            fs::create_dir_all(&dir).doing("make control group", &dir)?;
        }
        if let Some(v2) = &self.hierarchies.v2 {
            self.create_v2(v2)?;
        }
        Ok(())
    }

    /// A controller is available in a group only if every group above enables it.
    fn create_v2(&self, v2: &V2) -> Result<()> {
        let enable: Vec<String> = v2.controllers.iter().map(|c| format!("+{c}")).collect();
        let mut dir = v2.mount.clone();
        for part in self.name.split('/') {
            if !enable.is_empty() {
                write(&dir, "cgroup.subtree_control", &enable.join(" "))?;
            }
            dir.push(part);
            match fs::create_dir(&dir) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                other => other.doing("make control group", &dir)?,
            }
        }
        Ok(())
    }

    /// Sets the given limits; others stay as they are.
    pub fn apply(&self, limits: &Limits) -> Result<()> {
        if let Some(milli) = limits.cpu_request_milli
            && self.hierarchies.has("cpu")
        {
            let shares = (milli * 1024 / 1000).clamp(2, 262_144);
            match self.controller("cpu")? {
                Place::V1(dir) => write(&dir, "cpu.shares", &shares.to_string())?,
                // Scale from 2…262144 to 1…10000.
                Place::V2(dir) => write(&dir, "cpu.weight", &(1 + (shares - 2) * 9999 / 262_142).to_string())?,
            }
        }
        if let Some(milli) = limits.cpu_milli {
            let quota = (milli * PERIOD_MICROSECONDS / 1000).max(1000);
            match self.controller("cpu")? {
                Place::V1(dir) => {
                    write(&dir, "cpu.cfs_period_us", &PERIOD_MICROSECONDS.to_string())?;
                    write(&dir, "cpu.cfs_quota_us", &quota.to_string())?;
                }
                Place::V2(dir) => write(&dir, "cpu.max", &format!("{quota} {PERIOD_MICROSECONDS}"))?,
            }
        }
        if let Some(bytes) = limits.memory_bytes {
            self.limit_memory(bytes)?;
        }
        if let Some(pids) = limits.pids
            && self.hierarchies.has("pids")
        {
            write(self.controller("pids")?.dir(), "pids.max", &pids.to_string())?;
        }
        Ok(())
    }

    /// Swap counts as memory, so that a group over its limit is killed instead of slowing the machine down.
    fn limit_memory(&self, bytes: u64) -> Result<()> {
        match self.controller("memory")? {
            Place::V1(dir) => {
                let swap = "memory.memsw.limit_in_bytes";
                let bytes = bytes.to_string();
                if !dir.join(swap).exists() {
                    return write(&dir, "memory.limit_in_bytes", &bytes);
                }
                // The kernel requires memory ≤ memory + swap at every step, whichever way the limit changes.
                let lowered = write(&dir, "memory.limit_in_bytes", &bytes);
                write(&dir, swap, &bytes)?;
                lowered.or_else(|_| write(&dir, "memory.limit_in_bytes", &bytes))
            }
            Place::V2(dir) => {
                write(&dir, "memory.max", &bytes.to_string())?;
                if dir.join("memory.swap.max").exists() {
                    write(&dir, "memory.swap.max", "0")?;
                }
                Ok(())
            }
        }
    }

    /// Moves a process into the group; 0 is the caller.
    pub fn attach(&self, pid: i32) -> Result<()> {
        for dir in self.dirs() {
            write(&dir, "cgroup.procs", &pid.to_string())?;
        }
        Ok(())
    }

    /// The processes in the group and in groups below it.
    pub fn members(&self) -> Result<BTreeSet<i32>> {
        let mut pids = BTreeSet::new();
        for dir in self.dirs() {
            for group in subtree(&dir)? {
                let file = group.join("cgroup.procs");
                match fs::read_to_string(&file) {
                    // A process of another PID namespace reads as 0.
                    Ok(text) => pids.extend(text.lines().filter_map(|l| l.parse::<i32>().ok()).filter(|p| *p > 0)),
                    Err(e) if gone(&e) => {}
                    Err(e) => return Err(e).doing("read", file),
                }
            }
        }
        Ok(pids)
    }

    /// Kills every member with SIGKILL until none is left; false if some survive `timeout` (stuck in the kernel).
    pub fn kill(&self, timeout: Duration) -> Result<bool> {
        let deadline = Instant::now() + timeout;
        loop {
            self.kill_at_once()?;
            self.kill_members()?;
            if self.members()?.is_empty() {
                return Ok(true);
            }
            if Instant::now() >= deadline {
                return Ok(false);
            }
            sleep(Duration::from_millis(10));
        }
    }

    /// Version 2 kills a whole tree atomically, without races against fork.
    fn kill_at_once(&self) -> Result<()> {
        let Some(v2) = &self.hierarchies.v2 else { return Ok(()) };
        let dir = v2.mount.join(&self.name);
        if dir.join("cgroup.kill").exists() { write(&dir, "cgroup.kill", "1") } else { Ok(()) }
    }

    fn kill_members(&self) -> Result<()> {
        let open = |pid| Some((pid, pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?));
        let opened: Vec<_> = self.members()?.into_iter().filter_map(open).collect();
        // List again after opening: a PID reused in between is either no longer a member, or one to kill.
        let members = self.members()?;
        for (pid, fd) in opened {
            if members.contains(&pid) {
                let _ = pidfd_send_signal(fd, Signal::KILL); // it may have exited by itself
            }
        }
        Ok(())
    }

    /// Removes the group and its subgroups; succeeds if absent. Members must be gone or exiting.
    pub fn remove(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        for dir in self.dirs() {
            for group in subtree(&dir)?.into_iter().rev() {
                loop {
                    match fs::remove_dir(&group) {
                        Ok(()) => break,
                        Err(e) if gone(&e) => break,
                        // The last member is dead but not yet removed.
                        Err(e) if e.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                            sleep(Duration::from_millis(10));
                        }
                        Err(e) => return Err(e).doing("remove control group", group),
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes the group itself if nothing uses it any more, for parents shared by several groups.
    pub fn remove_unused(&self) {
        for dir in self.dirs() {
            let _ = fs::remove_dir(dir); // fails while there is a member or a subgroup
        }
    }

    /// Number of members killed by the OOM killer; 0 without a memory controller.
    pub fn oom_kills(&self) -> Result<u64> {
        if !self.hierarchies.has("memory") {
            return Ok(0);
        }
        let file = match self.controller("memory")? {
            Place::V1(dir) => dir.join("memory.oom_control"),
            Place::V2(dir) => dir.join("memory.events"),
        };
        match fs::read_to_string(&file) {
            Ok(text) => {
                let count = text.lines().find_map(|l| l.strip_prefix("oom_kill ")).and_then(|n| n.trim().parse().ok());
                Ok(count.unwrap_or(0))
            }
            Err(e) if gone(&e) => Ok(0),
            Err(e) => Err(e).doing("read", file),
        }
    }

    fn controller(&self, name: &str) -> Result<Place> {
        if let Some((mount, _)) = self.hierarchies.v1.iter().find(|(_, carried)| carried.contains(&name)) {
            return Ok(Place::V1(mount.join(&self.name)));
        }
        match &self.hierarchies.v2 {
            Some(v2) if v2.controllers.contains(&name) => Ok(Place::V2(v2.mount.join(&self.name))),
            _ => Err(Error::new(
                "limit",
                format_args!("{name} of control group {}", self.name),
                io::Error::new(io::ErrorKind::Unsupported, "this machine has no such control group controller"),
            )),
        }
    }

    fn dirs(&self) -> Vec<PathBuf> {
        let v1 = self.hierarchies.v1.iter().map(|(mount, _)| mount);
        v1.chain(self.hierarchies.v2.iter().map(|v2| &v2.mount)).map(|mount| mount.join(&self.name)).collect()
    }
}

/// Where a controller keeps its files for a group.
enum Place {
    V1(PathBuf),
    V2(PathBuf),
}

impl Place {
    fn dir(&self) -> &Path {
        match self {
            Place::V1(dir) | Place::V2(dir) => dir,
        }
    }
}

fn write(dir: &Path, file: &str, value: &str) -> Result<()> {
    let path = dir.join(file);
    // Not `fs::write`: it would create a missing file, but an absent controller must be an error.
    fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut f| io::Write::write_all(&mut f, value.as_bytes()))
        .doing("write", path)
}

/// A group and its subgroups, parents first.
fn subtree(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        let entries = match fs::read_dir(&dir) {
            Ok(entries) => entries,
            Err(e) if gone(&e) => continue,
            Err(e) => return Err(e).doing("list control group", dir),
        };
        open.extend(entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())).map(|e| e.path()));
        found.push(dir);
    }
    Ok(found)
}

/// Reading a group during its removal fails with ENODEV; after it, with ENOENT.
fn gone(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    struct Group(Cgroup, String);

    impl Group {
        fn new(test: &str) -> Group {
            let group = Hierarchies::detect().unwrap().group(&format!("{}/leaf", Self::parent(test))).unwrap();
            group.create().unwrap();
            group.create().unwrap();
            Group(group, Self::parent(test))
        }

        fn parent(test: &str) -> String {
            format!("ferrovirt-test-{test}-{}", std::process::id())
        }

        fn spawn(&self, script: &str) -> Child {
            let group = self.0.clone();
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            // SAFETY: the test's child only writes to control group files before exec.
            unsafe { command.pre_exec(move || group.attach(0).map_err(io::Error::other)) };
            command.spawn().unwrap()
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            assert!(self.0.kill(Duration::from_secs(10)).unwrap());
            let parent = Hierarchies::detect().unwrap().group(&self.1).unwrap();
            parent.remove(Duration::from_secs(10)).unwrap();
            parent.remove(Duration::ZERO).unwrap();
            assert!(parent.dirs().iter().all(|d| !d.exists()));
        }
    }

    #[test]
    fn all_members_are_killed_children_that_keep_forking_included() {
        let group = Group::new("kill");
        let mut child = group.spawn("while :; do sleep 60 & sleep 0.01; done");
        let deadline = Instant::now() + Duration::from_secs(20);
        while group.0.members().unwrap().len() < 4 {
            assert!(Instant::now() < deadline, "the script does not fork");
            sleep(Duration::from_millis(10));
        }
        assert!(group.0.kill(Duration::from_secs(10)).unwrap());
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        assert!(group.0.members().unwrap().is_empty());
    }

    #[test]
    fn a_memory_limit_kills_and_is_counted() {
        let group = Group::new("memory");
        let limits = Limits { memory_bytes: Some(16 << 20), ..Limits::default() };
        group.0.apply(&limits).unwrap();
        group.0.apply(&Limits { memory_bytes: Some(8 << 20), ..limits }).unwrap();
        group.0.apply(&limits).unwrap();
        assert_eq!(group.0.oom_kills().unwrap(), 0);
        let status = group.spawn("exec tail /dev/zero").wait().unwrap();
        assert_eq!(status.signal(), Some(libc::SIGKILL));
        assert_eq!(group.0.oom_kills().unwrap(), 1);
    }

    #[test]
    fn processes_above_the_limit_cannot_be_made_and_the_processor_is_shared() {
        let group = Group::new("cpu");
        let limits = Limits { cpu_request_milli: Some(100), cpu_milli: Some(100), pids: Some(1), ..Limits::default() };
        group.0.apply(&limits).unwrap();
        assert!(!group.spawn("true | true; exit $?").wait().unwrap().success(), "a second process is one too many");
        let mut busy = group.spawn("while :; do :; done");
        sleep(Duration::from_secs(1));
        assert!(group.0.kill(Duration::from_secs(10)).unwrap());
        busy.wait().unwrap();
        let (Place::V1(dir) | Place::V2(dir)) = group.0.controller("cpu").unwrap();
        let stat = fs::read_to_string(dir.join("cpu.stat")).unwrap();
        let throttled = stat.lines().find_map(|l| l.strip_prefix("nr_throttled ")).unwrap();
        assert!(throttled.parse::<u64>().unwrap() > 0, "{stat}");
    }

    /// As `/proc/self/mountinfo` shows them, with what `cgroup.controllers` of version 2 says.
    #[test]
    fn the_hierarchies_of_a_machine_are_told_from_its_mounts() {
        const UNIFIED: &str = "\
            25 30 0:23 / /sys rw,nosuid shared:7 - sysfs sysfs rw\n\
            30 25 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";
        const V1: &str = "\
            32 25 0:27 / /sys/fs/cgroup ro,nosuid shared:9 - tmpfs tmpfs ro,size=4096k\n\
            33 32 0:28 / /sys/fs/cgroup/systemd rw shared:10 - cgroup cgroup rw,xattr,name=systemd\n\
            35 32 0:30 / /sys/fs/cgroup/cpu,cpuacct rw shared:12 - cgroup cgroup rw,cpu,cpuacct\n\
            36 32 0:31 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n\
            37 32 0:32 / /sys/fs/cgroup/pids rw shared:14 - cgroup cgroup rw,pids\n\
            99 60 0:31 / /var/lib/c/memory rw shared:13 - cgroup cgroup rw,memory\n";
        const HYBRID: &str = "\
            34 32 0:29 / /sys/fs/cgroup/unified rw shared:11 - cgroup2 cgroup2 rw\n\
            36 32 0:31 / /sys/fs/cgroup/memory rw shared:13 - cgroup cgroup rw,memory\n\
            98 60 0:29 / /var/lib/c/unified rw - cgroup2 cgroup2 rw\n";
        // Where a hierarchy is mounted, and its controllers.
        type Mounted = (&'static str, &'static [&'static str]);
        type Row = (&'static str, &'static str, &'static str, &'static [Mounted], Option<Mounted>);
        let table: [Row; 5] = [
            (
                "version 2",
                UNIFIED,
                "cpuset cpu io memory hugetlb pids rdma misc\n",
                &[],
                Some(("/sys/fs/cgroup", &["cpu", "memory", "pids"])),
            ),
            ("version 2 of a container without controllers", UNIFIED, "\n", &[], Some(("/sys/fs/cgroup", &[]))),
            (
                "version 1, one hierarchy mounted twice",
                V1,
                "not read",
                &[
                    ("/sys/fs/cgroup/cpu,cpuacct", &["cpu"]),
                    ("/sys/fs/cgroup/memory", &["memory"]),
                    ("/sys/fs/cgroup/pids", &["pids"]),
                ],
                None,
            ),
            (
                "both",
                HYBRID,
                "cpu pids\n",
                &[("/sys/fs/cgroup/memory", &["memory"])],
                Some(("/sys/fs/cgroup/unified", &["cpu", "pids"])),
            ),
            ("none", "25 30 0:23 / /sys rw,nosuid - sysfs sysfs rw\n", "not read", &[], None),
        ];
        for (case, mounts, controllers, v1, v2) in table {
            let found = Hierarchies::of(mounts::parse(mounts.as_bytes()), |_| Ok(controllers.to_owned())).unwrap();
            let v1: Vec<_> = v1.iter().map(|(mount, carried)| (PathBuf::from(mount), carried.to_vec())).collect();
            let v2 = v2.map(|(mount, carried)| V2 { mount: mount.into(), controllers: carried.to_vec() });
            assert_eq!(found.is_unified(), v1.is_empty() && v2.is_some(), "{case}");
            let has = |controller| {
                v1.iter().any(|(_, carried)| carried.contains(&controller))
                    || v2.iter().any(|v2| v2.controllers.contains(&controller))
            };
            assert!(CONTROLLERS.iter().all(|controller| found.has(controller) == has(*controller)), "{case}");
            assert_eq!(found, Hierarchies { v1, v2 }, "{case}");
        }
    }

    #[test]
    fn where_a_limit_goes_follows_the_hierarchy_of_its_controller() {
        let hybrid = Hierarchies {
            v1: vec![("/v1/memory".into(), vec!["memory"])],
            v2: Some(V2 { mount: "/v2".into(), controllers: vec!["cpu", "memory"] }),
        };
        let group = hybrid.group("a/b").unwrap();
        let dir = |controller| group.controller(controller).map(|place| place.dir().to_owned()).ok();
        assert_eq!(dir("memory"), Some("/v1/memory/a/b".into()), "the kernel gives a controller to one hierarchy only");
        assert_eq!(dir("cpu"), Some("/v2/a/b".into()));
        assert_eq!(dir("pids"), None);
        assert_eq!(group.dirs(), [Path::new("/v1/memory/a/b"), Path::new("/v2/a/b")]);
    }

    #[test]
    fn names_that_climb_are_refused() {
        let hierarchies = Hierarchies::detect().unwrap();
        for name in ["", "/a", "a//b", "../a", "a/.."] {
            assert!(hierarchies.group(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_limit_without_its_controller_is_refused_and_a_wish_is_not() {
        let group = Hierarchies { v1: Vec::new(), v2: None }.group("x").unwrap();
        let wish = Limits { cpu_request_milli: Some(1), pids: Some(1), ..Limits::default() };
        group.apply(&wish).unwrap();
        let error = group.apply(&Limits { memory_bytes: Some(1), ..wish }).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
        assert_eq!(error.to_string(), "cannot limit memory of control group x");
    }
}
