//! The migration proxy between two Pods: Unix socket, TLS between the virt-handlers, Unix socket.
//!
//! ```text
//!   source Pod               source's virt-handler      target's virt-handler     target Pod
//!   launcher ─► …-source.sock ─► dial ══ TLS 1.3 ══► :port (channel 0)     ─► libvirt-sock
//!   QEMU ─────► …-49152-source.sock ─► dial ═══════► :port (channel 49152) ─► …-49152-source.sock (QEMU)
//!   QEMU ─────► …-49153-source.sock ─► dial ═══════► :port (channel 49153) ─► …-49153-source.sock (QEMU)
//! ```
//!
//! Each connection begins with a proof that its two ends take part in the same migration ([`bond`]), whether it is
//! encrypted or not.
//!
//! A channel takes any number of connections. Each is a pair of copy loops with a small buffer, so a slow reader slows
//! down its writer and nothing is queued in between. The end of one direction is passed on and leaves the other one
//! open. TCP detects a dead peer.
//!
//! Nothing is persisted. A restarted virt-handler opens what the VMI and its launcher call for. Connections that broke
//! with the old process have ended the transfer, and the guest keeps running at the source; in post-copy the source
//! reconnects.

mod arrivals;
mod bond;
mod gate;
mod join;
pub mod loopback;
mod tls;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hostfs::beneath::Root;
use launcher_contract::{Channel, USER, paths, sockets};
use parking_lot::{Mutex, MutexGuard};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use vmstate::Endpoint;

pub(crate) use gate::Bond;
pub(crate) use tls::Peers;

use crate::launcher::{connect, volume};
use crate::proxy::gate::{Entrance, Exit};
use crate::uid::{PodUid, VmiUid};

/// How long to wait for QEMU's socket: QEMU creates it shortly before it is needed, and later under load.
const QEMU_WITHIN: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(50);

/// How often to look whether migrations have ended.
const DRAIN_POLL: Duration = Duration::from_millis(500);

#[derive(Debug, thiserror::Error)]
pub(crate) enum ProxyError {
    #[error("virt-handler is shutting down and starts no more migrations")]
    Closing,
    #[error("failed to listen for migrations on {address}")]
    Listen { address: IpAddr, source: io::Error },
    #[error("failed to create socket {path} in the launcher's Pod")]
    Socket { path: String, source: hostfs::Error },
    #[error("failed to make the launcher the owner of socket {path}")]
    Own { path: String, source: io::Error },
    #[error("the target's address {0:?} is invalid")]
    BadAddress(String),
    #[error("{port:?} is not a port, or {channel} not a channel")]
    BadPort { port: String, channel: i64 },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Side {
    Source,
    Target,
}

struct Open {
    endpoint: Endpoint,
    /// Stops listeners and connections.
    _stop: DropGuard,
}

/// All proxies of a node, by launcher and side.
pub(crate) struct Proxies {
    pods: Arc<Root>,
    peers: Peers,
    open: Mutex<HashMap<(PodUid, Side), Open>>,
    /// No more are opened.
    closing: AtomicBool,
}

impl Proxies {
    pub(crate) fn new(pods: Arc<Root>, peers: Peers) -> Proxies {
        Proxies { pods, peers, open: Mutex::default(), closing: AtomicBool::new(false) }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<(PodUid, Side), Open>> {
        self.open.lock()
    }

    /// Opens no more proxies, and waits until those that are open have done their work, at most for `limit`.
    pub(crate) async fn drain(&self, limit: Duration) {
        self.closing.store(true, Ordering::Relaxed);
        let until = tokio::time::Instant::now() + limit;
        let mut told = false;
        while !self.open().is_empty() {
            let now = tokio::time::Instant::now();
            if now >= until {
                return tracing::warn!(proxies = self.open().len(), "migrations in progress are interrupted");
            }
            if !told {
                tracing::info!(proxies = self.open().len(), ?limit, "waiting for migrations in progress");
                told = true;
            }
            tokio::time::sleep(DRAIN_POLL.min(until - now)).await;
        }
    }

    fn accepts_more(&self) -> Result<(), ProxyError> {
        if self.closing.load(Ordering::Relaxed) { Err(ProxyError::Closing) } else { Ok(()) }
    }

    /// The open endpoint of a launcher.
    pub(crate) fn endpoint(&self, pod_uid: &PodUid, side: Side) -> Option<Endpoint> {
        self.open().get(&(pod_uid.clone(), side)).map(|open| open.endpoint.clone())
    }

    pub(crate) fn close(&self, pod_uid: &PodUid, side: Side) {
        if self.open().remove(&(pod_uid.clone(), side)).is_some() {
            tracing::debug!(pod = %pod_uid, ?side, "migration proxy closed");
        }
    }

    /// Listens for the source virt-handler, on a separate port for each channel.
    pub(crate) async fn listen(
        &self,
        pod_uid: &PodUid,
        vmi_uid: &VmiUid,
        address: IpAddr,
        bond: Bond,
    ) -> Result<Endpoint, ProxyError> {
        self.accepts_more()?;
        let failed = |source| ProxyError::Listen { address, source };
        let entrance = Arc::new(Entrance::new(self.peers.clone(), bond.clone()).map_err(failed)?);
        let stop = CancellationToken::new();
        let mut ports = BTreeMap::new();
        let mut listeners = Vec::new();
        for channel in Channel::ALL {
            let listener = TcpListener::bind((address, 0)).await.map_err(failed)?;
            ports.insert(listener.local_addr().map_err(failed)?.port().to_string(), i64::from(channel.number()));
            listeners.push((channel, listener));
        }
        for (channel, listener) in listeners {
            let path = match channel {
                Channel::Libvirt => volume(pod_uid, paths::LIBVIRT_VOLUME).join(sockets::LIBVIRT),
                Channel::Memory | Channel::Disks => socket_path(pod_uid, vmi_uid, channel),
            };
            let (pods, entrance) = (self.pods.clone(), entrance.clone());
            let accept =
                join::accept_tcp(listener, entrance, channel, move || connect_soon(pods.clone(), path.clone()));
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(accept).await });
        }
        let endpoint = Endpoint { address: address.to_string(), ports };
        let open = Open { endpoint: endpoint.clone(), _stop: stop.drop_guard() };
        self.open().insert((pod_uid.clone(), Side::Target), open);
        tracing::info!(pod = %pod_uid, ?endpoint, ?bond, "waiting for a migration");
        Ok(endpoint)
    }

    /// Opens the sockets through which the launcher and its QEMU reach the target.
    pub(crate) async fn dial(
        &self,
        pod_uid: &PodUid,
        vmi_uid: &VmiUid,
        endpoint: &Endpoint,
        bond: Bond,
    ) -> Result<(), ProxyError> {
        self.accepts_more()?;
        let address: IpAddr = endpoint.address.parse().map_err(|_| ProxyError::BadAddress(endpoint.address.clone()))?;
        // Close those of an earlier migration first: their sockets have the same names.
        self.close(pod_uid, Side::Source);
        let directory = migrations(pod_uid);
        self.pods
            .mkdir_all(&directory, 0o750, USER, USER)
            .map_err(|source| ProxyError::Socket { path: directory.display().to_string(), source })?;
        let (stop, exit) = (CancellationToken::new(), Arc::new(Exit::new(self.peers.clone(), bond.clone())));
        for (port, channel) in &endpoint.ports {
            let bad = || ProxyError::BadPort { port: port.clone(), channel: *channel };
            let to = SocketAddr::new(address, port.parse().map_err(|_| bad())?);
            let channel = Channel::from_number(*channel).ok_or_else(bad)?;
            let listener = self.bind(&socket_path(pod_uid, vmi_uid, channel))?;
            let accept = join::accept_unix(listener, to, channel, exit.clone());
            let stop = stop.clone();
            tokio::spawn(async move { stop.run_until_cancelled(accept).await });
        }
        let open = Open { endpoint: endpoint.clone(), _stop: stop.drop_guard() };
        self.open().insert((pod_uid.clone(), Side::Source), open);
        tracing::info!(pod = %pod_uid, ?endpoint, ?bond, "connected to the target");
        Ok(())
    }

    /// A socket in the Pod that the Pod's user may connect to.
    fn bind(&self, path: &PathBuf) -> Result<UnixListener, ProxyError> {
        let text = || path.display().to_string();
        let socket = |source| ProxyError::Socket { path: text(), source };
        if self.pods.exists(path).map_err(socket)? {
            self.pods.remove(path).map_err(socket)?;
        }
        let listener = self.pods.bind_unix(path).map_err(socket)?;
        let own = || -> io::Result<UnixListener> {
            let opened = self
                .pods
                .open_file(path, hostfs::beneath::OFlags::PATH | hostfs::beneath::OFlags::CLOEXEC)
                .map_err(io::Error::other)?;
            std::os::unix::fs::chown(hostfs::beneath::descriptor_path(&opened), Some(USER), Some(USER))?;
            listener.set_nonblocking(true)?;
            UnixListener::from_std(listener)
        };
        own().map_err(|source| ProxyError::Own { path: text(), source })
    }
}

/// The directory of a Pod's migration sockets.
fn migrations(pod_uid: &PodUid) -> PathBuf {
    volume(pod_uid, paths::SHARE_VOLUME).join(sockets::MIGRATIONS)
}

fn socket_path(pod_uid: &PodUid, vmi_uid: &VmiUid, channel: Channel) -> PathBuf {
    migrations(pod_uid).join(channel.socket(vmi_uid.as_str()))
}

/// Connects to a socket in the Pod, waiting for it to appear.
async fn connect_soon(pods: Arc<Root>, path: PathBuf) -> io::Result<UnixStream> {
    let until = tokio::time::Instant::now() + QEMU_WITHIN;
    loop {
        match connect(&pods, path.clone()).await {
            Err(error) if tokio::time::Instant::now() < until && may_appear(&error) => {
                tokio::time::sleep(AGAIN).await;
            }
            other => return other,
        }
    }
}

fn may_appear(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused)
}
