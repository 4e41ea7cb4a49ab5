//! The launchers of a guest, asked past everybody else: what they say is nearest to the truth.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drive::Access;
use hostfs::process::ProcessId;
use launcher_contract::types::{DomainStatus, LauncherState};
use launcher_rpc::Client;
use parking_lot::Mutex;

use crate::processes;

/// The launcher of a guest on a node, as a process. The newest, if an older one is about to end.
pub fn process_on(cluster: &Access, guest: &str, node: &str) -> Option<ProcessId> {
    let pods = cluster.pods(node).to_string_lossy().into_owned();
    let here = |process: &ProcessId| {
        let mounts = std::fs::read_to_string(format!("/proc/{}/mountinfo", process.pid)).unwrap_or_default();
        mounts.contains(&pods)
    };
    let named = format!("--name\0{guest}\0");
    processes::find("virt-launcher", &named).into_iter().filter(here).max_by_key(|process| process.pid)
}

/// The libvirtd of a launcher.
pub fn libvirtd_of(launcher: &ProcessId) -> Option<ProcessId> {
    beside(launcher, "libvirtd", "")
}

/// The QEMU with the guest of a launcher. libvirtd also starts QEMUs without one, to find out what they can do; such a one may
/// outlive a libvirtd that was killed.
pub fn qemu_of(launcher: &ProcessId) -> Option<ProcessId> {
    beside(launcher, "qemu-system-x86", "guest=")
}

/// A program that runs beside a launcher, in its pid namespace, with this word on its command line.
fn beside(launcher: &ProcessId, comm: &str, word: &str) -> Option<ProcessId> {
    let namespace = |pid: i32| std::fs::read_link(format!("/proc/{pid}/ns/pid"));
    let own = namespace(launcher.pid).ok()?;
    let same = |process: &ProcessId| namespace(process.pid).is_ok_and(|other| other == own);
    processes::find(comm, word).into_iter().find(same)
}

/// What the launcher of a Pod says now; none if it does not answer.
pub async fn state(cluster: &Access, node: &str, pod_uid: &str) -> Option<LauncherState> {
    // The path is longer than a socket's may be, so it is connected to beneath its directory.
    let directory = cluster.pods(node).join(pod_uid).join("volumes/kubernetes.io~empty-dir/sockets");
    let stream = hostfs::beneath::Root::open(directory).ok()?.connect_unix("launcher-sock").ok()?;
    stream.set_nonblocking(true).ok()?;
    let stream = Arc::new(Mutex::new(Some(stream)));
    let client = Client::new(move || {
        let stream = stream.lock().take();
        Box::pin(async move {
            let stream = stream.ok_or_else(|| std::io::Error::other("asked once already"))?;
            tokio::net::UnixStream::from_std(stream)
        })
    });
    let answer = tokio::time::timeout(Duration::from_secs(1), client.state(None, Duration::ZERO)).await;
    answer.ok()?.ok()
}

/// Looks at all launchers of a guest again and again, and remembers whether two of them ever had it running.
pub struct Lookout {
    stop: Arc<AtomicBool>,
    twice: Arc<Mutex<Option<String>>>,
}

impl Lookout {
    pub fn post(cluster: &Access, vmi_uid: &str) -> Self {
        let (cluster, uid) = (cluster.clone(), vmi_uid.to_owned());
        Self::with(move || {
            let (cluster, uid) = (cluster.clone(), uid.clone());
            async move { running(&cluster, &uid).await }
        })
    }

    /// The same by the processes of a guest that does not move: it may have one instance after the other, but no two QEMUs.
    pub fn over(guest: &str) -> Self {
        let guest = guest.to_owned();
        Self::with(move || {
            let qemus = processes::qemus_of(&guest);
            std::future::ready(qemus.iter().map(|qemu| format!("process {}", qemu.pid)).collect())
        })
    }

    fn with<F>(look: impl Fn() -> F + Send + 'static) -> Self
    where
        F: Future<Output = Vec<String>> + Send,
    {
        let (stop, twice) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (ended, seen) = (stop.clone(), twice.clone());
        tokio::spawn(async move {
            let mut in_a_row = 0;
            while !ended.load(Ordering::Relaxed) {
                let running = look().await;
                in_a_row = if running.len() > 1 { in_a_row + 1 } else { 0 };
                // Two looks at two launchers are not one moment: one of them may have stopped in between.
                if in_a_row == 3 {
                    *seen.lock() = Some(running.join(" and "));
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        Self { stop, twice }
    }

    /// Who had the guest running at the same time, if that happened.
    pub fn seen_twice(&self) -> Option<String> {
        self.twice.lock().clone()
    }
}

impl Drop for Lookout {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// The Pods whose launchers say that this guest runs in them.
pub async fn running(cluster: &Access, vmi_uid: &str) -> Vec<String> {
    let mut running = Vec::new();
    for node in ["n1", "n2"] {
        for pod in std::fs::read_dir(cluster.pods(node)).into_iter().flatten().flatten() {
            let Ok(pod) = pod.file_name().into_string() else { continue };
            let Some(state) = state(cluster, node, &pod).await else { continue };
            if state.domain.is_some_and(|domain| domain.status == DomainStatus::Running && domain.uid == vmi_uid) {
                running.push(format!("{pod} on {node}"));
            }
        }
    }
    running
}
