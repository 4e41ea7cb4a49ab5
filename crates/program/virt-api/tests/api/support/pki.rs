//! An authority and its certificates.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

pub(crate) struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    pub(crate) fn new() -> Self {
        // A second test in the same process finds it installed; that is fine.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let mut params = named("test authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Pki { ca: CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap() }
    }

    /// TLS of a node agent whose certificate has this common name. Clients must have a certificate of ours.
    pub(crate) fn agent_config(&self, common_name: &str) -> ServerConfig {
        let (cert, key) = self.issue(common_name, ExtendedKeyUsagePurpose::ServerAuth);
        let mut roots = RootCertStore::empty();
        roots.add(self.ca.as_ref().der().clone()).unwrap();
        let clients = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
        let chain = vec![CertificateDer::from(cert.der().to_vec())];
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
        ServerConfig::builder().with_client_cert_verifier(clients).with_single_cert(chain, key).unwrap()
    }

    /// TLS towards node agents, as the program makes it from PEM files.
    pub(crate) fn handler_client_config(&self) -> ClientConfig {
        let (cert, key) = self.issue(role_tls::NODE_AGENT_CLIENT, ExtendedKeyUsagePurpose::ClientAuth);
        let identity = role_tls::Identity::from_pem(&self.ca_pem(), &cert.pem(), &key.serialize_pem()).unwrap();
        identity.client(role_tls::NODE_AGENT).unwrap()
    }

    /// The authority's own certificate.
    pub(crate) fn ca_pem(&self) -> String {
        self.ca.as_ref().pem()
    }

    /// Certificate and key of a server on the loopback.
    pub(crate) fn server(&self) -> (String, String) {
        self.pem(CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap())
    }

    /// Certificate and key of a user.
    pub(crate) fn user(&self, name: &str, groups: &[&str]) -> (String, String) {
        let mut params = named(name);
        for group in groups {
            params.distinguished_name.push(DnType::OrganizationName, *group);
        }
        self.pem(params)
    }

    fn pem(&self, params: CertificateParams) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.ca).unwrap().pem(), key.serialize_pem())
    }

    fn issue(&self, common_name: &str, usage: ExtendedKeyUsagePurpose) -> (rcgen::Certificate, KeyPair) {
        let mut params = named(common_name);
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.ca).unwrap(), key)
    }
}

fn named(common_name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}
