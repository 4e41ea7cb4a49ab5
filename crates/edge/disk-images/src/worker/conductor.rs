//! The process between the parent and the stages: it is root, and looks at nothing that comes from outside.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use image_format::Format;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::target::{Prepared, scratch_file, takes_direct_io};
use super::{Flags, Says, format_named, read_job, tell};
use crate::job::{ContentType, Done, Event, Failure, Job, Source};

/// The longest line of a stage, and how much of qemu-img's complaints is kept.
const LINE_MAX: usize = 64 * 1024;
const COMPLAINT_MAX: usize = 2048;
/// qemu-img tells only of whole per cents.
const CONVERT_PATIENCE: u32 = 3;
/// A stage that has closed its output ends soon.
const END_LIMIT: Duration = Duration::from_secs(10);

pub(super) fn main(mut flags: Flags) -> io::Result<()> {
    let job = match read_job() {
        Ok(job) => job,
        Err(err) => return tell(Event::Failed(Failure::bad_job(format!("the job cannot be read: {err}")))),
    };
    let target = flags.target()?;
    let event = match import(&job, target, flags) {
        Ok(done) => Event::Done(done),
        Err(failure) => Event::Failed(failure),
    };
    tell(event)
}

fn import(job: &Job, target: OwnedFd, flags: Flags) -> Result<Done, Failure> {
    let prepared = Prepared::open(target, job)?;
    let result = fill(job, &prepared, flags).and_then(|written| {
        tell(Event::Stage("sync".to_owned())).map_err(gone)?;
        let failed = |err| Failure::machine(format!("cannot finish the volume: {err}"));
        prepared.finish(written, job.size).map_err(failed)
    });
    match result {
        Ok(virtual_size) => {
            let format = match job.content_type {
                ContentType::Kubevirt => "raw",
                ContentType::Archive => "archive",
            };
            Ok(Done { virtual_size, format: format.to_owned(), preallocated: job.preallocate })
        }
        Err(failure) => {
            prepared.discard();
            Err(failure)
        }
    }
}

/// Runs the stages; returns how far the target is filled.
fn fill(job: &Job, prepared: &Prepared, flags: Flags) -> Result<u64, Failure> {
    if matches!(job.source, Source::Blank {}) {
        return Ok(0);
    }
    let scratch = match (job.content_type, &flags.scratch) {
        (ContentType::Kubevirt, Some(directory)) => {
            let failed = |err| Failure::machine(format!("cannot make the scratch file: {err}"));
            Some(scratch_file(directory).map_err(failed)?)
        }
        _ => None,
    };
    tell(Event::Stage("transfer".to_owned())).map_err(gone)?;
    let mut fetch = Stage::new("fetch", job, prepared)?;
    fetch.give("--scratch", scratch.as_ref());
    fetch.give("--upload", flags.upload.as_ref());
    let patience = Duration::from_secs(job.stall_seconds.max(1));
    let mut last = None;
    let ended = fetch.run(patience, |line| {
        let said: Says = serde_json::from_slice(line)?;
        match said {
            Says::Progress(percent) => tell(Event::Progress(percent)).map(|()| false),
            Says::Stage(stage) => tell(Event::Stage(stage)).map(|()| true),
            Says::Moved(_) => Ok(true),
            Says::Written(_) | Says::Convert { .. } | Says::Failed(_) => {
                last = Some(said);
                Ok(true)
            }
        }
    })?;
    match last {
        Some(Says::Written(bytes)) => Ok(bytes),
        Some(Says::Failed(failure)) => Err(failure),
        Some(Says::Convert { format, virtual_size }) => {
            let format = format_named(&format).filter(|_| virtual_size <= job.size);
            let (format, scratch) = format.zip(scratch).ok_or_else(|| Failure::machine("the fetching stage lied"))?;
            prepared.make_room(virtual_size).map_err(|err| Failure::of_target("cannot make room", &err))?;
            convert(job, prepared, &scratch, format, patience)?;
            Ok(virtual_size)
        }
        _ => Err(Failure::machine(format!("the fetching stage was lost ({}): {}", ended.status, ended.complaint))),
    }
}

fn convert(
    job: &Job,
    prepared: &Prepared,
    scratch: &OwnedFd,
    format: Format,
    patience: Duration,
) -> Result<(), Failure> {
    tell(Event::Stage("convert".to_owned())).map_err(gone)?;
    // Without its secrets.
    let job = Job { source: Source::Blank {}, ..job.clone() };
    let mut stage = Stage::new("convert", &job, prepared)?;
    stage.give("--scratch", Some(scratch));
    stage.command.args(["--format", format.driver()]);
    stage.command.args(["--cache", if takes_direct_io(prepared.content()) { "none" } else { "writeback" }]);
    let ended = stage.run(patience * CONVERT_PATIENCE, |line| match percent(line) {
        Some(percent) => tell(Event::Progress(percent)).map(|()| true),
        None => Ok(false),
    })?;
    if ended.status.success() {
        return Ok(());
    }
    Err(Failure::data(format!(
        "Unable to convert source data to target format: Conversion to Raw failed: could not convert image to raw: {} ({})",
        ended.complaint.trim(),
        ended.status
    )))
}

/// `    (12.34/100%)`
fn percent(line: &[u8]) -> Option<f64> {
    let text = std::str::from_utf8(line).ok()?;
    text.trim().strip_prefix('(')?.split('/').next()?.parse().ok()
}

fn gone(err: io::Error) -> Failure {
    Failure::machine(format!("the parent has gone: {err}"))
}

struct Stage {
    name: &'static str,
    command: Command,
    job: Vec<u8>,
    inherited: Vec<i32>,
}

struct Ended {
    status: std::process::ExitStatus,
    complaint: String,
}

impl Stage {
    fn new(name: &'static str, job: &Job, prepared: &Prepared) -> Result<Self, Failure> {
        let mut text = serde_json::to_vec(job).map_err(|err| Failure::bad_job(err.to_string()))?;
        text.push(b'\n');
        let mut command = Command::new("/proc/self/exe");
        command.args([crate::SUBCOMMAND, "--stage", name]);
        command.args(["--zeros", if prepared.zeros() { "yes" } else { "no" }]);
        let mut stage = Stage { name, command, job: text, inherited: Vec::new() };
        stage.give("--target", Some(prepared.content()));
        Ok(stage)
    }

    fn give(&mut self, flag: &str, descriptor: Option<&OwnedFd>) {
        if let Some(descriptor) = descriptor.map(|fd| fd.as_fd().as_raw_fd()) {
            self.command.args([flag, &descriptor.to_string()]);
            self.inherited.push(descriptor);
        }
    }

    /// Runs the stage to its end. `heard` is given each line, and says whether it is a sign of life.
    fn run(mut self, patience: Duration, mut heard: impl FnMut(&[u8]) -> io::Result<bool>) -> Result<Ended, Failure> {
        let failed = |name: &str| {
            let name = name.to_owned();
            move |err: io::Error| Failure::machine(format!("the stage {name} cannot be run: {err}"))
        };
        self.command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let inherited = std::mem::take(&mut self.inherited);
        // SAFETY: between fork and exec the closure only makes system calls.
        unsafe {
            std::os::unix::process::CommandExt::pre_exec(&mut self.command, move || {
                inherited.iter().try_for_each(|fd| crate::parent::inherit(*fd))
            });
        }
        let mut running = Running::start(self.command).map_err(failed(self.name))?;
        running.stdin.write_all(&self.job).map_err(failed(self.name))?;
        let (mut out, mut err) = (running.out()?, running.err()?);
        let (mut line, mut complaint) = (Vec::new(), Vec::new());
        let (mut out_open, mut err_open) = (true, true);
        let mut last_sign = Instant::now();
        let stdin = io::stdin();
        while out_open || err_open {
            let left = patience.checked_sub(last_sign.elapsed()).ok_or_else(|| {
                Failure::stalled(format!(
                    "Unable to process data: no progress for {} s: the stage {} was ended",
                    patience.as_secs(),
                    self.name
                ))
            })?;
            let timeout = Timespec { tv_sec: left.as_secs().cast_signed(), tv_nsec: 1_000_000 };
            // The end of a pipe is reported for ever: what has ended is not asked.
            let pipes = [(stdin.as_fd(), true), (out.as_fd(), out_open), (err.as_fd(), err_open)];
            let open = pipes.into_iter().filter(|(_, open)| *open);
            let mut asked: Vec<PollFd<'_>> = open.map(|(fd, _)| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
            match poll(&mut asked, Some(&timeout)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(err) => return Err(failed(self.name)(err.into())),
            }
            let ready = |fd: &File| {
                asked.iter().any(|one| one.as_fd().as_raw_fd() == fd.as_raw_fd() && !one.revents().is_empty())
            };
            let (parent_gone, says, complains) = (!asked[0].revents().is_empty(), ready(&out), ready(&err));
            // Nothing is ever sent there: it has been closed, with the parent.
            if parent_gone {
                return Err(gone(io::ErrorKind::BrokenPipe.into()));
            }
            if out_open && says {
                out_open = lines(&mut out, &mut line, |line| {
                    if heard(line)? {
                        last_sign = Instant::now();
                    }
                    Ok(())
                })
                .map_err(failed(self.name))?;
            }
            if err_open && complains {
                err_open = keep(&mut err, &mut complaint).map_err(failed(self.name))?;
            }
        }
        let status = running.end().map_err(failed(self.name))?;
        Ok(Ended { status, complaint: String::from_utf8_lossy(&complaint).into_owned() })
    }
}

/// A stage that is killed with this value, and with everything that it has started.
struct Running {
    child: Child,
    stdin: ChildStdin,
}

impl Running {
    fn start(mut command: Command) -> io::Result<Self> {
        in_new_pid_namespace(|| {
            let mut child = command.spawn()?;
            let stdin = child.stdin.take().ok_or_else(|| io::Error::other("the stage has no input"))?;
            Ok(Running { child, stdin })
        })
    }

    fn out(&mut self) -> Result<File, Failure> {
        let pipe = self.child.stdout.take().ok_or_else(|| Failure::machine("the stage has no output"))?;
        Ok(File::from(OwnedFd::from(pipe)))
    }

    fn err(&mut self) -> Result<File, Failure> {
        let pipe = self.child.stderr.take().ok_or_else(|| Failure::machine("the stage has no output"))?;
        Ok(File::from(OwnedFd::from(pipe)))
    }

    fn end(&mut self) -> io::Result<std::process::ExitStatus> {
        let deadline = Instant::now() + END_LIMIT;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        self.child.kill()?;
        self.child.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What `spawn` starts is the first process of a namespace of its own: it sees no other process, and all that it starts ends with it.
fn in_new_pid_namespace<T>(spawn: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    let own = File::open("/proc/self/ns/pid")?;
    // SAFETY: no memory is involved; this process itself stays where it is.
    if unsafe { libc::unshare(libc::CLONE_NEWPID) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let spawned = spawn();
    // The namespace is used up when its first process ends: the next stage gets another.
    // SAFETY: as above; the descriptor is open.
    if unsafe { libc::setns(own.as_raw_fd(), libc::CLONE_NEWPID) } != 0 {
        return Err(io::Error::last_os_error());
    }
    spawned
}

/// Reads what is there and hands out the lines, which qemu-img ends with carriage returns. `false` at the end.
fn lines(from: &mut File, line: &mut Vec<u8>, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    let count = from.read(&mut buffer)?;
    for byte in &buffer[..count] {
        match byte {
            b'\n' | b'\r' if line.is_empty() => {}
            b'\n' | b'\r' => {
                each(line)?;
                line.clear();
            }
            _ if line.len() < LINE_MAX => line.push(*byte),
            _ => return Err(io::Error::other("it says too much")),
        }
    }
    Ok(count > 0)
}

/// Keeps the first part of what comes, and passes it on to the log. `false` at the end.
fn keep(from: &mut File, kept: &mut Vec<u8>) -> io::Result<bool> {
    let mut buffer = [0; 4096];
    let count = from.read(&mut buffer)?;
    let room = COMPLAINT_MAX.saturating_sub(kept.len()).min(count);
    kept.extend(&buffer[..room]);
    let _ = io::stderr().write_all(&buffer[..count]);
    Ok(count > 0)
}
