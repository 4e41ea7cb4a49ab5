//! Where connections start.

use std::io;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use tokio::net::{TcpStream, UdpSocket};

/// Makes sockets in the network that node agents and Pods live in.
///
/// A socket belongs to the network namespace it was made in. On Kubernetes that is the server's own Pod; in the
/// embedded shape the server runs on the host and reaches the nodes only through sockets made in their network.
pub trait Dialer: Send + Sync + 'static {
    /// A connection to `addr`.
    fn dial(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;

    /// A datagram socket whose only peer is `addr`.
    fn dial_udp(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<UdpSocket>>;
}

/// Dials from the network the process itself is in.
#[derive(Clone, Copy, Debug, Default)]
pub struct LocalDialer;

impl Dialer for LocalDialer {
    fn dial(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>> {
        Box::pin(TcpStream::connect(addr))
    }

    fn dial_udp(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<UdpSocket>> {
        Box::pin(async move {
            let unspecified: SocketAddr = if addr.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
            let socket = UdpSocket::bind(unspecified).await?;
            socket.connect(addr).await?;
            Ok(socket)
        })
    }
}
