//! The parent's end of the worker.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::job::{Event, Failure, Job, reasons};

/// The longest line that the worker may say.
const LINE_MAX: u64 = 64 * 1024;

/// All that the worker gets of the file system.
#[derive(Debug)]
pub struct Descriptors {
    /// What [`Job::target`] says; writable, and for a directory an open directory.
    pub target: OwnedFd,
    /// The uploaded content: a pipe or socket whose end is the end of the content.
    pub upload: Option<OwnedFd>,
    /// A directory on the file system of the claim, for images that have to be converted. Nothing is left in it.
    pub scratch: Option<OwnedFd>,
}

/// A running worker. It is killed when this value is dropped.
#[derive(Debug)]
pub struct Worker {
    child: Child,
    // Its end tells the worker to end.
    lifeline: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    /// The part of a line that has come.
    line: Vec<u8>,
    ended: bool,
}

impl Worker {
    /// Starts `exe import-worker`. The worker logs to this process's standard error.
    pub async fn spawn(exe: &Path, job: &Job, descriptors: Descriptors) -> io::Result<Worker> {
        let mut text = serde_json::to_vec(job)?;
        text.push(b'\n');
        let mut command = Command::new(exe);
        command.arg(crate::SUBCOMMAND).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        command.process_group(0);
        let given = [
            ("--target", Some(&descriptors.target)),
            ("--upload", descriptors.upload.as_ref()),
            ("--scratch", descriptors.scratch.as_ref()),
        ];
        for (name, descriptor) in given {
            if let Some(descriptor) = descriptor.map(AsRawFd::as_raw_fd) {
                command.args([name, &descriptor.to_string()]);
            }
        }
        let inherited = given.map(|(_, descriptor)| descriptor.map(AsRawFd::as_raw_fd));
        // SAFETY: between fork and exec the closure only makes system calls. The descriptors live until after the spawn.
        unsafe { command.pre_exec(move || inherited.into_iter().flatten().try_for_each(inherit)) };
        let mut child = command.spawn()?;
        let missing = || io::Error::other("the worker has no pipes");
        let mut lifeline = child.stdin.take().ok_or_else(missing)?;
        let lines = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        lifeline.write_all(&text).await?;
        lifeline.flush().await?;
        Ok(Worker { child, lifeline: Some(lifeline), lines, line: Vec::new(), ended: false })
    }

    /// The next event; `None` after the last one. A worker that ends without a last word has failed. Nothing is lost if the
    /// future is dropped and made again.
    pub async fn next_event(&mut self) -> Option<Event> {
        if self.ended {
            return None;
        }
        let room = LINE_MAX.saturating_sub(self.line.len() as u64);
        let read = (&mut self.lines).take(room).read_until(b'\n', &mut self.line).await;
        let line = std::mem::take(&mut self.line);
        let said = match read {
            Ok(0) => Err("it ended".to_owned()),
            Ok(_) => serde_json::from_slice::<Event>(&line).map_err(|err| format!("it said something odd: {err}")),
            Err(err) => Err(format!("its output cannot be read: {err}")),
        };
        let event = match said {
            Ok(event) => event,
            Err(how) => self.lost(how).await,
        };
        self.ended = event.is_last();
        Some(event)
    }

    async fn lost(&mut self, how: String) -> Event {
        let _ = self.child.start_kill();
        let status = match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(err) => err.to_string(),
        };
        let message = format!("the import worker was lost: {how} ({status})");
        Event::Failed(Failure { reason: reasons::LOST.to_owned(), message, permanent: false })
    }

    /// The worker's process; `None` when it has ended.
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Lets the worker see what it would see if this process were killed; it ends by itself.
    pub fn let_go(&mut self) {
        self.lifeline = None;
    }

    /// Ends the worker and everything it has started, and waits for it.
    pub async fn kill(&mut self) -> io::Result<()> {
        self.ended = true;
        self.child.kill().await
    }
}

/// Keeps a descriptor open on exec. They are not moved to fixed numbers: what the spawn itself needs may be there.
pub(crate) fn inherit(descriptor: i32) -> io::Result<()> {
    // SAFETY: no memory is involved.
    match unsafe { libc::fcntl(descriptor, libc::F_SETFD, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
