//! A real server on a loopback port, with certificates of its own.
#![allow(dead_code)] // each test file uses a part
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use api::config::ClusterConfig;
use api::rights::{Identity, Program, Right, Verb};
use api::v1::VirtualMachineInstance;
use embedded::{Config, Server};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::{Api, DeleteParams, PostParams};
use kube::{Client, ResourceExt as _};
use review::Hook;
use serde_json::{Value, json};
pub(crate) use test_support::eventually;
pub(crate) use test_support::pki::{Authority, MASTERS, Pair};
use tokio_util::sync::CancellationToken;
use virt_api::Admission;

/// An authority, and what a server of the test and its clients have of it.
pub(crate) struct Pki(Authority);

impl Pki {
    pub(crate) fn new() -> Self {
        Self(Authority::new())
    }

    pub(crate) fn save(&self, dir: &Path) {
        std::fs::write(dir.join("ca.crt"), &self.0.own.cert).unwrap();
        std::fs::write(dir.join("ca.key"), &self.0.own.key).unwrap();
    }

    pub(crate) fn load(dir: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap();
        Self(Authority { own: Pair { cert: read("ca.crt"), key: read("ca.key") } })
    }

    /// Certificate and key for a user.
    pub(crate) fn issue(&self, name: &str, groups: &[&str]) -> Pair {
        self.0.issue(name, groups)
    }

    /// A kubeconfig; without a user it shows no certificate.
    pub(crate) fn kubeconfig(&self, port: u16, user: Option<&Pair>) -> Value {
        self.0.kubeconfig(&url(port), user)
    }

    pub(crate) async fn client(&self, port: u16, user: Option<&Pair>) -> Client {
        let mut config = self.0.client_config(&url(port), user).await;
        config.default_retry = false; // a test wants to see every answer
        Client::try_from(config).unwrap()
    }

    pub(crate) fn server_config(&self, store_path: PathBuf, hooks: Vec<Arc<dyn Hook>>) -> Config {
        let Pair { cert, key } = self.issue("apiserver", &[]);
        Config { store_path, client_ca_pem: self.0.pem().to_owned(), cert_pem: cert, key_pem: key, hooks }
    }
}

fn url(port: u16) -> String {
    format!("https://127.0.0.1:{port}")
}

pub(crate) struct TestServer {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) pki: Pki,
    pub(crate) server: Server,
    /// The rules of KubeVirt, as every cluster of ours has them.
    pub(crate) admission: Arc<Admission>,
    pub(crate) port: u16,
    pub(crate) stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
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

pub(crate) fn install_crypto() {
    let _second_time = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

impl TestServer {
    pub(crate) async fn start() -> Self {
        install_crypto();
        let dir = tempfile::tempdir().unwrap();
        Self::start_in(dir, Pki::new()).await
    }

    /// With somebody else who is asked about writes, before the rules are.
    pub(crate) async fn start_with(hook: Arc<dyn Hook>) -> Self {
        install_crypto();
        Self::open(tempfile::tempdir().unwrap(), Pki::new(), 0, vec![hook]).await
    }

    /// On a directory that may hold a store already.
    pub(crate) async fn start_in(dir: tempfile::TempDir, pki: Pki) -> Self {
        Self::start_at(dir, pki, 0).await
    }

    /// And on the port that clients know.
    pub(crate) async fn start_at(dir: tempfile::TempDir, pki: Pki, port: u16) -> Self {
        Self::open(dir, pki, port, vec![]).await
    }

    async fn open(dir: tempfile::TempDir, pki: Pki, port: u16, mut hooks: Vec<Arc<dyn Hook>>) -> Self {
        let admission = Arc::<Admission>::default();
        admission.configure(cluster_config());
        hooks.push(admission.clone());
        let server = Server::open(pki.server_config(dir.path().join("store.redb"), hooks)).await.unwrap();
        server.bootstrap().await.unwrap();
        server.grant(&programs()).await.unwrap();
        let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let stop = CancellationToken::new();
        let (serving, stopping) = (server.clone(), stop.clone());
        let task = tokio::spawn(async move { serving.serve(listener, stopping).await.unwrap() });
        Self { dir, pki, server, admission, port, stop, task }
    }

    pub(crate) async fn admin(&self) -> Client {
        self.client("admin", &[MASTERS]).await
    }

    pub(crate) async fn client(&self, name: &str, groups: &[&str]) -> Client {
        self.pki.client(self.port, Some(&self.pki.issue(name, groups))).await
    }

    /// Ends serving and gives the store back.
    pub(crate) async fn stop(self) -> (tempfile::TempDir, Pki) {
        self.stop.cancel();
        self.task.await.unwrap();
        self.server.close().await;
        (self.dir, self.pki)
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
