//! Kubeconfigs for the identities of an embedded cluster.

use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::config::{KubeConfigOptions, Kubeconfig};
use serde_json::json;

use super::pki::Pair;

/// A self-contained kubeconfig with all data inline.
pub fn document(server: &str, ca_pem: &str, pair: &Pair) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "ferrovirt",
        "clusters": [{"name": "ferrovirt", "cluster": {
            "server": server,
            "certificate-authority-data": STANDARD.encode(ca_pem),
        }}],
        "users": [{"name": "ferrovirt", "user": {
            "client-certificate-data": STANDARD.encode(&pair.cert),
            "client-key-data": STANDARD.encode(&pair.key),
        }}],
        "contexts": [{"name": "ferrovirt", "context": {
            "cluster": "ferrovirt", "user": "ferrovirt", "namespace": "default",
        }}],
    })
}

/// Writes a kubeconfig that only its owner can read. JSON is valid YAML, so every client reads it.
pub fn write(path: &Path, document: &serde_json::Value) -> Result<()> {
    let text = serde_json::to_vec_pretty(document).context("cannot serialise a kubeconfig")?;
    hostfs::atomic::write_mode(path, &text, 0o600).with_context(|| format!("cannot write {}", path.display()))
}

/// Creates a client from a kubeconfig document.
pub async fn client(document: serde_json::Value) -> Result<kube::Client> {
    let parsed: Kubeconfig = serde_json::from_value(document).context("cannot parse the kubeconfig just made")?;
    let mut config = kube::Config::from_custom_kubeconfig(parsed, &KubeConfigOptions::default())
        .await
        .context("cannot use the kubeconfig just made")?;
    // The cluster is on this machine: ignore proxies from the environment.
    config.proxy_url = None;
    kube::Client::try_from(config).context("cannot make an API client")
}

/// Creates a client from a kubeconfig file.
pub async fn client_from_file(path: &Path) -> Result<kube::Client> {
    let text = std::fs::read(path).with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
    let document = serde_json::from_slice(&text).with_context(|| format!("{} is not a kubeconfig", path.display()))?;
    client(document).await
}
