//! The hidden subcommand: a conductor and the stages that it starts.
//!
//! ```text
//!   import-worker                 reads the job; prepares and finishes the target; watches the stages
//!     ├─ --stage fetch            network or upload → target, or scratch file
//!     └─ --stage convert          scratch file → target, by qemu-img
//! ```
//!
//! Each stage is a process of its own in a PID namespace of its own, which confines itself before it looks at anything.

mod conductor;
mod confine;
mod convert;
mod fetch;
mod seccomp;
mod target;

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::process::ExitCode;

use image_format::Format;
use serde::{Deserialize, Serialize};

use crate::job::{Event, Failure, Job};

/// A job with its certificates.
const JOB_MAX: u64 = 4 << 20;

/// What a stage says to the conductor: a line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Says {
    Progress(f64),
    Stage(String),
    /// So many more bytes have come.
    Moved(u64),
    /// The target is filled up to here.
    Written(u64),
    /// The scratch file holds an image.
    Convert {
        format: String,
        virtual_size: u64,
    },
    Failed(Failure),
}

/// Runs the subcommand; `args` are those after its name.
pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(err) => {
            tracing::error!(error = %err, "the import worker failed");
            ExitCode::FAILURE
        }
    }
}

fn run(args: impl Iterator<Item = OsString>) -> io::Result<()> {
    let mut flags = Flags::parse(args)?;
    match flags.stage.take().as_deref() {
        None => conductor::main(flags),
        Some("fetch") => fetch::main(flags),
        Some("convert") => convert::main(flags),
        Some(other) => Err(io::Error::other(format!("there is no stage {other:?}"))),
    }
}

/// Descriptors that this process was given.
#[derive(Default)]
struct Flags {
    stage: Option<String>,
    target: Option<OwnedFd>,
    upload: Option<OwnedFd>,
    scratch: Option<OwnedFd>,
    format: Option<String>,
    cache: Option<String>,
    /// What is not written of the target reads as zeros.
    zeros: bool,
}

impl Flags {
    fn parse(mut args: impl Iterator<Item = OsString>) -> io::Result<Self> {
        let mut flags = Flags::default();
        while let Some(name) = args.next() {
            let bad = || {
                io::Error::other(format!("{} is not used right; this command is for ferrovirt itself", name.display()))
            };
            let value = args.next().and_then(|value| value.into_string().ok()).ok_or_else(bad)?;
            let descriptor = || -> io::Result<OwnedFd> {
                let number: RawFd = value.parse().ok().filter(|number| *number > 2).ok_or_else(bad)?;
                // SAFETY: no memory is involved; a number that is no descriptor is an error.
                if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
                    return Err(bad());
                }
                // SAFETY: it is open: whoever started this process gave it the descriptor, and it is taken once.
                let fd = unsafe { OwnedFd::from_raw_fd(number) };
                rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::CLOEXEC)?;
                Ok(fd)
            };
            match name.to_str() {
                Some("--stage") => flags.stage = Some(value),
                Some("--target") => flags.target = Some(descriptor()?),
                Some("--upload") => flags.upload = Some(descriptor()?),
                Some("--scratch") => flags.scratch = Some(descriptor()?),
                Some("--format") => flags.format = Some(value),
                Some("--cache") => flags.cache = Some(value),
                Some("--zeros") => flags.zeros = value == "yes",
                _ => return Err(bad()),
            }
        }
        Ok(flags)
    }

    fn target(&mut self) -> io::Result<OwnedFd> {
        self.target.take().ok_or_else(|| io::Error::other("there is no target"))
    }
}

/// The job is the first line of the standard input, which then stays open as long as the parent lives.
fn read_job() -> io::Result<Job> {
    let mut line = Vec::new();
    // No buffer beyond this call: nothing comes after the line.
    BufReader::with_capacity(64 * 1024, io::stdin()).take(JOB_MAX).read_until(b'\n', &mut line)?;
    Ok(serde_json::from_slice(&line)?)
}

fn say(what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what)?;
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

fn tell(event: Event) -> io::Result<()> {
    say(&event)
}

/// More than the disk: tables, and clusters that snapshots keep.
fn scratch_limit(size: u64) -> u64 {
    size.saturating_add(size / 16).saturating_add(64 << 20)
}

fn format_named(name: &str) -> Option<Format> {
    let all = [Format::Qcow2, Format::Vmdk, Format::Vdi, Format::Vhd, Format::Vhdx];
    all.into_iter().find(|format| format.driver() == name)
}

/// The same file, opened again: the descriptor's position and flags are its own.
fn duplicate(fd: &OwnedFd) -> io::Result<File> {
    Ok(File::from(fd.try_clone()?))
}
