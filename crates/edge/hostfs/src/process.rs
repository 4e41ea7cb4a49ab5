//! Processes identified by PID *and* start time, so that a reused PID is never mistaken for the recorded process. They
//! are signalled through a pidfd, so that the PID cannot be reused in between.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

pub use rustix::process::Signal;

use crate::error::{Error, Result};

/// A globally unique process of this machine: PIDs are reused, and the start time counts from boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    pub pid: i32,
    /// In clock ticks since boot, as in `/proc/<pid>/stat`.
    pub start_time: u64,
    /// Prefix of the kernel's boot ID: a record from before a reboot matches nothing.
    pub boot: u64,
}

impl ProcessId {
    /// Identifies a running process; the error's kind is `NotFound` if there is none with this PID.
    pub fn of(pid: i32) -> Result<ProcessId> {
        let stat = read_stat(pid).map_err(|e| Error::new("identify process", pid, e))?;
        Ok(ProcessId { pid, start_time: stat.start_time, boot: boot()? })
    }

    /// The calling process.
    pub fn current() -> Result<ProcessId> {
        Self::of(rustix::process::getpid().as_raw_nonzero().get())
    }

    /// Whether the process is still running. A zombie is not: it just has not been reaped.
    pub fn alive(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
            && read_stat(self.pid).is_ok_and(|stat| stat.start_time == self.start_time && !stat.ended)
    }

    /// A pidfd of the process, readable once it has exited; `None` if it is gone.
    pub fn open(&self) -> Result<Option<OwnedFd>> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let fd = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(fd) => fd,
            Err(Errno::SRCH | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(Error::new("open a descriptor of process", self.pid, e)),
        };
        // Check after opening: from here on the descriptor cannot refer to another process.
        Ok(self.alive().then_some(fd))
    }

    /// Sends a signal; false if the process is gone.
    pub fn signal(&self, signal: Signal) -> Result<bool> {
        let Some(fd) = self.open()? else { return Ok(false) };
        match pidfd_send_signal(&fd, signal) {
            Ok(()) => Ok(true),
            Err(Errno::SRCH) => Ok(false),
            Err(e) => Err(Error::new("signal process", self.pid, e)),
        }
    }

    /// Waits until the process has exited; false if it has not within `timeout`.
    pub fn wait_gone(&self, timeout: Duration) -> Result<bool> {
        match self.open()? {
            None => Ok(true),
            Some(fd) => wait_readable(&fd, timeout).map_err(|e| Error::new("wait for process", self.pid, e)),
        }
    }
}

/// Waits until a pidfd reports that its process has exited.
pub(crate) fn wait_readable(fd: &OwnedFd, timeout: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + timeout;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let limit = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&limit)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

struct Stat {
    start_time: u64,
    ended: bool,
}

fn read_stat(pid: i32) -> io::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).map_err(|e| match e.raw_os_error() {
        // The process exited between open and read.
        Some(libc::ESRCH) => io::Error::from(io::ErrorKind::NotFound),
        _ => e,
    })?;
    parse_stat(&text).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "unexpected form of /proc/<pid>/stat"))
}

/// The name (field 2) is in parentheses and may itself contain spaces and parentheses: fields are counted from the last
/// one.
fn parse_stat(text: &str) -> Option<Stat> {
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    let start_time = fields.nth(18)?.parse().ok()?;
    Some(Stat { start_time, ended: matches!(state, "Z" | "X" | "x") })
}

/// The machine's current boot, as a number that no other boot has.
pub fn boot() -> Result<u64> {
    static BOOT: OnceLock<u64> = OnceLock::new();
    if let Some(boot) = BOOT.get() {
        return Ok(*boot);
    }
    const PATH: &str = "/proc/sys/kernel/random/boot_id";
    let text = fs::read_to_string(PATH).map_err(|e| Error::new("read", PATH, e))?;
    let digits: String = text.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    let boot = u64::from_str_radix(&digits, 16)
        .map_err(|e| Error::new("read", PATH, io::Error::new(io::ErrorKind::InvalidData, e)))?;
    Ok(*BOOT.get_or_init(|| boot))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_process_is_alive_until_it_is_signalled_and_a_zombie_counts_as_gone() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let id = ProcessId::of(child.id() as i32).unwrap();
        assert!(id.alive());
        assert!(!id.wait_gone(Duration::from_millis(20)).unwrap());
        assert!(id.signal(Signal::TERM).unwrap());
        assert!(id.wait_gone(Duration::from_secs(10)).unwrap());
        assert!(!id.alive(), "not yet collected, but ended");
        child.wait().unwrap();
        assert!(!id.signal(Signal::TERM).unwrap());
    }

    #[test]
    fn a_reused_pid_is_another_process() {
        let own = ProcessId::current().unwrap();
        assert!(own.alive());
        let earlier = ProcessId { start_time: own.start_time - 1, ..own };
        let other_boot = ProcessId { boot: own.boot ^ 1, ..own };
        for stranger in [earlier, other_boot] {
            assert!(!stranger.alive());
            assert!(!stranger.signal(Signal::KILL).unwrap(), "the test itself would die");
            assert!(stranger.wait_gone(Duration::ZERO).unwrap());
        }
    }

    #[test]
    fn a_pid_that_never_was_is_not_found() {
        assert!(ProcessId::of(i32::MAX).unwrap_err().is_not_found());
        assert!(!ProcessId { pid: 0, start_time: 0, boot: 0 }.alive());
    }

    #[test]
    fn names_with_parentheses_do_not_shift_the_fields() {
        let line = "7 (a) Z (b)) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 1 1";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.start_time, 4711);
        assert!(!stat.ended);
        assert!(parse_stat("7 (x) Z 1").is_none());
    }
}
