//! How this server and the node agents know each other.
//!
//! Node agents are dialled by address, and addresses come and go, so certificates name a role and not a host: the
//! agent's certificate must come from our own authority and carry the role's common name. That is all the identity
//! there is, which is why the authority signs nothing else.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};
use rustls::server::ParsedCertificate;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

/// Common name of every node agent's serving certificate.
pub const HANDLER_COMMON_NAME: &str = "kubevirt.io:system:node:virt-handler";

/// Why the TLS settings towards the node agents could not be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Certificates or a key are not PEM.
    #[error("failed to read the {what} for connections to node agents")]
    Pem {
        /// Which of the inputs.
        what: &'static str,
        #[source]
        err: rustls::pki_types::pem::Error,
    },
    /// rustls refused the certificates.
    #[error("failed to set up TLS for connections to node agents")]
    Rustls(#[source] rustls::Error),
}

/// The client side of connections to node agents: our certificate, their authority, and the role they must have.
pub fn handler_client_config(ca_pem: &[u8], cert_pem: &[u8], key_pem: &[u8]) -> Result<ClientConfig, TlsError> {
    let mut roots = RootCertStore::empty();
    for ca in certificates("certificate authority", ca_pem)? {
        roots.add(ca).map_err(TlsError::Rustls)?;
    }
    let chain = certificates("client certificate", cert_pem)?;
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|err| TlsError::Pem { what: "client key", err })?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let verifier = RoleVerifier { roots, provider: provider.clone() };
    ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Rustls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_auth_cert(chain, key)
        .map_err(TlsError::Rustls)
}

fn certificates(what: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|err| TlsError::Pem { what, err })
}

/// Accepts a certificate of our authority with the node agents' common name, whatever address it was met at.
#[derive(Debug)]
struct RoleVerifier {
    roots: RootCertStore,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for RoleVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let algorithms = self.provider.signature_verification_algorithms.all;
        let parsed = ParsedCertificate::try_from(end_entity)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, intermediates, now, algorithms)?;
        match common_name(end_entity) {
            Some(name) if name == HANDLER_COMMON_NAME => Ok(ServerCertVerified::assertion()),
            _ => Err(rustls::CertificateError::NotValidForName.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    parsed.subject().iter_common_name().next()?.as_str().ok().map(str::to_owned)
}
