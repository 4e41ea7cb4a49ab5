//! The certificates of an API server, its users and a node agent.

use std::sync::Arc;

use role_tls::{NodeCheck, NodeClient};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use test_support::{Authority, Pair};

pub(crate) struct Pki(pub(crate) Authority);

impl Pki {
    pub(crate) fn new() -> Self {
        Pki(Authority::new())
    }

    /// TLS of a node agent whose certificate has this common name and node. Clients must have a certificate of ours.
    pub(crate) fn agent_config(&self, common_name: &str, node: &str) -> ServerConfig {
        let Pair { cert, key } = self.0.issue_with_uris(common_name, &[], &[role_tls::node_uri(node)]);
        let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate(self.0.pem())).unwrap();
        let clients = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let builder = ServerConfig::builder().with_client_cert_verifier(clients);
        builder.with_single_cert(vec![certificate(&cert)], key).unwrap()
    }

    /// TLS towards node agents, as the program makes it from PEM files.
    pub(crate) fn handler_client(&self) -> NodeClient {
        let Pair { cert, key } = self.0.issue(role_tls::NODE_AGENT_CLIENT, &[]);
        let identity = role_tls::Identity::from_pem(self.0.pem(), &cert, &key).unwrap();
        identity.node_client(role_tls::NODE_AGENT, NodeCheck::Required).unwrap()
    }
}
