//! Whom a TLS client trusts.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

#[derive(Clone, Debug, Default)]
pub(crate) struct Trust {
    /// In addition to the machine's certificates.
    pub(crate) ca_pem: Option<String>,
    /// Anybody.
    pub(crate) insecure: bool,
}

impl Trust {
    pub(crate) fn config(&self) -> Result<Arc<ClientConfig>, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|err| format!("TLS cannot be set up: {err}"))?;
        if self.insecure {
            let anybody = Arc::new(Anybody(provider));
            return Ok(Arc::new(builder.dangerous().with_custom_certificate_verifier(anybody).with_no_client_auth()));
        }
        let mut roots = RootCertStore::empty();
        // What the machine does not have or cannot be read is missed when a server needs it.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if let Some(pem) = &self.ca_pem {
            let mut found = false;
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                let certificate = certificate.map_err(|err| format!("the CA certificate is no PEM: {err}"))?;
                roots.add(certificate).map_err(|err| format!("the CA certificate cannot be used: {err}"))?;
                found = true;
            }
            if !found {
                return Err("the CA certificate is no PEM: it holds no certificate".to_owned());
            }
        }
        Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
    }
}

/// Whoever asks for this gives up knowing whom he talks to.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
