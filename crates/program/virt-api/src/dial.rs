//! Dialing connections to virt-handlers and guests.

use std::io;
use std::net::SocketAddr;

use futures::future::BoxFuture;
use tokio::net::{TcpStream, UdpSocket};

/// Creates sockets in the network of the nodes and Pods.
///
/// A socket belongs to the netns it was created in. On Kubernetes that is the server's own Pod; in an embedded cluster
/// the server runs on the host and reaches the nodes only through sockets created in their network.
pub trait Dialer: Send + Sync + 'static {
    /// Opens a TCP connection to `addr`.
    fn dial(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<TcpStream>>;

    /// Opens a UDP socket connected to `addr`.
    fn dial_udp(&self, addr: SocketAddr) -> BoxFuture<'_, io::Result<UdpSocket>>;
}

/// Dials from the netns of the process.
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
