//! An API server on a loopback port, and node agents that use it.

use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

use api::rights::{Identity, Program, Right, Verb};
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, PostParams};
use serde_json::json;
use test_server::TestServer;
use test_support::Pair;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use virt_handler::Kubelet;

pub(crate) const NODE: &str = "node01";

/// Stands in for the controllers: makes instances and writes their status.
fn stand_in() -> Program {
    let rights = vec![Right::on::<VirtualMachineInstance>(Verb::ALL)];
    Program { name: "kubevirt-controller", identity: Identity::Account, rights }
}

pub(crate) struct Cluster {
    server: TestServer,
}

/// A running node agent.
pub(crate) struct Handler {
    pub(crate) address: SocketAddr,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), virt_handler::Error>>,
}

impl Handler {
    pub(crate) async fn stop(self) {
        self.shutdown.cancel();
        tokio::time::timeout(Duration::from_secs(30), self.task).await.unwrap().unwrap().unwrap();
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        // `RUST_LOG=debug` shows what the agent saw; nothing without it.
        let filter = tracing_subscriber::EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).try_init();
        let admission = std::sync::Arc::<virt_api::Admission>::default();
        let server = TestServer::start(vec![admission], &[virt_handler::program(), stand_in()]).await;
        let cluster = Cluster { server };
        cluster.note_that_kvm_works();
        let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}})).unwrap();
        let nodes: Api<Node> = Api::all(cluster.admin().await);
        nodes.create(&PostParams::default(), &node).await.unwrap();
        cluster
    }

    /// As an earlier agent would have; trying takes seconds and is not what is tested here.
    fn note_that_kvm_works(&self) {
        std::fs::create_dir_all(self.private_dir()).unwrap();
        let boot = hostfs::process::ProcessId::current().unwrap().boot;
        std::fs::write(self.private_dir().join("kvm.json"), json!({"boot": boot}).to_string()).unwrap();
    }

    pub(crate) fn pods_dir(&self) -> PathBuf {
        self.server.dir().join("pods")
    }

    pub(crate) fn private_dir(&self) -> PathBuf {
        self.server.dir().join("private")
    }

    pub(crate) async fn admin(&self) -> kube::Client {
        self.server.admin().await
    }

    /// The identity that makes instances and writes their status.
    pub(crate) async fn controller(&self) -> kube::Client {
        self.client("system:serviceaccount:kubevirt:kubevirt-controller", "system:serviceaccounts").await
    }

    async fn client(&self, name: &str, group: &str) -> kube::Client {
        self.server.client(name, &[group]).await
    }

    pub(crate) async fn handler(&self) -> Handler {
        self.handler_of(NODE, self.pods_dir(), self.private_dir()).await
    }

    /// The agent of any node, with directories of its own.
    pub(crate) async fn handler_of(&self, node: &str, pods_dir: PathBuf, private_dir: PathBuf) -> Handler {
        self.start_handler(node, pods_dir, private_dir, None).await
    }

    /// The agent of the node in a Pod beside a kubelet.
    #[allow(dead_code, reason = "shared with the tests of migrations, which have no kubelet")]
    pub(crate) async fn handler_beside(&self, kubelet: Kubelet) -> Handler {
        self.start_handler(NODE, self.pods_dir(), self.private_dir(), Some(kubelet)).await
    }

    async fn start_handler(
        &self,
        node: &str,
        pods_dir: PathBuf,
        private_dir: PathBuf,
        kubelet: Option<Kubelet>,
    ) -> Handler {
        let group = format!("ferrovirt:node:{node}");
        let client = self.client("system:serviceaccount:kubevirt:kubevirt-handler", &group).await;
        let listen = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listen.local_addr().unwrap();
        let Pair { cert, key } =
            self.server.authority.issue_with_uris(role_tls::NODE_AGENT, &[], &[role_tls::node_uri(node)]);
        let config = virt_handler::Config {
            node_name: node.to_string(),
            install_namespace: "kubevirt".to_owned(),
            pods_dir,
            private_dir,
            kvm_finding: self.private_dir().join("kvm.json"),
            client,
            listen,
            identity: role_tls::Identity::from_pem(self.server.authority.pem(), &cert, &key).unwrap().into(),
            node_check: role_tls::NodeCheck::Required,
            annotate_address: kubelet.is_none(),
            kubelet,
            drain: Duration::ZERO,
            status: Default::default(),
            on_configuration: None,
        };
        let shutdown = CancellationToken::new();
        let task = tokio::spawn(virt_handler::run(config, shutdown.clone()));
        Handler { address, shutdown, task }
    }
}
