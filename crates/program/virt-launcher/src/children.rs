//! Child processes and orphans. The launcher is PID 1 of its container: QEMU, which libvirt daemonizes, and whatever
//! libvirt's probes leave behind are reparented to it and stay zombies until it reaps them.
//!
//! One task reaps all of them with `waitpid(-1)`. Nothing else in this program may wait for a process, since it would
//! race with that task for the exit status, so `wait` of tokio and of the standard library must not be used. The exit
//! status is passed to whoever spawned the child. Spawning and reaping exclude each other: a child that exits at once
//! is already registered, and after a failed `exec` the standard library's own wait still finds its child.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Pid, Signal, WaitOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

type Waiting = HashMap<Pid, oneshot::Sender<ExitStatus>>;

#[derive(Clone, Default)]
pub(crate) struct Children(Arc<Mutex<Waiting>>);

/// A process started by [`Children::spawn`]. Dropping it leaves the process alone.
pub(crate) struct Child {
    children: Children,
    pid: Pid,
    exit: oneshot::Receiver<ExitStatus>,
    pub(crate) stderr: Option<OwnedFd>,
}

impl Children {
    /// Becomes the subreaper of all orphaned descendants and starts reaping.
    pub(crate) fn start() -> io::Result<Children> {
        if rustix::process::getpid() != Pid::INIT {
            rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        }
        let children = Children::default();
        let mut ended = signal(SignalKind::child())?;
        let collector = children.clone();
        tokio::spawn(async move {
            // One SIGCHLD may stand for several exits, so reap until none is left.
            while ended.recv().await.is_some() {
                collector.collect();
            }
        });
        Ok(children)
    }

    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut waiting = self.lock();
        let child = command.spawn()?;
        let pid = Pid::from_child(&child);
        let (sender, exit) = oneshot::channel();
        waiting.insert(pid, sender);
        drop(waiting);
        Ok(Child { children: self.clone(), pid, exit, stderr: child.stderr.map(OwnedFd::from) })
    }

    fn collect(&self) {
        let mut waiting = self.lock();
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let status = ExitStatus::from_raw(status.as_raw());
            match waiting.remove(&pid) {
                Some(parent) => drop(parent.send(status)),
                None => tracing::debug!(pid = pid.as_raw_nonzero(), %status, "orphan ended"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock()
    }
}

impl Child {
    /// Waits for the exit status. Calling it again afterwards reports a process that vanished.
    pub(crate) async fn wait(&mut self) -> ExitStatus {
        // The reaper keeps the sender until the process has been reaped.
        (&mut self.exit).await.unwrap_or(ExitStatus::from_raw(libc::SIGKILL))
    }

    pub(crate) fn handle(&self) -> Handle {
        Handle { children: self.children.clone(), pid: self.pid }
    }
}

/// Handle to signal a child from elsewhere.
#[derive(Clone)]
pub(crate) struct Handle {
    children: Children,
    pid: Pid,
}

impl Handle {
    /// Sends a signal unless the process has been reaped. The lock prevents the PID from being reused.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.children.lock().contains_key(&self.pid)
            && let Err(error) = rustix::process::kill_process(self.pid, signal)
        {
            tracing::warn!(pid = self.pid.as_raw_nonzero(), %error, "cannot signal a child");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Stdio;
    use std::time::Duration;

    use super::*;

    /// Reaping is process-wide and would take the children of other tests, so this test runs in a process of its own.
    #[test]
    fn statuses_reach_their_parents_and_orphans_are_collected() {
        let this = std::env::current_exe().unwrap();
        let test = ["--exact", "children::tests::in_a_process_of_its_own", "--ignored"];
        let run = Command::new(this).args(test).output().unwrap();
        let said = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && said.contains("1 passed"), "{said}");
    }

    #[tokio::test]
    #[ignore = "run by the test above"]
    async fn in_a_process_of_its_own() {
        let children = Children::start().unwrap();
        let mut runs: Vec<_> = (0..20)
            .map(|code| children.spawn(Command::new("sh").args(["-c", &format!("exit {code}")])).unwrap())
            .collect();
        for (code, child) in runs.iter_mut().enumerate() {
            assert_eq!(child.wait().await.code(), Some(code as i32));
        }

        let missing = children.spawn(&mut Command::new("/no/such/program"));
        assert_eq!(missing.err().map(|error| error.kind()), Some(io::ErrorKind::NotFound));

        let mut sleeper = children.spawn(Command::new("sleep").arg("1000")).unwrap();
        let handle = sleeper.handle();
        handle.signal(Signal::KILL);
        assert_eq!(sleeper.wait().await.signal(), Some(libc::SIGKILL));
        handle.signal(Signal::KILL);

        // A grandchild whose parent exits first: it is reparented to us and must not stay a zombie.
        let mut parent = children
            .spawn(Command::new("sh").args(["-c", "sleep 0.2 2>/dev/null & echo $! >&2"]).stderr(Stdio::piped()))
            .unwrap();
        let mut said = String::new();
        io::Read::read_to_string(&mut std::fs::File::from(parent.stderr.take().unwrap()), &mut said).unwrap();
        assert!(parent.wait().await.success());
        let orphan = format!("/proc/{}", said.trim());
        for _ in 0..200 {
            if !std::path::Path::new(&orphan).exists() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("{orphan} is still there");
    }
}
