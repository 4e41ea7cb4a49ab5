//! Node agents among themselves: TLS 1.3, and each shows that it is a node agent of this cluster.
//!
//! Addresses say nothing: agents are reached by whatever address they publish, and all have the same name in their
//! certificates. What counts is the authority that signed and the common name.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::rest::tls::{CommonNameVerifier, certificates, common_name};
use crate::{Error, Tls};

/// The common name in the certificate of every node agent.
pub(crate) const NODE_AGENT: &str = "kubevirt.io:system:node:virt-handler";

/// Both ends of a connection between node agents.
#[derive(Clone)]
pub(crate) struct Peers {
    pub(crate) acceptor: TlsAcceptor,
    pub(crate) connector: TlsConnector,
}

impl Peers {
    pub(crate) fn new(tls: &Tls) -> Result<Peers, Error> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates("client CA", &tls.client_ca_pem)? {
            roots.add(certificate).map_err(Error::Tls)?;
        }
        let roots = Arc::new(roots);
        let key = || {
            PrivateKeyDer::from_pem_slice(tls.key_pem.as_bytes()).map_err(|err| Error::Pem { what: "private key", err })
        };
        let chain = certificates("certificate", &tls.cert_pem)?;
        let authority = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone())
            .build()
            .map_err(Error::ClientVerifier)?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Tls)?
            .with_client_cert_verifier(Arc::new(CommonNameVerifier { authority, expected: NODE_AGENT.to_owned() }))
            .with_single_cert(chain.clone(), key()?)
            .map_err(Error::Tls)?;
        let client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(Error::Tls)?
            .dangerous() // the host's name is not checked; see above for what is
            .with_custom_certificate_verifier(Arc::new(NodeAgentVerifier { roots, provider }))
            .with_client_auth_cert(chain, key()?)
            .map_err(Error::Tls)?;
        Ok(Peers { acceptor: TlsAcceptor::from(Arc::new(server)), connector: TlsConnector::from(Arc::new(client)) })
    }
}

#[derive(Debug)]
struct NodeAgentVerifier {
    roots: Arc<RootCertStore>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for NodeAgentVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let parsed = ParsedCertificate::try_from(end_entity)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        if common_name(end_entity).as_deref() == Some(NODE_AGENT) {
            return Ok(ServerCertVerified::assertion());
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
