//! The keys and certificates of one control plane.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use serde_json::{Value, json};

/// The name of the second administrator.
pub const CONTROLLER: &str = "controller";

/// The files an API server on loopback and its first user need.
pub struct Pki {
    pub ca: PathBuf,
    pub server: Pair,
    pub admin: Pair,
    /// A second administrator, for what a test watches.
    pub controller: Pair,
    /// Signs the tokens of service accounts, and tells a good signature.
    pub tokens: Pair,
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: PathBuf,
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

        let tokens = KeyPair::generate()?;
        Ok(Pki {
            ca: write(folder, "ca.crt", &ca.pem())?,
            server: issue(&ca, server, folder, "server")?,
            admin: issue(&ca, administrator("admin"), folder, "admin")?,
            controller: issue(&ca, administrator(CONTROLLER), folder, CONTROLLER)?,
            tokens: Pair {
                public: write(folder, "tokens.pub", &tokens.public_key_pem())?,
                key: write(folder, "tokens.key", &tokens.serialize_pem())?,
            },
            issuer: ca,
            folder: folder.to_owned(),
        })
    }

    /// A further user, who may do what roles say.
    pub fn user(&self, name: &str, group: &str) -> Result<Pair> {
        issue(&self.issuer, user(name, group), &self.folder, &name.replace(':', "-"))
    }

    /// How a user reaches a server on this port, as a kubeconfig file says it.
    pub fn kubeconfig(&self, port: u16, user: &Pair) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{ "name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{port}"),
                "certificate-authority": self.ca,
            } }],
            "users": [{ "name": "user", "user": { "client-certificate": user.public, "client-key": user.key } }],
            "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "user" } }],
        })
    }

    /// The same for a client of the first administrator, which takes every answer as it comes.
    pub async fn client_config(&self, port: u16) -> Result<Config> {
        self.client_config_of(port, &self.admin).await
    }

    /// The same for another user.
    pub async fn client_config_of(&self, port: u16, user: &Pair) -> Result<Config> {
        let kubeconfig: Kubeconfig =
            serde_json::from_value(self.kubeconfig(port, user)).context("cannot read our own kubeconfig")?;
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        config.default_retry = false;
        Ok(config)
    }
}

/// A user who may do anything.
fn administrator(name: &str) -> CertificateParams {
    user(name, "system:masters")
}

fn user(name: &str, group: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, group);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    params
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
