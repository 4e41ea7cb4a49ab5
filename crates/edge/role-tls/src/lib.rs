//! Mutual TLS between our own programs: each presents a certificate of the cluster's CA that names its role.
//!
//! Virt-handlers are reached at whatever address they publish, and addresses change, so certificates name a role
//! instead of a host. The CA signs the certificates of all programs; the common name determines the role. That of a
//! virt-handler also names its node, so that the virt-handler of one node cannot pass for that of another. Both ends are
//! ours, so only TLS 1.3 is supported.

mod files;
mod node;
mod serving;
mod verify;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub use files::{FilesError, IdentityFiles, Renewed, Source};
pub use machinery::identity::node_uri;
pub use node::{NodeCheck, NodeClient, nodes_of};
pub use serving::{Certificate, CertificateError, Certificates};
pub use verify::common_name;
use verify::{ClientRole, ServerRole};

/// Common name of every virt-handler, for virt-api and other virt-handlers.
pub const NODE_AGENT: &str = "kubevirt.io:system:node:virt-handler";
/// Common name of virt-handler's client, virt-api.
pub const NODE_AGENT_CLIENT: &str = "kubevirt.io:system:client:virt-handler";

/// Why TLS between our programs cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("failed to read the {what} as PEM")]
    Pem {
        what: &'static str,
        #[source]
        err: pem::Error,
    },
    #[error("failed to set up TLS with the given certificates")]
    Rustls(#[source] rustls::Error),
    #[error("failed to set up the check of client certificates")]
    ClientVerifier(#[source] VerifierBuilderError),
}

/// A program's own certificate and the CA it trusts.
#[derive(Debug)]
pub struct Identity {
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
}

impl Identity {
    /// Creates an identity from the CA certificate, the program's certificate and its key.
    pub fn from_pem(ca: &str, certificate: &str, key: &str) -> Result<Identity, Error> {
        let mut roots = RootCertStore::empty();
        for ca in certificates("certificate authority", ca)? {
            roots.add(ca).map_err(Error::Rustls)?;
        }
        Ok(Identity {
            roots: Arc::new(roots),
            chain: certificates("certificate", certificate)?,
            key: PrivateKeyDer::from_pem_slice(key.as_bytes())
                .map_err(|err| Error::Pem { what: "private key", err })?,
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        })
    }

    /// Server configuration that accepts clients with the role `client`.
    pub fn server(&self, client: &str) -> Result<ServerConfig, Error> {
        let authority = WebPkiClientVerifier::builder_with_provider(self.roots.clone(), self.provider.clone())
            .build()
            .map_err(Error::ClientVerifier)?;
        ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Rustls)?
            .with_client_cert_verifier(Arc::new(ClientRole { authority, role: client.to_owned() }))
            .with_single_cert(self.chain.clone(), self.key.clone_key())
            .map_err(Error::Rustls)
    }

    /// Client configuration that accepts servers with the role `server`, at any address and on any node.
    pub fn client(&self, server: &str) -> Result<ClientConfig, Error> {
        self.client_with(self.verifier(server))
    }

    /// Client configurations that accept servers with the role `server` on the node that is asked for.
    pub fn node_client(&self, server: &str, check: NodeCheck) -> Result<NodeClient, Error> {
        let verifier = self.verifier(server);
        Ok(NodeClient { base: self.client_with(verifier.clone())?, verifier, check })
    }

    fn verifier(&self, server: &str) -> ServerRole {
        let (roots, provider) = (self.roots.clone(), self.provider.clone());
        ServerRole { roots, provider, role: server.to_owned(), node: None }
    }

    fn client_with(&self, verifier: ServerRole) -> Result<ClientConfig, Error> {
        ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Rustls)?
            .dangerous() // verifies the role instead of the host name
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(self.chain.clone(), self.key.clone_key())
            .map_err(Error::Rustls)
    }
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|err| Error::Pem { what, err })
}
