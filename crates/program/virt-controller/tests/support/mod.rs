//! A cluster for one test: the embedded API server with its real admission and RBAC, and a stand-in for the node.

mod node;
mod pki;

use std::fmt::Debug;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use api::v1::{VirtualMachine, VirtualMachineInstance};
use embedded::Server;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use virt_controller::{Config, WriteCounter};

pub(crate) use node::Node;
use pki::Pki;

pub(crate) const NAMESPACE: &str = "default";
pub(crate) const IMAGE: &str = "launcher:1";
const PATIENCE: Duration = Duration::from_secs(60);

/// The cluster. Everything ends with it.
pub(crate) struct Cluster {
    pub(crate) admin: Client,
    pki: Pki,
    url: String,
    stop: CancellationToken,
    server: Server,
    _dir: tempfile::TempDir,
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::new();
        let (cert_pem, key_pem) = pki.server();
        let config = embedded::Config {
            store_path: dir.path().join("store.redb"),
            client_ca_pem: pki.ca_pem(),
            cert_pem,
            key_pem,
        };
        let server = Server::open(config).await.unwrap();
        server.bootstrap().await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        tokio::spawn({
            let (server, stop) = (server.clone(), stop.clone());
            async move { server.serve(listener, stop).await.unwrap() }
        });
        let admin = pki.client(&url, "kubernetes-admin", "system:masters").await;
        Self { admin, pki, url, stop, server, _dir: dir }
    }

    /// A client with the controller's own identity and rights.
    pub(crate) async fn controller_client(&self) -> Client {
        self.pki.client(&self.url, "system:serviceaccount:kubevirt:kubevirt-controller", "system:serviceaccounts").await
    }

    /// A client with the rights of the node agent on `n1`.
    async fn agent_client(&self) -> Client {
        self.pki.client(&self.url, "system:serviceaccount:kubevirt:kubevirt-handler", "ferrovirt:node:n1").await
    }

    pub(crate) async fn controller(&self) -> Controller {
        let config = Config::new(self.controller_client().await, IMAGE);
        Controller::start(config)
    }

    pub(crate) fn vms(&self) -> Api<VirtualMachine> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) fn vmis(&self) -> Api<VirtualMachineInstance> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    pub(crate) async fn create_vm(&self, name: &str, strategy: &str) -> VirtualMachine {
        self.vms().create(&PostParams::default(), &vm(name, strategy)).await.unwrap()
    }

    pub(crate) async fn set_strategy(&self, name: &str, strategy: &str) {
        let patch = json!({"spec": {"runStrategy": strategy}});
        self.vms().patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits until the virtual machine shows this word.
    pub(crate) async fn wait_printable(&self, name: &str, word: &str) -> VirtualMachine {
        let printable = |vm: &VirtualMachine| vm.status.as_ref().and_then(|s| s.printable_status.clone());
        wait(&self.vms(), name, |vm| printable(vm).is_some_and(|w| w.as_str() == word)).await
    }

    /// Waits until the virtual machine is ready, which is the last that a start writes.
    pub(crate) async fn wait_ready(&self, name: &str) {
        wait(&self.vms(), name, |vm| vm.status.as_ref().is_some_and(|status| status.ready == Some(true))).await;
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.server.close().await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The controllers, running.
pub(crate) struct Controller {
    stop: CancellationToken,
    task: JoinHandle<Result<(), virt_controller::Error>>,
    pub(crate) writes: Arc<WriteCounter>,
}

impl Controller {
    pub(crate) fn start(config: Config) -> Self {
        let stop = CancellationToken::new();
        let writes = config.writes.clone();
        let task = tokio::spawn(virt_controller::run(config, stop.clone()));
        Self { stop, task, writes }
    }

    /// Ends in good order.
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    /// Ends in the middle of whatever it does.
    pub(crate) async fn crash(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

pub(crate) fn vm(name: &str, strategy: &str) -> VirtualMachine {
    let object: Value = json!({
        "metadata": {"name": name},
        "spec": {
            "runStrategy": strategy,
            "template": {"spec": {
                "domain": {
                    "devices": {
                        "disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                        "logSerialConsole": false,
                    },
                    "resources": {"requests": {"memory": "64Mi"}},
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [{"name": "root", "containerDisk": {"image": "disk:1"}}],
                "terminationGracePeriodSeconds": 1,
            }},
        },
    });
    serde_json::from_value(object).unwrap()
}

/// Polls an object until it is as wanted. Panics with its last state after a generous time.
pub(crate) async fn wait<K>(api: &Api<K>, name: &str, wanted: impl Fn(&K) -> bool) -> K
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let mut last = None;
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            last = api.get_opt(name).await.unwrap();
            if let Some(object) = last.as_ref().filter(|object| wanted(object)) {
                return object.clone();
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    found.unwrap_or_else(|_| panic!("{} {name} did not become as wanted: {last:#?}", K::kind(&())))
}

/// Polls until the object does not exist.
pub(crate) async fn wait_gone<K>(api: &Api<K>, name: &str)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let gone = tokio::time::timeout(PATIENCE, async {
        while api.get_opt(name).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    if gone.is_err() {
        panic!("{} {name} stays: {:#?}", K::kind(&()), api.get_opt(name).await.unwrap());
    }
}

/// Polls until nothing of the kind is left.
pub(crate) async fn wait_none<K>(api: &Api<K>)
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
{
    let none = tokio::time::timeout(PATIENCE, async {
        while !api.list(&ListParams::default()).await.unwrap().items.is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(none.is_ok(), "some {} stay", K::kind(&()));
}
