//! The certificate a server shows to clients that know it by its host name, read anew when its files change.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Certificate {
    /// Files, checked for changes at every handshake.
    Files { cert: PathBuf, key: PathBuf },
    /// Generated at startup for these host names, for clients that do not verify the server.
    SelfSigned { names: Vec<String> },
}

/// Why a server has no certificate.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    #[error("failed to read the certificate {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    #[error("failed to use the certificate for TLS")]
    Tls(#[source] rustls::Error),
    #[error("failed to make a certificate")]
    SelfSigned(#[source] rcgen::Error),
}

/// The current serving certificate.
#[derive(Debug)]
pub struct Certificates {
    source: Certificate,
    provider: Arc<CryptoProvider>,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    key: Arc<CertifiedKey>,
    written: Option<[SystemTime; 2]>,
    /// The change that could not be read, reported once.
    bad: Option<[SystemTime; 2]>,
}

impl Certificates {
    /// Reads or makes the certificate.
    pub fn new(source: Certificate, provider: &Arc<CryptoProvider>) -> Result<Self, CertificateError> {
        let (written, key) = (written(&source), Arc::new(load(&source, provider)?));
        let current = Mutex::new(Current { key, written, bad: None });
        Ok(Self { source, provider: provider.clone(), current })
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

impl Certificates {
    fn current(&self) -> Arc<CertifiedKey> {
        let mut current = self.current.lock();
        let written = written(&self.source);
        if written != current.written {
            match load(&self.source, &self.provider) {
                Ok(key) => *current = Current { key: Arc::new(key), written, bad: None },
                // Between the writes of two files they do not fit; the next handshake looks again.
                Err(error) if current.bad != written => {
                    current.bad = written;
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(error, "the new certificate is invalid; keeping the old one");
                }
                Err(_) => {}
            }
        }
        current.key.clone()
    }
}

/// When the files were written, if both are there.
pub(crate) fn written_at<const N: usize>(paths: [&Path; N]) -> Option<[SystemTime; N]> {
    let times = paths.map(|path| std::fs::metadata(path).and_then(|meta| meta.modified()).ok());
    let known: Vec<SystemTime> = times.into_iter().collect::<Option<_>>()?;
    known.try_into().ok()
}

fn written(source: &Certificate) -> Option<[SystemTime; 2]> {
    match source {
        Certificate::Files { cert, key } => written_at([cert, key]),
        Certificate::SelfSigned { .. } => None,
    }
}

fn load(source: &Certificate, provider: &CryptoProvider) -> Result<CertifiedKey, CertificateError> {
    let (chain, key) = match source {
        Certificate::Files { cert, key } => {
            let unreadable = |path: &Path| {
                let path = path.to_owned();
                |source| CertificateError::Read { path, source }
            };
            let chain = CertificateDer::pem_file_iter(cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            let chain = chain.map_err(unreadable(cert))?;
            (chain, PrivateKeyDer::from_pem_file(key).map_err(unreadable(key))?)
        }
        Certificate::SelfSigned { names } => {
            let made = rcgen::generate_simple_self_signed(names.clone()).map_err(CertificateError::SelfSigned)?;
            let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
            (vec![made.cert.der().clone()], key)
        }
    };
    CertifiedKey::from_der(chain, key, provider).map_err(CertificateError::Tls)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rcgen::KeyPair;
    use test_support::pki::{self, Authority};

    use super::*;

    #[test]
    fn a_pair_is_taken_when_both_files_fit() {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let folder = tempfile::tempdir().unwrap();
        let (cert, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
        let authority = Authority::new();
        let mut age = SystemTime::UNIX_EPOCH;
        let mut write = |path: &Path, text: &str| {
            std::fs::write(path, text).unwrap();
            age += Duration::from_secs(1);
            std::fs::File::options().write(true).open(path).unwrap().set_modified(age).unwrap();
        };
        let (first, second) = (authority.sign(pki::named("a", &[])), authority.sign(pki::named("b", &[])));
        write(&cert, &first.cert);
        write(&key, &first.key);
        let certificates = Certificates::new(Certificate::Files { cert: cert.clone(), key: key.clone() }, &provider);
        let certificates = certificates.unwrap();
        let shown = || certificates.current().cert[0].clone();
        let before = shown();
        write(&cert, &second.cert);
        assert_eq!(shown(), before, "the key is still the old one");
        write(&key, &second.key);
        assert_ne!(shown(), before);
        write(&key, &KeyPair::generate().unwrap().serialize_pem());
        assert_ne!(shown(), before, "a stranger's key leaves the last good pair");
    }
}
