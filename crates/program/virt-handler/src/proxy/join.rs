//! Connections of a proxy: accepted on one side, dialled on the other, copied both ways.
//!
//! Both sides connect in the order of arrival: QEMU takes the first connection as its main channel and the others for
//! memory. Only the copying is concurrent.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, BufReader};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use tokio_util::task::TaskTracker;

/// Buffer size per direction. Large enough for efficient copying, small enough for many connections.
const BUFFER: usize = 256 << 10;
/// Read size from the network with TLS: rustls itself reads only 4 KiB at a time, a quarter of a record.
const TLS_READ: usize = 128 << 10;
/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
const DIAL: Duration = Duration::from_secs(10);
/// A peer that acknowledges no data or keep-alive probe for this long is considered dead.
const DEAD_AFTER: Duration = Duration::from_secs(10);
const PROBE_EVERY: Duration = Duration::from_secs(3);
const PROBES: u32 = 3;

/// Accepts connections from the source virt-handler for ever, and connects each to the Pod.
pub(super) async fn accept_tcp<F>(listener: TcpListener, acceptor: Option<TlsAcceptor>, connect: impl Fn() -> F)
where
    F: Future<Output = io::Result<UnixStream>>,
{
    let connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => match incoming(stream, acceptor.as_ref(), &connect).await {
                Ok((outside, inside)) => connections.spawn(async move { ended(copy(outside, inside).await, peer) }),
                Err(error) => ended(Err(error), peer),
            },
            Err(error) => pause(&error).await,
        }
    }
}

/// Accepts connections from the Pod for ever, and dials the target virt-handler for each.
pub(super) async fn accept_unix(listener: UnixListener, to: SocketAddr, connector: Option<TlsConnector>) {
    let connections = Connections::default();
    loop {
        match listener.accept().await {
            Ok((inside, _)) => match outgoing(to, connector.as_ref()).await {
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

/// A connection between two virt-handlers, encrypted or not.
trait Outside: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Outside for T {}

async fn incoming<F>(
    stream: TcpStream,
    acceptor: Option<&TlsAcceptor>,
    connect: &impl Fn() -> F,
) -> io::Result<(Box<dyn Outside>, UnixStream)>
where
    F: Future<Output = io::Result<UnixStream>>,
{
    watch_peer(&stream)?;
    // Connects to the Pod only after the peer has authenticated.
    let outside: Box<dyn Outside> = match acceptor {
        Some(acceptor) => {
            let stream = BufReader::with_capacity(TLS_READ, stream);
            Box::new(within(HANDSHAKE, acceptor.accept(stream)).await?)
        }
        None => Box::new(stream),
    };
    Ok((outside, connect().await?))
}

async fn outgoing(to: SocketAddr, connector: Option<&TlsConnector>) -> io::Result<Box<dyn Outside>> {
    let tcp = within(DIAL, TcpStream::connect(to)).await?;
    watch_peer(&tcp)?;
    Ok(match connector {
        Some(connector) => {
            let name = ServerName::IpAddress(to.ip().into());
            let tcp = BufReader::with_capacity(TLS_READ, tcp);
            Box::new(within(HANDSHAKE, connector.connect(name, tcp)).await?)
        }
        None => Box::new(tcp),
    })
}

async fn within<T>(limit: Duration, work: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    tokio::time::timeout(limit, work).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

/// Has the kernel detect a dead peer. Disables Nagle's algorithm, since libvirt waits for responses to small messages.
fn watch_peer(stream: &TcpStream) -> io::Result<()> {
    use rustix::net::sockopt;
    let socket = stream.as_fd();
    let milliseconds = u32::try_from(DEAD_AFTER.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_nodelay(socket, true)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepintvl(socket, PROBE_EVERY)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, milliseconds)?;
    Ok(())
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
