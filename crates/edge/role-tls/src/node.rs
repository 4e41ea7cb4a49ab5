//! The node in a virt-handler's certificate: a URI among its alternative names.

use std::sync::Arc;

use machinery::identity::NODE_URI_PREFIX;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::{CertificateError, ClientConfig, Error};
use x509_parser::extensions::GeneralName;

use crate::verify::ServerRole;

/// The nodes that a certificate names. One that names several is nobody's; one that names none may be shared.
pub fn nodes_of(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(certificate) else { return vec![] };
    let Ok(Some(names)) = parsed.subject_alternative_name() else { return vec![] };
    let node = |name: &GeneralName<'_>| match name {
        GeneralName::URI(uri) => uri.strip_prefix(NODE_URI_PREFIX).map(str::to_owned),
        _ => None,
    };
    names.value.general_names.iter().filter_map(node).collect()
}

/// What to make of a certificate that names no node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCheck {
    /// It is refused.
    Required,
    /// It is that of any node: installations without virt-operator have one certificate for all.
    IfNamed,
}

impl NodeCheck {
    /// Whether this is a certificate of the node.
    pub fn check(self, certificate: &CertificateDer<'_>, node: &str) -> Result<(), Error> {
        let fits = match nodes_of(certificate).as_slice() {
            [] => self == NodeCheck::IfNamed,
            [named] => named == node,
            _ => false,
        };
        if fits { Ok(()) } else { Err(CertificateError::ApplicationVerificationFailure.into()) }
    }
}

/// Client configurations for servers with one role on different nodes.
#[derive(Debug)]
pub struct NodeClient {
    pub(crate) base: ClientConfig,
    pub(crate) verifier: ServerRole,
    pub(crate) check: NodeCheck,
}

impl NodeClient {
    /// Accepts the server of any node.
    pub fn any(&self) -> Arc<ClientConfig> {
        Arc::new(self.base.clone())
    }

    /// Accepts the server of this node only.
    pub fn to(&self, node: &str) -> Arc<ClientConfig> {
        let mut config = self.base.clone();
        let verifier = ServerRole { node: Some((node.to_owned(), self.check)), ..self.verifier.clone() };
        config.dangerous().set_certificate_verifier(Arc::new(verifier));
        // A session that is resumed shows no certificate.
        config.resumption = Resumption::disabled();
        Arc::new(config)
    }
}
