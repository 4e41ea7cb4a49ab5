//! Starts one container: a process that is PID 1 of its own PID namespace, in its own mount namespace, and in the
//! network, UTS and IPC namespaces of the Pod.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use hostfs::cgroup::Cgroup;
use hostfs::mounts;
use rustix::fs::{Access, AtFlags, CWD, Gid, Mode, OFlags, Uid};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, Signal, set_parent_process_death_signal, setsid, umask};
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use super::{StartError, privileges, rootfs};
use crate::error::chain;
use crate::images::{Held, Reopened};
use crate::paths::PodPaths;
use crate::record::{ContainerSpec, ShimSpec};

/// What a container's first process needs before it executes the container's program.
pub(super) struct Launch<'a> {
    pub(super) paths: &'a PodPaths,
    pub(super) pod: &'a ShimSpec,
    pub(super) container: &'a ContainerSpec,
    pub(super) images: &'a BTreeMap<PathBuf, Held>,
    pub(super) group: &'a Cgroup,
}

impl Launch<'_> {
    /// An image of this Pod, opened in the container's mount namespace.
    pub(super) fn image(&self, dir: &Path) -> Result<Reopened, StartError> {
        let held = self.images.get(dir).ok_or_else(|| StartError::NoImage(dir.to_owned()))?;
        held.reopen().map_err(StartError::io("open the image at", dir))
    }
}

pub(super) struct Started {
    pub(super) pid: Pid,
    /// Standard output and standard error: one pipe, which preserves the order of lines.
    pub(super) output: OwnedFd,
}

/// Starts the container and waits until its program runs. Otherwise the error is the message from the child.
pub(super) fn start(launch: &Launch<'_>) -> Result<Started, String> {
    let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|e| format!("cannot make a pipe: {e}"));
    let ((output, child_output), (trouble, child_trouble)) = (pipe()?, pipe()?);

    let flags = libc::CLONE_NEWPID | libc::CLONE_NEWNS | libc::SIGCHLD;
    // SAFETY: without a separate stack this behaves like fork. The shim has one thread, so no other thread holds a lock
    // that the child would inherit.
    let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) };
    if pid == 0 {
        let error = match become_container(launch, &child_output) {
            Ok(never) => match never {},
            Err(error) => chain(&error),
        };
        let _ = File::from(child_trouble).write_all(error.as_bytes());
        // SAFETY: exits the child without running the shim's exit handlers.
        unsafe { libc::_exit(128) }
    }
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).filter(|_| pid > 0);
    let pid = pid.ok_or_else(|| format!("cannot make a process: {}", io::Error::last_os_error()))?;
    drop((child_output, child_trouble));

    // Returns when exec closes the child's end, or when the child exits.
    let mut message = String::new();
    let _ = File::from(trouble).take(4096).read_to_string(&mut message);
    if message.is_empty() {
        return Ok(Started { pid, output });
    }
    let _ = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty());
    Err(message)
}

enum Never {}

fn become_container(launch: &Launch<'_>, output: &OwnedFd) -> Result<Never, StartError> {
    let container = launch.container;
    launch.group.attach(0)?;
    setsid().map_err(|e| StartError::step("leave the shim's session", e))?;
    match fs::write("/proc/self/oom_score_adj", container.oom_score_adj.to_string()) {
        // A node that is itself confined cannot protect its Pods more than it is protected.
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {}
        other => other.map_err(StartError::io("write", "/proc/self/oom_score_adj"))?,
    }

    umask(Mode::empty());
    mounts::make_slave_recursive("/")?;
    let root = rootfs::build(launch)?;
    redirect(container, output)?;
    mounts::pivot_root(root)?;
    umask(Mode::from_raw_mode(0o022));

    // Created if missing, as container runtimes do.
    let _ = fs::create_dir_all(&container.cwd);
    rustix::process::chdir(&container.cwd)
        .map_err(|e| StartError::io("enter working directory", &container.cwd)(e.into()))?;
    privileges::set_limits().map_err(|e| StartError::Step { doing: "set resource limits", err: e })?;
    privileges::assume(&container.credentials)
        .map_err(|e| StartError::Step { doing: "become the container's user", err: e })?;
    // After the change of user, which clears it. Without the shim nobody would reap the container.
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|e| StartError::step("tie the container to its shim", e))?;
    execute(&container.argv, &container.env)
}

/// The container's user owns its output, so that `/dev/stdout` can be opened.
fn redirect(container: &ContainerSpec, output: &OwnedFd) -> Result<(), StartError> {
    let failed = |e| StartError::step("connect the container's output", e);
    let owner = (Uid::from_raw(container.credentials.uid), Gid::from_raw(container.credentials.gid));
    rustix::fs::fchown(output, Some(owner.0), Some(owner.1)).map_err(failed)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDONLY, Mode::empty()).map_err(failed)?;
    dup2_stdin(null.as_fd()).map_err(failed)?;
    dup2_stdout(output.as_fd()).map_err(failed)?;
    dup2_stderr(output.as_fd()).map_err(failed)
}

/// Replaces the calling process with the program, with default signal handling.
fn execute(argv: &[String], env: &BTreeMap<String, String>) -> Result<Never, StartError> {
    let (program, path) = find_program(argv, env)?;
    unblock_signals().map_err(|err| StartError::Step { doing: "unblock signals", err })?;
    let err = Command::new(&path).arg0(program).args(&argv[1..]).env_clear().envs(env).exec();
    Err(StartError::Io { doing: "execute", path, err })
}

/// The shim blocks SIGTERM and reads it from a descriptor; a program that inherited the mask would never receive it.
fn unblock_signals() -> io::Result<()> {
    // SAFETY: the set is initialised by sigemptyset before its use and outlives the call.
    let result = unsafe {
        let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(none.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Like [`execute`], for a process that joins a container.
pub(crate) fn replace_process(argv: &[String], env: &BTreeMap<String, String>) -> StartError {
    match execute(argv, env) {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn find_program<'a>(argv: &'a [String], env: &BTreeMap<String, String>) -> Result<(&'a str, PathBuf), StartError> {
    let name = argv.first().map(String::as_str).filter(|n| !n.is_empty()).ok_or(StartError::NoProgram)?;
    if name.contains('/') {
        return Ok((name, PathBuf::from(name)));
    }
    let search = env.get("PATH").map_or("", String::as_str);
    let executable =
        |path: &PathBuf| path.is_file() && rustix::fs::accessat(CWD, path, Access::EXEC_OK, AtFlags::EACCESS).is_ok();
    let found = search.split(':').filter(|d| !d.is_empty()).map(|d| Path::new(d).join(name)).find(executable);
    found.map(|path| (name, path)).ok_or_else(|| StartError::ProgramNotFound(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_looked_for_in_the_containers_path() {
        let env = |path: &str| BTreeMap::from([("PATH".to_owned(), path.to_owned())]);
        let argv = |name: &str| vec![name.to_owned()];
        let found = |name: &str, path: &str| find_program(&argv(name), &env(path)).map(|(_, p)| p);
        assert_eq!(found("sh", "/nowhere:/bin").unwrap(), Path::new("/bin/sh"));
        assert_eq!(found("./sh", "").unwrap(), Path::new("./sh"));
        assert!(matches!(found("passwd", "/etc"), Err(StartError::ProgramNotFound(_))), "not executable");
        assert!(matches!(find_program(&[], &env("/bin")), Err(StartError::NoProgram)));
    }
}
