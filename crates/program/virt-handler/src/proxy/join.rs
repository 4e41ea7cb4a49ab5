//! Connections of a proxy: accepted on one side, dialled on the other, copied both ways.
//!
//! Both sides connect in the order of arrival: QEMU takes the first connection as its main channel and the others for
//! memory. Only the copying is concurrent, and at the target the handshakes ([`arrivals`](super::arrivals)).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::future::{AbortHandle, Abortable, Aborted};
use futures::stream::FuturesUnordered;
use launcher_contract::Channel;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use super::arrivals::{Arrivals, Spoke};
use super::gate::{Entrance, Exit, Outside};

/// Buffer size per direction. Large enough for efficient copying, small enough for many connections.
const BUFFER: usize = 256 << 10;
/// Maximum number of connections that wait for the Pod to accept them. QEMU's source opens a dozen.
const ADMITTED: usize = 64;

/// Accepts connections from the source virt-handler for ever, and connects each to the Pod.
pub(super) async fn accept_tcp<F>(
    listener: TcpListener,
    entrance: Arc<Entrance>,
    channel: Channel,
    connect: impl Fn() -> F,
) where
    F: Future<Output = io::Result<UnixStream>>,
{
    let (admit, mut admitted) = mpsc::channel(ADMITTED);
    let admit_all = admit_all(listener, &entrance, channel, admit);
    let join_all = async {
        let connections = Connections::default();
        while let Some((outside, peer)) = admitted.recv().await {
            match connect().await {
                Ok(inside) => connections.spawn(async move { ended(copy(outside, inside).await, peer) }),
                Err(error) => ended(Err(error), peer),
            }
        }
    };
    tokio::join!(admit_all, join_all);
}

/// A connection of the source.
type Admitted = (Box<dyn Outside>, SocketAddr);

/// Lets peers authenticate, all at the same time: a client that says nothing delays nobody.
async fn admit_all(listener: TcpListener, entrance: &Entrance, channel: Channel, admit: mpsc::Sender<Admitted>) {
    let mut arrivals = Arrivals::default();
    let mut handshakes = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    let spoke = Spoke::default();
                    let (handle, registration) = AbortHandle::new_pair();
                    let (number, left) = arrivals.arrive(peer.ip(), spoke.clone(), handle);
                    if let Some(address) = left {
                        tracing::info!(%address, "too many migration connections in their handshake; closed the oldest");
                    }
                    let handshake = async move { entrance.admit(stream, channel, &spoke).await };
                    let handshake = Abortable::new(handshake, registration);
                    handshakes.push(async move { (number, peer, handshake.await) });
                }
                Err(error) => pause(&error).await,
            },
            Some((number, peer, result)) = handshakes.next() => {
                let admitted = match result {
                    Ok(Ok(Some(outside))) => Some((outside, peer)),
                    Ok(Ok(None)) => {
                        tracing::debug!(%peer, "the source has its token");
                        None
                    }
                    Ok(Err(error)) => {
                        ended(Err(error), peer);
                        None
                    }
                    Err(Aborted) => None,
                };
                arrivals.settle(number, admitted);
                while let Some(admitted) = arrivals.take() {
                    if let Err(refused) = admit.try_send(admitted) {
                        let peer = refused.into_inner().1;
                        tracing::warn!(%peer, "closed a migration connection: the target's Pod does not accept them");
                    }
                }
            }
        }
    }
}

/// Accepts connections from the Pod for ever, and dials the target virt-handler for each.
pub(super) async fn accept_unix(listener: UnixListener, to: SocketAddr, channel: Channel, exit: Arc<Exit>) {
    let connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((inside, _)) => match exit.connect(to, channel).await {
                Ok(outside) => connections.spawn(async move { ended(copy(outside, inside).await, to) }),
                Err(error) => ended(Err(error), to),
            },
            Err(error) => pause(&error).await,
        }
    }
}

/// The connections of one listener; closed with it.
#[derive(Default)]
struct Connections {
    tasks: TaskTracker,
    stop: tokio_util::sync::CancellationToken,
}

impl Connections {
    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        let stop = self.stop.clone();
        self.tasks.spawn(async move { stop.run_until_cancelled(work).await });
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn copy(
    mut a: impl AsyncRead + AsyncWrite + Unpin,
    mut b: impl AsyncRead + AsyncWrite + Unpin,
) -> io::Result<()> {
    tokio::io::copy_bidirectional_with_sizes(&mut a, &mut b, BUFFER, BUFFER).await.map(drop)
}

fn ended(joined: io::Result<()>, peer: SocketAddr) {
    match joined {
        Ok(()) => tracing::debug!(%peer, "a migration connection ended"),
        Err(error) => tracing::info!(%peer, %error, "migration connection broke"),
    }
}

/// Most likely out of descriptors; gives others time to close theirs.
async fn pause(error: &io::Error) {
    tracing::warn!(%error, "failed to accept a migration connection");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
