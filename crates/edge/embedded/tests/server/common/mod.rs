//! The server of a test with KubeVirt's rules, and requests by hand.
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use api::config::ClusterConfig;
use api::rights::{Identity, Program, Right, Verb};
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use review::Hook;
use serde_json::{Value, json};
use tempfile::TempDir;
pub(crate) use test_support::eventually;
pub(crate) use test_support::pki::{Authority, MASTERS, Pair};
use virt_api::Admission;

/// A server that asks KubeVirt's rules about writes. Its clients do not retry: a test wants to see every answer.
pub(crate) struct TestServer {
    base: test_server::TestServer,
    /// The rules of KubeVirt, as every cluster of ours has them.
    pub(crate) admission: Arc<Admission>,
}

impl Deref for TestServer {
    type Target = test_server::TestServer;

    fn deref(&self) -> &Self::Target {
        &self.base
    }
}

/// As a cluster is configured whose machines need not say how they are connected.
fn cluster_config() -> ClusterConfig {
    let kubevirt = json!({"metadata": {"name": "kubevirt"}, "spec": {"configuration": {
        "network": {"defaultNetworkInterface": "masquerade"},
        "virtualMachineOptions": {"disableSerialConsoleLog": {}},
    }}});
    ClusterConfig::from_kubevirt(&serde_json::from_value(kubevirt).unwrap()).unwrap()
}

/// Stand-ins for the programs of a cluster, as far as these tests act in their names.
fn programs() -> [Program; 2] {
    let controller = vec![Right::on::<VirtualMachineInstance>(Verb::ALL)];
    let node =
        vec![Right::on::<Node>(&[Verb::Create]), Right::on_status::<Node>(&[Verb::Patch]), Right::watch::<Pod>()];
    [
        Program { name: "kubevirt-controller", identity: Identity::Account, rights: controller },
        Program { name: "system:node", identity: Identity::Group("system:nodes"), rights: node },
    ]
}

/// Writes an authority down for the server of another process.
pub(crate) fn save(authority: &Authority, dir: &Path) {
    std::fs::write(dir.join("ca.crt"), &authority.own.cert).unwrap();
    std::fs::write(dir.join("ca.key"), &authority.own.key).unwrap();
}

/// The authority that was saved here.
pub(crate) fn load(dir: &Path) -> Authority {
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
    Authority::of(Pair { cert: read("ca.crt"), key: read("ca.key") })
}

/// A client without retries; without a user it shows no certificate.
pub(crate) async fn client(authority: &Authority, port: u16, user: Option<&Pair>) -> Client {
    let mut config = authority.client_config(&format!("https://127.0.0.1:{port}"), user).await;
    config.default_retry = false;
    Client::try_from(config).unwrap()
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), Authority::new()).await
    }

    /// With somebody else who is asked about writes, before the rules are.
    pub(crate) async fn start_with(hook: Arc<dyn Hook>) -> Self {
        Self::open(tempfile::tempdir().unwrap(), Authority::new(), 0, vec![hook]).await
    }

    /// On a directory that may hold a store already.
    pub(crate) async fn start_in(dir: TempDir, authority: Authority) -> Self {
        Self::start_at(dir, authority, 0).await
    }

    /// And on the port that clients know.
    pub(crate) async fn start_at(dir: TempDir, authority: Authority, port: u16) -> Self {
        Self::open(dir, authority, port, vec![]).await
    }

    async fn open(dir: TempDir, authority: Authority, port: u16, mut hooks: Vec<Arc<dyn Hook>>) -> Self {
        let admission = Arc::<Admission>::default();
        admission.configure(cluster_config());
        hooks.push(admission.clone());
        let base = test_server::TestServer::start_at(dir, authority, port, hooks, &programs()).await;
        Self { base, admission }
    }

    pub(crate) async fn admin(&self) -> Client {
        self.client("admin", &[MASTERS]).await
    }

    pub(crate) async fn client(&self, name: &str, groups: &[&str]) -> Client {
        client(&self.authority, self.port(), Some(&self.authority.issue(name, groups))).await
    }

    /// Ends serving and gives the store back.
    pub(crate) async fn stop(self) -> (TempDir, Authority) {
        self.base.stop().await
    }
}

/// A namespace of the test's own.
pub(crate) async fn namespace(client: &Client, name: &str) -> String {
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
    let created = Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    created.name_any()
}

/// A request by hand: method, path, headers, body. Returns the code and the answer.
pub(crate) async fn raw(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, String) {
    let (code, _, text) = raw_with_headers(client, method, path, headers, body).await;
    (code, text)
}

pub(crate) async fn raw_with_headers(
    client: &Client,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> (u16, http::HeaderMap, String) {
    let mut request = http::Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(kube::client::Body::from(body.as_bytes().to_vec())).unwrap();
    let (parts, body) = client.send(request).await.unwrap().into_parts();
    let bytes = axum::body::to_bytes(axum::body::Body::new(body), 64 << 20).await.unwrap();
    (parts.status.as_u16(), parts.headers, String::from_utf8(bytes.to_vec()).unwrap())
}

pub(crate) async fn raw_json(client: &Client, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (code, text) = raw(client, method, path, &[("content-type", "application/json")], &text).await;
    (code, serde_json::from_str(&text).unwrap_or(Value::String(text)))
}

/// The API's own words about a failed call.
pub(crate) fn refusal(result: Result<impl std::fmt::Debug, kube::Error>) -> (u16, String, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone(), status.message.clone()),
        other => panic!("expected a refusal, got {other:?}"),
    }
}

pub(crate) fn now() -> DeleteParams {
    DeleteParams::default().grace_period(0)
}
