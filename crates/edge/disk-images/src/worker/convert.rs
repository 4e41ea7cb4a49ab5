//! The stage that converts: confines itself and becomes qemu-img.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Resource, Rlimit};

use super::confine::{Confinement, Limits, WORKER_UID};
use super::{Flags, format_named, read_job};

const MEMORY: u64 = 2 << 30;
/// QEMU starts up to 64 threads.
const STACK: u64 = 1 << 20;
/// What the program itself needs, and nothing of anybody's data.
const READABLE: &[&str] = &[
    "/usr",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/ssl/openssl.cnf",
    "/etc/localtime",
    "/dev/null",
    "/dev/urandom",
];

pub(super) fn main(mut flags: Flags) -> io::Result<()> {
    let job = read_job()?;
    let target = flags.target()?;
    let source = flags.scratch.take().ok_or_else(|| io::Error::other("there is no source"))?;
    let format =
        flags.format.as_deref().and_then(format_named).ok_or_else(|| io::Error::other("there is no format"))?;
    rustix::process::setrlimit(Resource::Stack, Rlimit { current: Some(STACK), maximum: Some(STACK) })?;
    let cpu_seconds = 300 + job.size / (8 << 20);
    Confinement {
        uid: WORKER_UID,
        limits: Limits { memory: MEMORY, cpu_seconds, file: job.size.max(1 << 20) },
        network: false,
        exec: true,
        readable: READABLE,
        writable: &[target.as_fd()],
        sources: &[source.as_fd()],
    }
    .enter()?;
    for fd in [&target, &source] {
        rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty())?;
    }
    // Everything is named: QEMU guesses no format and opens no file but these two.
    let path = |fd: i32| serde_json::json!({"driver": "file", "filename": format!("/proc/self/fd/{fd}")});
    let mut from = serde_json::json!({"driver": format.driver(), "file": path(source.as_raw_fd())});
    if matches!(format, image_format::Format::Qcow2 | image_format::Format::Vmdk) {
        from["backing"] = serde_json::Value::Null;
    }
    let mut command = Command::new("qemu-img");
    command.args(["convert", "-p", "-n", "-W", "-t"]).arg(flags.cache.as_deref().unwrap_or("writeback"));
    // Nothing was written before: what is zero in the image needs not be written either.
    if flags.zeros {
        command.arg("--target-is-zero");
    }
    command.arg(format!("json:{from}"));
    command.args(["--target-image-opts"]);
    let device = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&target)?.st_mode).is_block_device();
    let driver = if device { "host_device" } else { "file" };
    command.arg(format!("driver=raw,file.driver={driver},file.filename=/proc/self/fd/{}", target.as_raw_fd()));
    command.env_clear().env("PATH", "/usr/bin:/bin:/usr/local/bin").env("MALLOC_ARENA_MAX", "2").env("LC_ALL", "C");
    Err(command.exec())
}
