//! The keys and certificates of one control plane.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use kube::Config;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rcgen::KeyPair;
use serde_json::{Value, json};
use test_support::pki::{Authority, MASTERS};

/// The name of the second administrator.
pub const CONTROLLER: &str = "controller";

/// The name of the API server as a front proxy.
pub(crate) const FRONT_PROXY: &str = "front-proxy";

/// The files an API server on loopback and its first user need.
pub struct Pki {
    pub ca: PathBuf,
    pub server: Pair,
    pub admin: Pair,
    /// A second administrator, for what a test watches.
    pub controller: Pair,
    /// Signs the tokens of service accounts, and tells a good signature.
    pub tokens: Pair,
    /// The authority of front proxies, which is nobody else's: who has a certificate of it speaks for any user.
    pub front_ca: PathBuf,
    /// The API server as a front proxy of aggregated APIs.
    pub front_proxy: Pair,
    authority: Authority,
    folder: PathBuf,
}

/// Files: a key, and its certificate or public half.
pub struct Pair {
    pub public: PathBuf,
    pub key: PathBuf,
}

impl Pki {
    /// Makes them in a folder.
    pub fn new(folder: &Path) -> Result<Pki> {
        let authority = Authority::new();
        let tokens = KeyPair::generate()?;
        let front = Authority::new();
        Ok(Pki {
            front_ca: write(folder, "front-ca.crt", front.pem())?,
            front_proxy: issue(&front, FRONT_PROXY, &[], folder)?,
            ca: write(folder, "ca.crt", authority.pem())?,
            server: issue(&authority, "server", &[], folder)?,
            admin: issue(&authority, "admin", &[MASTERS], folder)?,
            controller: issue(&authority, CONTROLLER, &[MASTERS], folder)?,
            tokens: Pair {
                public: write(folder, "tokens.pub", &tokens.public_key_pem())?,
                key: write(folder, "tokens.key", &tokens.serialize_pem())?,
            },
            authority,
            folder: folder.to_owned(),
        })
    }

    /// A further user, who may do what roles say.
    pub fn user(&self, name: &str, group: &str) -> Result<Pair> {
        issue(&self.authority, name, &[group], &self.folder)
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

/// A certificate of the authority, in files that bear its name.
fn issue(authority: &Authority, name: &str, groups: &[&str], folder: &Path) -> Result<Pair> {
    let test_support::Pair { cert, key } = authority.issue(name, groups);
    let file = name.replace(':', "-");
    Ok(Pair {
        public: write(folder, &format!("{file}.crt"), &cert)?,
        key: write(folder, &format!("{file}.key"), &key)?,
    })
}

fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
