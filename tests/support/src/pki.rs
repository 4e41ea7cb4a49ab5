//! A certificate authority for one test, and kubeconfigs with what it signs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::{Value, json};

/// The group that may do anything.
pub const MASTERS: &str = "system:masters";

/// A certificate with its key, both PEM.
#[derive(Clone, Debug)]
pub struct Pair {
    pub cert: String,
    pub key: String,
}

/// Signs certificates of servers on the loopback and of users.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Its own certificate and key: another process that has them is the same authority.
    pub own: Pair,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let mut params = named("test authority", &[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        Self::of(Pair { cert: params.self_signed(&key).unwrap().pem(), key: key.serialize_pem() })
    }

    /// The one with this certificate and key. Installs rustls' provider, which clients and servers with its certificates
    /// need.
    pub fn of(own: Pair) -> Self {
        // A second test in the same process finds it installed; that is fine.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Self { own }
    }

    /// Its certificate, which peers have to trust.
    pub fn pem(&self) -> &str {
        &self.own.cert
    }

    /// For a user with this name in these groups, or a server on the loopback that calls itself so.
    pub fn issue(&self, name: &str, groups: &[&str]) -> Pair {
        self.issue_with_uris(name, groups, &[])
    }

    /// The same, for something that has these URIs, too.
    pub fn issue_with_uris(&self, name: &str, groups: &[&str], uris: &[String]) -> Pair {
        let mut params = named(name, groups);
        let names = CertificateParams::new(vec!["127.0.0.1".to_owned(), "localhost".to_owned()]).unwrap();
        params.subject_alt_names = names.subject_alt_names;
        params.subject_alt_names.extend(uris.iter().map(|uri| SanType::URI(uri.as_str().try_into().unwrap())));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(params)
    }

    /// For a certificate that is like no other.
    pub fn sign(&self, params: CertificateParams) -> Pair {
        let issuer = Issuer::from_ca_cert_pem(self.pem(), KeyPair::from_pem(&self.own.key).unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        Pair { cert: params.signed_by(&key, &issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    /// How a user reaches a server, as a kubeconfig file says it; without a user it shows no certificate.
    pub fn kubeconfig(&self, server: &str, user: Option<&Pair>) -> Value {
        let user = user.map_or(json!({}), |pair| {
            json!({"client-certificate-data": BASE64.encode(&pair.cert), "client-key-data": BASE64.encode(&pair.key)})
        });
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": server, "certificate-authority-data": BASE64.encode(self.pem()),
            }}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": "default"}}],
        })
    }

    /// The same for a client of ours.
    pub async fn client_config(&self, server: &str, user: Option<&Pair>) -> kube::Config {
        let kubeconfig: Kubeconfig = serde_json::from_value(self.kubeconfig(server, user)).unwrap();
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap()
    }

    /// A client of the user with this name and in these groups.
    pub async fn client(&self, server: &str, name: &str, groups: &[&str]) -> kube::Client {
        let config = self.client_config(server, Some(&self.issue(name, groups))).await;
        kube::Client::try_from(config).unwrap()
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// Parameters with nothing but a name; groups are organisations.
pub fn named(name: &str, groups: &[&str]) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params
}
