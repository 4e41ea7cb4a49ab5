//! The shim's loop: starts containers, copies output, reaps exits, forwards SIGTERM.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};
use std::path::PathBuf;

use hostfs::atomic;
use hostfs::cgroup::{Cgroup, Hierarchies};
use hostfs::process::ProcessId;
use jiff::{SignedDuration, Timestamp};
use podstate::{ContainerRecord, Exit, ExitReason, Stage, outlook};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, pidfd_open, pidfd_send_signal, waitpid};

use super::launch::{self, Launch};
use super::log::{Log, tail};
use crate::error::Error;
use crate::images::Held;
use crate::paths::PodPaths;
use crate::record::{ContainerSpec, MountSource, RootSource, ShimSpec, recorded};

/// Maximum length of a termination message in the API.
const MOST_MESSAGE_BYTES: u64 = 4096;
const MOST_LOG_TAIL_BYTES: u64 = 2048;

pub(super) struct Shim {
    paths: PodPaths,
    spec: ShimSpec,
    groups: Vec<Cgroup>,
    images: BTreeMap<PathBuf, Held>,
    /// Of all containers, init containers first.
    records: Vec<Option<ContainerRecord>>,
    running: Vec<Running>,
    /// Records that could not be written yet: a full disk must not end the Pod.
    unsaved: BTreeSet<usize>,
    signals: OwnedFd,
    stopping: bool,
}

struct Running {
    index: usize,
    pid: Pid,
    pidfd: OwnedFd,
    /// Its output, until EOF.
    output: Option<OwnedFd>,
    log: Log,
    started_at: Timestamp,
    oom_kills_before: u64,
}

impl Shim {
    pub(super) fn new(paths: PodPaths, spec: ShimSpec, hierarchies: Hierarchies) -> Result<Shim, Error> {
        let groups: Result<Vec<Cgroup>, hostfs::Error> =
            spec.all().map(|c| hierarchies.group(&spec.cgroup_of(c))).collect();
        let records: Result<Vec<_>, hostfs::Error> =
            spec.all().map(|c| atomic::read_json::<ContainerRecord>(paths.status(&c.name))).collect();
        let signals = block_and_watch_term().map_err(Error::io("watch signals of", paths.dir()))?;
        let (images, running, unsaved) = (BTreeMap::new(), Vec::new(), BTreeSet::new());
        let (groups, records) = (groups?, records?);
        let mut shim = Shim { paths, spec, groups, images, records, running, unsaved, signals, stopping: false };
        shim.note_lost();
        Ok(shim)
    }

    /// Containers that an earlier shim started and did not see exit are gone: a Pod has one shim at a time, and what it
    /// leaves behind is killed before the next one starts.
    fn note_lost(&mut self) {
        for index in 0..self.records.len() {
            if let Some(record) = self.records[index].clone().filter(|r| r.stage.exit().is_none()) {
                self.record(index, record.lost(Timestamp::now()));
            }
        }
    }

    pub(super) fn run(mut self) -> Result<(), Error> {
        let init = self.spec.init_containers.len();
        loop {
            let now = Timestamp::now();
            let outlook = outlook(self.spec.restart_policy, init, &self.records, self.stopping, now);
            for (index, until) in &outlook.back_off {
                self.note_back_off(*index, *until);
            }
            self.save();
            if outlook.finished && self.unsaved.is_empty() {
                return Ok(());
            }
            if outlook.start.is_empty() {
                let pause = outlook.wake().map(|until| until.duration_since(now));
                let retry = (!self.unsaved.is_empty()).then_some(SignedDuration::from_secs(1));
                self.wait(pause.into_iter().chain(retry).min())?;
            } else {
                for index in outlook.start {
                    self.start(index);
                }
            }
        }
    }

    fn container(&self, index: usize) -> &ContainerSpec {
        let init = self.spec.init_containers.len();
        if index < init { &self.spec.init_containers[index] } else { &self.spec.containers[index - init] }
    }

    fn start(&mut self, index: usize) {
        let (restarts, previous) = match self.records[index].take() {
            Some(record) => (record.restarts + 1, record.stage.exit().cloned()),
            None => (0, None),
        };
        let stage = match self.launch(index) {
            Ok((running, process)) => {
                let started_at = running.started_at;
                self.running.push(running);
                Stage::Running { process: recorded(process), started_at }
            }
            Err(message) => Stage::Exited(Exit {
                code: 128,
                signal: None,
                reason: ExitReason::StartError,
                message,
                started_at: None,
                finished_at: Timestamp::now(),
            }),
        };
        self.record(index, ContainerRecord { restarts, stage, previous })
    }

    fn launch(&mut self, index: usize) -> Result<(Running, ProcessId), String> {
        let text = |e: &dyn std::error::Error| crate::error::chain(e);
        self.hold_images(index)?;
        let (container, group) = (self.container(index), &self.groups[index]);
        group.create().and_then(|()| group.apply(&container.limits)).map_err(|e| text(&e))?;
        let oom_kills_before = group.oom_kills().map_err(|e| text(&e))?;
        let log = Log::open(self.paths.log(&container.name)).map_err(|e| format!("cannot open the log: {e}"))?;
        // Discard the message of an earlier run.
        let message = self.paths.termination(&container.name);
        atomic::write_mode(&message, b"", 0o666).map_err(|e| text(&e))?;

        let launch = Launch { paths: &self.paths, pod: &self.spec, container, images: &self.images, group };
        let started = launch::start(&launch)?;
        let pidfd =
            pidfd_open(started.pid, PidfdFlags::empty()).map_err(|e| format!("cannot watch the container: {e}"))?;
        rustix::io::ioctl_fionbio(&started.output, true)
            .map_err(|e| format!("cannot read the container's output: {e}"))?;
        // Our own child, so it can be identified even if it has already exited.
        let process = ProcessId::of(started.pid.as_raw_nonzero().get()).map_err(|e| text(&e))?;
        let (output, started_at) = (Some(started.output), Timestamp::now());
        Ok((Running { index, pid: started.pid, pidfd, output, log, started_at, oom_kills_before }, process))
    }

    /// Opens the images of a container, so that they stay unchanged while the shim lives.
    fn hold_images(&mut self, index: usize) -> Result<(), String> {
        let container = self.container(index);
        let volumes = container.mounts.iter().filter_map(|m| match &m.source {
            MountSource::Image(dir) => Some(dir),
            MountSource::Path(_) => None,
        });
        let root = match &container.root {
            RootSource::Image(dir) => Some(dir),
            RootSource::Host => None,
        };
        let dirs: Vec<PathBuf> = volumes.chain(root).cloned().collect();
        for dir in dirs {
            let failed = |e| format!("cannot open the image at {}: {e}", dir.display());
            if let Entry::Vacant(place) = self.images.entry(dir.clone()) {
                place.insert(Held::open(&dir).map_err(failed)?);
            }
        }
        Ok(())
    }

    fn record(&mut self, index: usize, record: ContainerRecord) {
        self.records[index] = Some(record);
        self.unsaved.insert(index);
        self.save();
    }

    fn save(&mut self) {
        let pending = std::mem::take(&mut self.unsaved);
        for index in pending {
            let path = self.paths.status(&self.container(index).name);
            let written = self.records[index].as_ref().map_or(Ok(()), |record| atomic::write_json(&path, record));
            // Without its directory the Pod has been removed, and nobody needs the record.
            if let Err(error) = written
                && self.paths.dir().exists()
            {
                eprintln!("{}", crate::error::chain(&error));
                self.unsaved.insert(index);
            }
        }
    }

    fn note_back_off(&mut self, index: usize, until: Timestamp) {
        let Some(record) = &self.records[index] else { return };
        let Stage::Exited(exit) = &record.stage else { return };
        let stage = Stage::BackingOff { exit: exit.clone(), until };
        self.record(index, ContainerRecord { stage, ..record.clone() });
    }

    /// Waits for output, an exit, a signal, or the timeout.
    fn wait(&mut self, limit: Option<SignedDuration>) -> Result<(), Error> {
        let limit = limit.map(|d| d.max(SignedDuration::ZERO));
        let limit = limit.map(|d| Timespec { tv_sec: d.as_secs(), tv_nsec: i64::from(d.subsec_nanos()) });
        let (signalled, ended, talking) = {
            let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
            fds.extend(self.running.iter().map(|r| PollFd::new(&r.pidfd, PollFlags::IN)));
            fds.extend(self.running.iter().flat_map(|r| &r.output).map(|o| PollFd::new(o, PollFlags::IN)));
            match poll(&mut fds, limit.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(Error::io("wait for containers of", self.paths.dir())(e.into())),
            }
            let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let ended: Vec<bool> = fds[1..=self.running.len()].iter().map(ready).collect();
            (ready(&fds[0]), ended, fds[self.running.len() + 1..].iter().any(ready))
        };
        if signalled {
            self.pass_on_term();
        }
        if talking {
            self.running.iter_mut().for_each(Running::copy_output);
        }
        for at in (0..ended.len()).rev().filter(|at| ended[*at]) {
            let running = self.running.remove(at);
            self.collect(running);
        }
        Ok(())
    }

    fn pass_on_term(&mut self) {
        let mut info = [0u8; size_of::<libc::signalfd_siginfo>()];
        let _ = rustix::io::read(&self.signals, &mut info);
        self.stopping = true;
        for running in &self.running {
            let _ = pidfd_send_signal(&running.pidfd, Signal::TERM); // it may have exited by itself
        }
    }

    fn collect(&mut self, mut running: Running) {
        running.copy_output();
        let status = waitpid(Some(running.pid), WaitOptions::empty())
            .ok()
            .flatten()
            .map_or((Some(255), None), |(_, status)| ending(status));
        let oom = self.groups[running.index].oom_kills().is_ok_and(|n| n > running.oom_kills_before);
        let (code, signal) = match status {
            (Some(code), _) => (code, None),
            (None, signal) => (128 + signal.unwrap_or(0), signal),
        };
        let reason = match code {
            0 => ExitReason::Completed,
            _ if oom => ExitReason::OOMKilled,
            _ => ExitReason::Error,
        };
        let exit = Exit {
            code,
            signal,
            reason,
            message: self.last_message(running.index, code),
            started_at: Some(running.started_at),
            finished_at: Timestamp::now(),
        };
        let before = self.records[running.index].clone();
        let (restarts, previous) = before.map_or((0, None), |r| (r.restarts, r.previous));
        self.record(running.index, ContainerRecord { restarts, stage: Stage::Exited(exit), previous });
    }

    fn last_message(&self, index: usize, code: i32) -> String {
        let container = self.container(index);
        let mut message = Vec::new();
        if let Ok(file) = File::open(self.paths.termination(&container.name)) {
            let _ = file.take(MOST_MESSAGE_BYTES).read_to_end(&mut message);
        }
        if message.is_empty() && code != 0 && container.termination.fall_back_to_logs {
            return tail(&self.paths.log(&container.name), MOST_LOG_TAIL_BYTES);
        }
        String::from_utf8_lossy(&message).into_owned()
    }
}

impl Running {
    /// Copies the available output. Output that cannot be written is dropped: the container must not block on it.
    fn copy_output(&mut self) {
        // A container with constant output must not keep the shim from other work.
        const MOST_READS: usize = 64;
        let mut buffer = [0u8; 16 << 10];
        for _ in 0..MOST_READS {
            let Some(output) = &self.output else { return };
            match rustix::io::read(output, &mut buffer) {
                Ok(n) if n > 0 => drop(self.log.write(&buffer[..n])),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                Ok(_) | Err(_) => self.output = None,
            }
        }
    }
}

/// Exit code or signal.
fn ending(status: WaitStatus) -> (Option<i32>, Option<i32>) {
    (status.exit_status(), status.terminating_signal())
}

/// From here on SIGTERM is read from a descriptor.
fn block_and_watch_term() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before any other use and outlives both calls; nobody else owns the
    // descriptor that signalfd returns.
    unsafe {
        let mut set = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
        if libc::sigprocmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}
