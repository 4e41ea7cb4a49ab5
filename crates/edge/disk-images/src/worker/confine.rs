//! What a stage gives up before it looks at anything from outside.
//!
//! Each of these holds by itself: an own user without capabilities, limits, no other network (for what converts), a filter of system calls,
//! and Landlock: only the given files can be opened. An old kernel may lack the last one; the rest stays.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};
use rustix::process::{Resource, Rlimit};

/// Nobody else's, so that a stage has no part in anybody's files or processes. Of the range that Debian keeps free.
pub(super) const WORKER_UID: u32 = 65_531;
/// Owner of the disks of guests.
pub(super) const GUEST_UID: u32 = 107;

#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) memory: u64,
    pub(super) cpu_seconds: u64,
    pub(super) file: u64,
}

pub(super) struct Confinement<'a> {
    pub(super) uid: u32,
    pub(super) limits: Limits,
    pub(super) network: bool,
    /// Whether it may run a program.
    pub(super) exec: bool,
    /// What can be read by path; what is missing is left out.
    pub(super) readable: &'a [&'a str],
    /// Files and directories that are written to by path.
    pub(super) writable: &'a [BorrowedFd<'a>],
    /// Files that are read by path.
    pub(super) sources: &'a [BorrowedFd<'a>],
}

impl Confinement<'_> {
    /// Applies everything. The process must have one thread: most of this holds for threads.
    pub(super) fn enter(&self) -> io::Result<()> {
        if !self.network {
            // SAFETY: no memory is involved. An empty network: not even its loopback is up.
            checked("leave the network", unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWIPC) })?;
        }
        self.limit()?;
        self.become_nobody()?;
        end_with_parent()?;
        // SAFETY: no memory is involved.
        checked("give up new privileges", unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) })?;
        match self.landlock() {
            Ok(RulesetStatus::NotEnforced) => {
                tracing::warn!("this kernel has no Landlock: images are read with less protection")
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "Landlock cannot be used: images are read with less protection"),
        }
        super::seccomp::install(self.network, self.exec)
    }

    fn limit(&self) -> io::Result<()> {
        let Limits { memory, cpu_seconds, file } = self.limits;
        let limits = [
            (Resource::As, memory),
            (Resource::Cpu, cpu_seconds),
            (Resource::Fsize, file),
            (Resource::Core, 0),
            (Resource::Nofile, 256),
        ];
        for (resource, limit) in limits {
            rustix::process::setrlimit(resource, Rlimit { current: Some(limit), maximum: Some(limit) })?;
        }
        // A write beyond the limit is an error with a sentence, not a death.
        // SAFETY: ignoring a signal runs no code of ours.
        match unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) } {
            libc::SIG_ERR => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Leaving root drops all capabilities, too.
    fn become_nobody(&self) -> io::Result<()> {
        let uid = self.uid;
        // SAFETY: no groups are read from the pointer, since their number is 0.
        checked("leave the groups", unsafe { libc::setgroups(0, std::ptr::null()) })?;
        // SAFETY: no memory is involved.
        checked("change the group", unsafe { libc::setresgid(uid, uid, uid) })?;
        // SAFETY: as above.
        checked("change the user", unsafe { libc::setresuid(uid, uid, uid) })
    }

    fn landlock(&self) -> Result<RulesetStatus, RulesetError> {
        let abi = ABI::V6;
        let read = AccessFs::ReadFile | AccessFs::ReadDir;
        let look = if self.exec { read | AccessFs::Execute } else { read };
        let devices = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeSock | AccessFs::MakeFifo;
        let write = AccessFs::from_all(abi) & !(devices | AccessFs::Execute);
        let file: BitFlags<AccessFs> =
            AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
        let mut rules = Ruleset::default()
            .set_compatibility(CompatLevel::BestEffort)
            .handle_access(AccessFs::from_all(abi))?
            .handle_access(AccessNet::BindTcp)?
            .scope(Scope::from_all(abi))?
            .create()?;
        for path in self.readable {
            if let Ok(fd) = PathFd::new(path) {
                let allowed = match *path {
                    "/dev/null" => AccessFs::ReadFile | AccessFs::WriteFile,
                    _ if is_directory(fd.as_fd()) => look,
                    _ => AccessFs::ReadFile.into(),
                };
                rules = rules.add_rule(PathBeneath::new(fd, allowed))?;
            }
        }
        for fd in self.writable {
            let allowed = if is_directory(*fd) { write } else { file };
            rules = rules.add_rule(PathBeneath::new(*fd, allowed))?;
        }
        for fd in self.sources {
            rules = rules.add_rule(PathBeneath::new(*fd, AccessFs::ReadFile))?;
        }
        Ok(rules.restrict_self()?.ruleset)
    }
}

fn is_directory(fd: BorrowedFd<'_>) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir())
}

/// The kernel kills this process when the parent ends. A change of the user takes that back, so it comes after it.
fn end_with_parent() -> io::Result<()> {
    // SAFETY: no memory is involved.
    checked("tie this process to its parent", unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
}

fn checked(what: &str, result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        return Ok(());
    }
    let err = io::Error::last_os_error();
    Err(io::Error::new(err.kind(), format!("cannot {what}: {err}")))
}
