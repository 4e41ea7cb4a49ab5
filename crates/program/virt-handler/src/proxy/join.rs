//! Connections of a proxy: accepted on one side, dialled on the other, copied both ways.
//!
//! Both sides connect in the order of arrival: QEMU takes the first connection as its main channel and the others for
//! memory. Only the copying is concurrent.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use launcher_contract::Channel;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_util::task::TaskTracker;

use super::gate::{Entrance, Exit};

/// Buffer size per direction. Large enough for efficient copying, small enough for many connections.
const BUFFER: usize = 256 << 10;

/// Accepts connections from the source virt-handler for ever, and connects each to the Pod.
pub(super) async fn accept_tcp<F>(
    listener: TcpListener,
    entrance: Arc<Entrance>,
    channel: Channel,
    connect: impl Fn() -> F,
) where
    F: Future<Output = io::Result<UnixStream>>,
{
    let connections = Connections::default();
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        // Connects to the Pod only after the peer has authenticated.
        let joined = async {
            let Some(outside) = entrance.admit(stream, channel).await? else { return io::Result::Ok(None) };
            Ok(Some((outside, connect().await?)))
        };
        match joined.await {
            Ok(Some((outside, inside))) => {
                connections.spawn(async move { ended(copy(outside, inside).await, peer) });
            }
            Ok(None) => tracing::debug!(%peer, "the source has its token"),
            Err(error) => ended(Err(error), peer),
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
