//! The keys and certificates of one control plane.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::{Value, json};

/// The files an API server on loopback and its first user need.
pub struct Pki {
    pub ca: PathBuf,
    pub server: Pair,
    pub admin: Pair,
    /// Signs the tokens of service accounts, and tells a good signature.
    pub tokens: Pair,
}

/// A key, and its certificate or public half.
pub struct Pair {
    pub public: PathBuf,
    pub key: PathBuf,
}

impl Pki {
    /// Makes them in a folder.
    pub fn new(folder: &Path) -> Result<Pki> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ferrovirt-kube");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?).context("cannot make a CA")?;

        let mut server = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let mut admin = CertificateParams::default();
        admin.distinguished_name.push(DnType::CommonName, "admin");
        admin.distinguished_name.push(DnType::OrganizationName, "system:masters");
        admin.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];

        let tokens = KeyPair::generate()?;
        Ok(Pki {
            ca: write(folder, "ca.crt", &ca.pem())?,
            server: issue(&ca, server, folder, "server")?,
            admin: issue(&ca, admin, folder, "admin")?,
            tokens: Pair {
                public: write(folder, "tokens.pub", &tokens.public_key_pem())?,
                key: write(folder, "tokens.key", &tokens.serialize_pem())?,
            },
        })
    }

    /// How the first user reaches a server on this port, as a kubeconfig file says it.
    pub fn kubeconfig(&self, port: u16) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority": self.ca,
            } }],
            "users": [{ "name": "admin", "user": {
                "client-certificate": self.admin.public,
                "client-key": self.admin.key,
            } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "admin" } }],
        })
    }

    /// The same for a client of ours, which takes every answer as it comes.
    pub async fn client_config(&self, port: u16) -> Result<Config> {
        let kubeconfig: Kubeconfig =
            serde_json::from_value(self.kubeconfig(port)).context("cannot read our own kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(config)
    }
}

fn issue(ca: &CertifiedIssuer<'static, KeyPair>, params: CertificateParams, folder: &Path, name: &str) -> Result<Pair> {
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca).with_context(|| format!("cannot sign the certificate of {name}"))?;
    Ok(Pair {
        public: write(folder, &format!("{name}.crt"), &certificate.pem())?,
        key: write(folder, &format!("{name}.key"), &key.serialize_pem())?,
    })
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
