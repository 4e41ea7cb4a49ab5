//! TLS between virt-handlers: each authenticates as a virt-handler of this cluster.

use std::sync::Arc;

use role_tls::{Error, Identity, NODE_AGENT};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// Both ends of a connection between virt-handlers.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) connector: TlsConnector,
}

impl Peers {
    pub(crate) fn new(identity: &Identity) -> Result<Peers, Error> {
        Ok(Peers {
            acceptor: TlsAcceptor::from(Arc::new(identity.server(NODE_AGENT)?)),
            connector: TlsConnector::from(Arc::new(identity.client(NODE_AGENT)?)),
        })
    }
}
