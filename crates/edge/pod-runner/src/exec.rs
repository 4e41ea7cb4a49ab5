//! Running commands in a Pod's namespaces, and reading its logs.

use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Output, Stdio};

use hostfs::atomic;
use hostfs::cgroup::Hierarchies;
use podstate::ContainerRecord;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{ThreadNameSpaceType, move_into_thread_name_spaces};

use crate::error::{Error, chain};
use crate::paths::{PodPaths, PodUid};
use crate::record::{ContainerSpec, ShimSpec, process_of};
use crate::shim::launch::replace_process;
use crate::shim::log::older;
use crate::shim::privileges;

/// The subcommand that runs a command in a Pod; the Pod's directory, the container and the command follow.
pub const SUBCOMMAND: &str = "pod-exec";

/// Runs a command in a container as its user and returns its output. `exe` is the program whose `main` calls [`main`]
/// for [`SUBCOMMAND`].
pub fn exec_in_pod(
    exe: &Path,
    pods_dir: &Path,
    uid: &str,
    container: &str,
    argv: &[impl AsRef<std::ffi::OsStr>],
) -> Result<Output, Error> {
    let paths = PodPaths::new(pods_dir, &uid.parse::<PodUid>()?);
    Command::new(exe)
        .arg(SUBCOMMAND)
        .arg(paths.dir())
        .arg(container)
        .args(argv)
        .stdin(Stdio::null())
        .output()
        .map_err(Error::io("execute", exe))
}

/// The output of a container, starting with the older part if it still exists.
pub fn logs(pods_dir: &Path, uid: &str, container: &str) -> Result<Vec<u8>, Error> {
    let path = PodPaths::new(pods_dir, &uid.parse::<PodUid>()?).log(container);
    let mut text = fs::read(older(&path)).unwrap_or_default();
    text.extend(fs::read(&path).map_err(Error::io("read", path))?);
    Ok(text)
}

/// The process of [`exec_in_pod`]: joins the container, runs the command and exits with its status. It forks, so call
/// it before the process has a second thread.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let [dir, container, argv @ ..] = &args[..] else {
        eprintln!("usage: {SUBCOMMAND} POD-DIRECTORY CONTAINER COMMAND [ARGUMENT…]");
        return ExitCode::from(2);
    };
    let argv: Vec<String> = argv.iter().map(|a| a.to_string_lossy().into_owned()).collect();
    match join(&PodPaths::at(dir.into()), &container.to_string_lossy()).and_then(|spec| run(&spec, &argv)) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}", chain(&error));
            ExitCode::from(126)
        }
    }
}

/// Joins the container's cgroup and the namespaces of its first process.
fn join(paths: &PodPaths, name: &str) -> Result<ContainerSpec, Error> {
    let uid = paths.dir().file_name().unwrap_or_default().to_string_lossy().into_owned();
    let not_running = || Error::NotRunning { uid: uid.clone(), container: name.to_owned() };
    let spec: ShimSpec = atomic::read_json(paths.spec())?.ok_or_else(not_running)?;
    let container = spec.all().find(|c| c.name == name).ok_or_else(not_running)?.clone();
    let record: Option<ContainerRecord> = atomic::read_json(paths.status(&container.name))?;
    let process = record.and_then(|record| process_of(&record.stage)).ok_or_else(not_running)?;
    let pidfd = process.open()?.ok_or_else(not_running)?;

    Hierarchies::detect()?.group(&spec.cgroup_of(&container))?.attach(0)?;
    let namespaces = ThreadNameSpaceType::MOUNT
        | ThreadNameSpaceType::PROCESS_ID
        | ThreadNameSpaceType::NETWORK
        | ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME
        | ThreadNameSpaceType::INTER_PROCESS_COMMUNICATION;
    use std::os::fd::AsFd;
    move_into_thread_name_spaces(pidfd.as_fd(), namespaces)
        .map_err(|e| Error::io("enter the namespaces of", paths.dir())(e.into()))?;
    Ok(container)
}

/// Forks, since only a child is in the joined PID namespace.
fn run(container: &ContainerSpec, argv: &[String]) -> Result<ExitCode, Error> {
    // SAFETY: the process has one thread.
    let pid = match unsafe { libc::fork() } {
        -1 => return Err(Error::io("start a process in", &container.name)(std::io::Error::last_os_error())),
        0 => {
            let _ = rustix::process::chdir(&container.cwd);
            let error = match privileges::assume(&container.credentials) {
                Ok(()) => chain(&replace_process(argv, &container.env)),
                Err(error) => format!("cannot become the container's user: {error}"),
            };
            eprintln!("{error}");
            // SAFETY: exits the child without running the parent's exit handlers.
            unsafe { libc::_exit(127) }
        }
        pid => Pid::from_raw(pid),
    };
    let status = waitpid(pid, WaitOptions::empty()).ok().flatten().map(|(_, status)| status);
    let code = status.and_then(|s| s.exit_status().or(s.terminating_signal().map(|signal| 128 + signal)));
    Ok(ExitCode::from(code.and_then(|c| u8::try_from(c).ok()).unwrap_or(255)))
}
