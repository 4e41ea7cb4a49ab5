//! The shim: one small process per Pod that outlives the runner that started it. It holds the Pod's namespaces, starts
//! its containers, records their state and stores their output.
//!
//! It has one thread and no runtime, runs in its own session, and exits when its last container has. The runner
//! communicates with it through files and two signals: SIGTERM asks the containers to stop, and what does not stop is
//! killed through its cgroup, which the shim then notices.

mod dev;
pub(crate) mod launch;
pub(crate) mod log;
pub(crate) mod privileges;
mod rootfs;
mod run;
mod users;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use hostfs::process::ProcessId;
use hostfs::{atomic, ns};
use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::error::{Error, chain};
use crate::paths::PodPaths;
use crate::record::ShimSpec;
use crate::sandbox::SHIM_GROUP;

/// The subcommand that starts a shim; the Pod's directory follows.
pub const SUBCOMMAND: &str = "shim";

/// Why a container's program could not be started.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StartError {
    #[error(transparent)]
    Host(#[from] hostfs::Error),
    #[error("cannot {doing} {path}")]
    Io {
        doing: &'static str,
        path: PathBuf,
        #[source]
        err: io::Error,
    },
    #[error("cannot {doing}")]
    Step {
        doing: &'static str,
        #[source]
        err: io::Error,
    },
    #[error("the image at {0} is not open")]
    NoImage(PathBuf),
    #[error("the command is empty")]
    NoProgram,
    #[error("executable {0:?} not found in $PATH")]
    ProgramNotFound(String),
}

impl StartError {
    fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> StartError {
        let path = path.into();
        move |err| StartError::Io { doing, path, err }
    }

    fn step(doing: &'static str, err: Errno) -> StartError {
        StartError::Step { doing, err: err.into() }
    }
}

/// Runs the shim. It forks, so call it before the process has a second thread. The calling process exits once the shim
/// is set up or has failed.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter();
    let (Some(dir), None) = (args.next(), args.next()) else {
        eprintln!("usage: {SUBCOMMAND} POD-DIRECTORY");
        return ExitCode::from(2);
    };
    let ready = match detach() {
        Ok(ready) => ready,
        Err(e) => {
            eprintln!("cannot leave the session of who started the shim: {e}");
            return ExitCode::FAILURE;
        }
    };
    match hold(PodPaths::at(PathBuf::from(dir)), ready) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", chain(&error));
            ExitCode::FAILURE
        }
    }
}

/// Signals the starting process that the shim is up.
struct Ready(File);

impl Ready {
    fn tell(mut self) {
        let _ = self.0.write_all(b"+"); // it may have been killed meanwhile
    }
}

/// Becomes a grandchild in its own session: the starting process may exit, its terminal may close, and nobody has to
/// wait for this process.
fn detach() -> io::Result<Ready> {
    let (told, ready) = pipe_with(PipeFlags::CLOEXEC)?;
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => drop(told),
        _ => {
            drop(ready);
            let told = File::from(told).read(&mut [0]).is_ok_and(|n| n == 1);
            // SAFETY: exits the parent at once; the child owns its buffers now.
            unsafe { libc::_exit(i32::from(!told)) }
        }
    }
    rustix::process::setsid()?;
    // Not a session leader, so that it cannot acquire a controlling terminal by accident.
    // SAFETY: the process has one thread.
    match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {}
        // SAFETY: as above.
        _ => unsafe { libc::_exit(0) },
    }
    rustix::process::chdir("/")?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    close_inherited(&ready)?;
    Ok(Ready(ready.into()))
}

/// Closes inherited descriptors: one of the supervisor's pipes, if kept open, would prevent it from seeing EOF.
fn close_inherited(keep: &OwnedFd) -> io::Result<()> {
    let keep = keep.as_raw_fd().unsigned_abs();
    for (first, last) in [(3, keep - 1), (keep + 1, libc::c_uint::MAX)] {
        if first > last {
            continue;
        }
        // SAFETY: nothing in this process owns a descriptor above the standard ones yet, except for the one kept.
        if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

fn hold(paths: PodPaths, ready: Ready) -> Result<(), Error> {
    let Some(_lock) = lock(&paths.shim_lock())? else {
        ready.tell(); // another process is the Pod's shim
        return Ok(());
    };
    let _ = rustix::thread::set_name(c"ferrovirt-shim");
    let hierarchies = hostfs::cgroup::Hierarchies::detect()?;
    // Leave the cgroup of the starting process, which may be killed as a whole.
    join_group(&hierarchies.group(SHIM_GROUP)?)?;
    let spec: ShimSpec = atomic::read_json(paths.spec())?
        .ok_or_else(|| Error::io("find", paths.spec())(io::ErrorKind::NotFound.into()))?;
    ns::enter_netns(ns::open_netns(paths.netns())?)?;
    ns::unshare(ns::Kinds::NEWUTS | ns::Kinds::NEWIPC)?;
    rustix::system::sethostname(spec.hostname.as_bytes())
        .map_err(|e| Error::io("set the host name of", paths.dir())(e.into()))?;
    let shim = run::Shim::new(paths.clone(), spec, hierarchies)?;
    // From here on it can be asked to stop, so record the process.
    atomic::write_json(paths.shim(), &ProcessId::current()?)?;
    ready.tell();
    shim.run()
}

/// The cgroup is shared, and removed by whoever considers itself the last user.
fn join_group(group: &hostfs::cgroup::Cgroup) -> Result<(), hostfs::Error> {
    const ATTEMPTS: usize = 5;
    for _ in 1..ATTEMPTS {
        match group.create().and_then(|()| group.attach(0)) {
            Err(e) if e.is_not_found() || e.errno() == Some(libc::ENODEV) => {}
            other => return other,
        }
    }
    group.create().and_then(|()| group.attach(0))
}

/// Takes the Pod's lock for the lifetime of the process. `None` if another shim has it, or if the Pod is gone: a start
/// requested by a process that was killed right afterwards may arrive late.
pub(crate) fn lock(path: &Path) -> Result<Option<File>, Error> {
    let failed = || Error::io("lock", path);
    let file = match File::options().write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed())?,
    };
    // Checking whether the lock is held takes it for a moment.
    let deadline = Instant::now() + Duration::from_secs(1);
    loop {
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(e) => return Err(failed()(e.into())),
        }
    }
    // The locked file may have been removed with its Pod meanwhile.
    let same = std::fs::metadata(path).is_ok_and(|there| file.metadata().is_ok_and(|here| here.ino() == there.ino()));
    Ok(same.then_some(file))
}
