//! One launcher, reached through its Pod's directory.
//!
//! A task long-polls the launcher's state into a [`Report`]. The launcher pushes nothing, so nothing can be lost: a
//! restarted virt-handler simply asks.

mod state;

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hostfs::beneath::{OFlags, Root, descriptor_path};
use hostfs::process::ProcessId;
use jiff::Timestamp;
use launcher_contract::migration::MigrationState;
use launcher_contract::types::{Command, GuestAgent, LauncherState};
use launcher_contract::{paths, sockets};
use launcher_rpc::{Client, Error as RpcError};
use parking_lot::Mutex;
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::uid::{PodUid, VmiUid};

/// Timeout of a long poll.
const POLL: Duration = Duration::from_secs(20);
/// Pause between attempts to reach a launcher that does not answer.
const RETRY: Duration = Duration::from_millis(250);
/// Far more than a launcher writes.
const LAST_STATE_MAX: u64 = 1 << 20;

/// Snapshot of what is known about a launcher.
#[derive(Debug, Clone, Default)]
pub(crate) struct Report {
    /// The last response, translated, and when it arrived.
    pub(crate) state: Option<(vmstate::LauncherState, Timestamp)>,
    /// The last report of the guest agent.
    pub(crate) guest_agent: Option<GuestAgent>,
    /// The migration it takes part in, with its progress.
    pub(crate) migration: Option<MigrationState>,
    /// The name of its Pod.
    pub(crate) pod_name: Option<String>,
    /// Set while the launcher does not answer.
    pub(crate) failing_since: Option<Timestamp>,
    /// The process that last answered.
    pub(crate) process: Option<ProcessId>,
}

impl Report {
    /// The last response, if the launcher still answers.
    pub(crate) fn answer(&self) -> Option<&vmstate::LauncherState> {
        self.state.as_ref().filter(|_| self.failing_since.is_none()).map(|(state, _)| state)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.answer().is_some()
    }
}

/// A handle to one launcher. Polling stops when the last handle is dropped.
pub(crate) struct Launcher {
    pub(crate) pod_uid: PodUid,
    pub(crate) vmi_uid: VmiUid,
    pub(crate) client: Client,
    pods: Arc<Root>,
    reports: watch::Sender<Report>,
    /// The peer of the newest connection.
    peer: Arc<Mutex<Option<ProcessId>>>,
    _poll: DropGuard,
}

impl Launcher {
    pub(crate) fn start(pods: Arc<Root>, pod_uid: PodUid, vmi_uid: VmiUid) -> Arc<Self> {
        let peer = Arc::new(Mutex::new(None));
        let client = client(pods.clone(), pod_uid.clone(), peer.clone());
        let stop = CancellationToken::new();
        let reports = watch::Sender::new(Report::default());
        let launcher =
            Arc::new(Launcher { pod_uid, vmi_uid, client, pods, reports, peer, _poll: stop.clone().drop_guard() });
        // A strong reference would keep the task alive for ever.
        let weak = Arc::downgrade(&launcher);
        let poll = async move {
            let mut after = None;
            loop {
                let Some(launcher) = weak.upgrade() else { return };
                let (client, known) = (launcher.client.clone(), after);
                drop(launcher);
                let answer = client.state(known, POLL).await;
                let Some(launcher) = weak.upgrade() else { return };
                after = launcher.take(answer).await;
                drop(launcher);
                if after.is_none() {
                    tokio::time::sleep(RETRY).await;
                }
            }
        };
        tokio::spawn(async move { stop.run_until_cancelled(poll).await });
        launcher
    }

    pub(crate) fn reports(&self) -> watch::Receiver<Report> {
        self.reports.subscribe()
    }

    pub(crate) fn report(&self) -> Report {
        self.reports.borrow().clone()
    }

    /// Sends a command for this launcher's VMI, then refreshes the state. A launcher that closes the connection has
    /// exited, which is the purpose of the commands that stop it.
    pub(crate) async fn command(&self, command: Command) -> Result<(), RpcError> {
        let sent = self.client.command(command, &self.vmi_uid).await;
        self.refresh().await;
        sent
    }

    /// Reads the state now instead of waiting for the poll.
    pub(crate) async fn refresh(&self) {
        let answer = self.client.state(None, Duration::ZERO).await;
        self.take(answer).await;
    }

    /// Publishes a response; returns its sequence number for the next poll.
    async fn take(&self, answer: Result<LauncherState, RpcError>) -> Option<u64> {
        let now = Timestamp::now();
        let state = match answer {
            Ok(state) => state,
            Err(error) => {
                let first = self.reports.send_if_modified(|report| {
                    let first = report.failing_since.is_none();
                    report.failing_since.get_or_insert(now);
                    first
                });
                if first {
                    tracing::debug!(pod = %self.pod_uid, error = crate::error::chain(&error), "the launcher does not respond");
                }
                return None;
            }
        };
        let known = self.reports.borrow().is_connected();
        let pod_name = if known { None } else { Some(self.pod_name_of_ours().await?) };
        let seq = state.seq;
        let process = *self.peer.lock();
        self.reports.send_modify(|report| {
            report.guest_agent = state.guest_agent.clone();
            report.migration = state.migration.clone();
            if let Some(name) = pod_name.filter(|name| !name.is_empty()) {
                report.pod_name = Some(name);
            }
            let state = state::translate(state);
            // An unchanged state keeps its original timestamp.
            if report.state.as_ref().is_none_or(|(old, _)| *old != state) {
                report.state = Some((state, now));
            }
            report.failing_since = None;
            report.process = process;
        });
        Some(seq)
    }

    /// The name of the Pod, if the launcher on the socket belongs to our VMI.
    async fn pod_name_of_ours(&self) -> Option<String> {
        match self.client.info().await {
            Ok(info) if info.launcher_uid == self.vmi_uid.as_str() => Some(info.pod_name),
            Ok(info) => {
                tracing::warn!(pod = %self.pod_uid, vmi = %self.vmi_uid, says = info.launcher_uid, "not the launcher of this VMI");
                None
            }
            Err(_) => None,
        }
    }

    /// Connects to one of QEMU's sockets: serial console or VNC.
    pub(crate) async fn connect_private(&self, socket: &str) -> io::Result<UnixStream> {
        let path = volume(&self.pod_uid, paths::PRIVATE_VOLUME).join(self.vmi_uid.as_str()).join(socket);
        connect(&self.pods, path).await
    }
}

/// Whether the launcher has created its socket; the launcher may be gone since.
pub(crate) fn has_socket(pods: &Root, pod_uid: &PodUid) -> bool {
    pods.exists(volume(pod_uid, paths::SOCKETS_VOLUME).join(sockets::LAUNCHER)).unwrap_or(false)
}

/// Whether the Pod has a directory. An error does not prove that it is gone.
pub(crate) fn has_directory(pods: &Root, pod_uid: &PodUid) -> bool {
    pods.exists(pod_uid.as_str()).unwrap_or(true)
}

/// The final state that a launcher wrote before it exited. The Pod could have written anything there, so whatever is
/// not a state of this VMI is ignored.
pub(crate) fn last_state(pods: &Root, pod_uid: &PodUid, vmi_uid: &VmiUid) -> Option<vmstate::LauncherState> {
    match read_last_state(pods, pod_uid) {
        Ok(state) if state.domain.as_ref().is_some_and(|domain| domain.uid == vmi_uid.as_str()) => {
            Some(state::translate(state))
        }
        Ok(_) => None,
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => {
            tracing::debug!(pod = %pod_uid, error = crate::error::chain(&error), "the launcher's last state is unreadable");
            None
        }
    }
}

fn read_last_state(pods: &Root, pod_uid: &PodUid) -> io::Result<LauncherState> {
    let path = volume(pod_uid, paths::SOCKETS_VOLUME).join(sockets::LAST_STATE);
    // Must not block on a FIFO in its place.
    let file = pods
        .open_file(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC)
        .map_err(|err| io::Error::new(err.kind(), crate::error::chain(&err)))?;
    let metadata = file.metadata()?;
    if !metadata.is_file() || metadata.len() > LAST_STATE_MAX {
        return Err(io::Error::other("not a regular file, or too large"));
    }
    let mut text = Vec::new();
    file.take(LAST_STATE_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// An emptyDir volume of a Pod, relative to the Pod directory.
pub(crate) fn volume(pod_uid: &PodUid, name: &str) -> PathBuf {
    PathBuf::from(pod_uid.as_str()).join("volumes/kubernetes.io~empty-dir").join(name)
}

fn client(pods: Arc<Root>, pod_uid: PodUid, peer: Arc<Mutex<Option<ProcessId>>>) -> Client {
    Client::new(move || {
        let (pods, peer) = (pods.clone(), peer.clone());
        let path = volume(&pod_uid, paths::SOCKETS_VOLUME).join(sockets::LAUNCHER);
        Box::pin(async move {
            let stream = connect(&pods, path).await?;
            // While the connection is open the listening process lives, so its PID cannot have been reused; together
            // with the start time it stays unique.
            let pid = stream.peer_cred()?.pid().ok_or_else(|| io::Error::other("cannot read virt-launcher's PID"))?;
            let process = ProcessId::of(pid).map_err(io::Error::other)?;
            *peer.lock() = Some(process);
            Ok(stream)
        })
    })
}

/// Connects without following symlinks and without blocking: a launcher that does not accept must not block a thread.
pub(crate) async fn connect(pods: &Root, path: PathBuf) -> io::Result<UnixStream> {
    let socket = pods
        .open_file(path, OFlags::PATH | OFlags::CLOEXEC)
        .map_err(|err| io::Error::new(err.kind(), crate::error::chain(&err)))?;
    UnixStream::connect(descriptor_path(&socket)).await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::process::Command;

    use serde_json::json;

    use super::*;

    #[test]
    fn a_last_state_is_read_only_if_it_is_one_of_this_vmi() {
        let dir = tempfile::tempdir().unwrap();
        let (pod, vmi) = (PodUid::new("pod-1").unwrap(), VmiUid::new("vmi-1").unwrap());
        let pods = Root::open(dir.path()).unwrap();
        let sockets = dir.path().join(volume(&pod, paths::SOCKETS_VOLUME));
        let file = sockets.join(sockets::LAST_STATE);
        let read = || last_state(&pods, &pod, &vmi).map(|state| state.domain.unwrap().reason);
        let state = |uid: &str| json!({"domain": {"uid": uid, "status": "Shutoff", "reason": "Shutdown"}}).to_string();

        assert_eq!(read(), None, "no directory");
        fs::create_dir_all(&sockets).unwrap();
        assert_eq!(read(), None, "no file");
        fs::write(&file, state("vmi-1")).unwrap();
        assert_eq!(read(), Some(vmstate::DomainReason::Shutdown));
        let huge = format!("{}{}", state("vmi-1"), " ".repeat(LAST_STATE_MAX as usize));
        for (name, text) in [
            ("of another VMI", state("vmi-2")),
            ("without a domain", "{}".to_string()),
            ("cut off", state("vmi-1")[..20].to_string()),
            ("not even text", "\u{0}\u{1}".to_string()),
            ("too large", huge),
        ] {
            fs::write(&file, text).unwrap();
            assert_eq!(read(), None, "{name}");
        }
        fs::remove_file(&file).unwrap();
        fs::write(dir.path().join("elsewhere"), state("vmi-1")).unwrap();
        symlink(dir.path().join("elsewhere"), &file).unwrap();
        assert_eq!(read(), None, "a link is not followed");
        fs::remove_file(&file).unwrap();
        assert!(Command::new("mkfifo").arg(&file).status().unwrap().success());
        assert_eq!(read(), None, "a pipe is not waited for");
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(read(), None, "a directory is not a file");
    }

    #[test]
    fn a_launcher_that_fell_silent_gives_no_answer() {
        let state = Some((vmstate::LauncherState::default(), Timestamp::UNIX_EPOCH));
        let answers = Report { state, ..Default::default() };
        assert!(answers.is_connected());
        let silent = Report { failing_since: Some(Timestamp::UNIX_EPOCH), ..answers };
        assert_eq!((silent.answer(), Report::default().answer()), (None, None));
    }
}
