//! Reaching nodes and Pods from the supervisor, which itself stays in the host's netns.
//!
//! A socket belongs to the netns it was created in, so each connection is opened on a thread inside the fabric and used
//! from here; there is no link between the host's network and the fabric.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;

/// Connection timeout; within one machine a node that takes longer is not there.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Clone, Debug)]
pub struct FabricDialer {
    netns: Arc<OwnedFd>,
}

impl FabricDialer {
    pub fn new(netns: OwnedFd) -> Self {
        Self { netns: Arc::new(netns) }
    }

    /// Runs blocking work on a thread inside the fabric.
    fn inside<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> BoxFuture<'static, io::Result<T>> {
        let netns = self.netns.clone();
        let running = tokio::task::spawn_blocking(move || {
            hostfs::ns::run_in_netns(netns.as_ref(), work).map_err(io::Error::other)?
        });
        async move { running.await.map_err(io::Error::other)? }.boxed()
    }

    /// Listens inside the fabric.
    pub fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        hostfs::ns::run_in_netns(self.netns.as_ref(), || TcpListener::bind(address)).map_err(io::Error::other)?
    }
}

impl virt_api::Dialer for FabricDialer {
    fn dial(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<tokio::net::TcpStream>> {
        let stream = self.inside(move || TcpStream::connect_timeout(&address, TIMEOUT));
        async move {
            let stream = stream.await?;
            stream.set_nonblocking(true)?;
            tokio::net::TcpStream::from_std(stream)
        }
        .boxed()
    }

    fn dial_udp(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<tokio::net::UdpSocket>> {
        let socket = self.inside(move || {
            let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
            socket.connect(address)?;
            Ok(socket)
        });
        async move {
            let socket = socket.await?;
            socket.set_nonblocking(true)?;
            tokio::net::UdpSocket::from_std(socket)
        }
        .boxed()
    }
}
