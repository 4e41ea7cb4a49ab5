//! Who may connect: the holder of a certificate of our authority with the expected common name.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
};
use tokio_rustls::TlsAcceptor;

use crate::{Error, Tls};

pub(crate) fn acceptor(tls: &Tls) -> Result<TlsAcceptor, Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut roots = RootCertStore::empty();
    for certificate in certificates("client CA", &tls.client_ca_pem)? {
        roots.add(certificate).map_err(Error::Tls)?;
    }
    let authority = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map_err(Error::ClientVerifier)?;
    let verifier = CommonNameVerifier { authority, expected: tls.client_common_name.clone() };
    let chain = certificates("certificate", &tls.cert_pem)?;
    let key =
        PrivateKeyDer::from_pem_slice(tls.key_pem.as_bytes()).map_err(|err| Error::Pem { what: "private key", err })?;
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(Error::Tls)?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, key)
        .map_err(Error::Tls)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

pub(crate) fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(|err| Error::Pem { what, err })
}

/// The authority signs certificates of all components; only one of them may command guests.
#[derive(Debug)]
pub(crate) struct CommonNameVerifier {
    pub(crate) authority: Arc<dyn ClientCertVerifier>,
    pub(crate) expected: String,
}

impl ClientCertVerifier for CommonNameVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.authority.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.authority.verify_client_cert(end_entity, intermediates, now)?;
        if common_name(end_entity).as_deref() == Some(&self.expected) {
            return Ok(verified);
        }
        Err(CertificateError::ApplicationVerificationFailure.into())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authority.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authority.supported_verify_schemes()
    }
}

/// A certificate with several common names is nobody's.
pub(crate) fn common_name(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let mut names = parsed.subject().iter_common_name();
    let name = names.next()?.as_str().ok()?.to_owned();
    names.next().is_none().then_some(name)
}
