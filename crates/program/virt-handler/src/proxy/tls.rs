//! TLS between virt-handlers: each authenticates as a virt-handler of this cluster, and of its node.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use role_tls::{NODE_AGENT, NodeCheck, NodeClient, Renewed, Source};
use rustls::ServerConfig;
use rustls::pki_types::ServerName;
use tokio::io::BufReader;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// Read size from the network: rustls itself reads only 4 KiB at a time, a quarter of a record.
const READ: usize = 128 << 10;

type Buffered = BufReader<TcpStream>;

/// Both ends of a connection between virt-handlers, with the certificates that are current at each handshake.
#[derive(Clone)]
pub(crate) struct Peers {
    server: Arc<Renewed<ServerConfig>>,
    client: Arc<Renewed<NodeClient>>,
    check: NodeCheck,
}

impl Peers {
    pub(crate) fn new(identity: Source, check: NodeCheck) -> Peers {
        Peers {
            server: Arc::new(Renewed::new(identity.clone(), |identity| identity.server(NODE_AGENT))),
            client: Arc::new(Renewed::new(identity, move |identity| identity.node_client(NODE_AGENT, check))),
            check,
        }
    }

    /// Accepts the virt-handler of this node, or of any if the node is not known.
    pub(super) async fn accept(&self, tcp: TcpStream, node: Option<&str>) -> io::Result<server::TlsStream<Buffered>> {
        let acceptor = TlsAcceptor::from(self.server.current().map_err(io::Error::other)?);
        let stream = acceptor.accept(BufReader::with_capacity(READ, tcp)).await?;
        if let Some(node) = node {
            let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
            let shown = shown.ok_or_else(|| io::Error::other("the source shows no certificate"))?;
            self.check.check(shown, node).map_err(|_| {
                let why = format!("the source is not the virt-handler of node {node}");
                io::Error::new(io::ErrorKind::PermissionDenied, why)
            })?;
        }
        Ok(stream)
    }

    /// Connects to the virt-handler of this node, or of any if the node is not known.
    pub(super) async fn connect(
        &self,
        tcp: TcpStream,
        address: IpAddr,
        node: Option<&str>,
    ) -> io::Result<client::TlsStream<Buffered>> {
        let client = self.client.current().map_err(io::Error::other)?;
        let config = node.map_or_else(|| client.any(), |node| client.to(node));
        let name = ServerName::IpAddress(address.into());
        TlsConnector::from(config).connect(name, BufReader::with_capacity(READ, tcp)).await
    }
}
