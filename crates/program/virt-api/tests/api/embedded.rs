//! The router inside the embedded API server, with the real rules for our kinds: what clients of that shape meet.

use std::sync::Arc;

use api::rights::{Identity, Program, Right, Verb};
use api::v1::{VirtualMachine, VirtualMachineInstance, VirtualMachineInstanceMigration};
use futures::{SinkExt, StreamExt};
use http::HeaderValue;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};
use test_server::TestServer;
use test_support::Pair;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use crate::support::agent::{Agent, BANNER};
use crate::support::pki::Pki;
use crate::support::{PATIENCE, Redirect};

const ADMIN: (&str, &[&str]) = ("kubernetes-admin", &["system:masters"]);
const CONTROLLER: (&str, &[&str]) = ("system:serviceaccount:kubevirt:kubevirt-controller", &[]);
const APISERVER: (&str, &[&str]) = ("system:serviceaccount:kubevirt:kubevirt-apiserver", &[]);

/// Stands in for the controllers: makes instances and writes their status.
fn stand_in() -> Program {
    let rights = vec![Right::on::<VirtualMachineInstance>(Verb::ALL)];
    Program { name: "kubevirt-controller", identity: Identity::Account, rights }
}

/// An API server with the router mounted, and a node agent behind it.
struct Cluster {
    pki: Pki,
    server: TestServer,
    agent: Agent,
}

impl Cluster {
    async fn start() -> Cluster {
        let admission = Arc::<virt_api::Admission>::default();
        let server = TestServer::start(vec![admission], &[virt_api::program(), stand_in()]).await;
        let pki = Pki(server.authority.clone());
        let agent = Agent::start(&pki, role_tls::NODE_AGENT).await;
        let cluster = Cluster { pki, server, agent };
        cluster.server.server.mount_subresources(virt_api::router(virt_api::State {
            client: cluster.client(APISERVER).await,
            dialer: Arc::new(Redirect::to(cluster.agent.address)),
            handler_tls: virt_api::fixed(cluster.pki.handler_client()),
            namespace: "kubevirt".to_owned(),
            version: virt_api::Version::default(),
            shutdown: cluster.server.stopping.clone(),
        }));
        cluster
    }

    async fn client(&self, (name, groups): (&str, &[&str])) -> kube::Client {
        self.server.client(name, groups).await
    }

    /// Creates a virtual machine called `vm`.
    async fn create_vm(&self, run_strategy: &str) -> Api<VirtualMachine> {
        let vms: Api<VirtualMachine> = Api::namespaced(self.client(ADMIN).await, "default");
        let vm = json!({
            "metadata": { "name": "vm" },
            "spec": { "runStrategy": run_strategy, "template": { "spec": spec() } },
        });
        vms.create(&PostParams::default(), &serde_json::from_value(vm).unwrap()).await.unwrap();
        vms
    }

    /// Creates an instance called `vm` that runs on node `n1`.
    async fn create_running_vmi(&self) -> Api<VirtualMachineInstance> {
        let client = self.client(CONTROLLER).await;
        let nodes: Api<Node> = Api::all(self.client(ADMIN).await);
        let node = json!({
            "metadata": { "name": "n1", "annotations": { api::annotations::HANDLER_ADDRESS: "10.201.0.11:8186" } },
        });
        nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
        let vmis: Api<VirtualMachineInstance> = Api::namespaced(client, "default");
        let vmi = json!({ "metadata": { "name": "vm" }, "spec": spec() });
        vmis.create(&PostParams::default(), &serde_json::from_value(vmi).unwrap()).await.unwrap();
        let status = json!({ "status": { "phase": "Running", "nodeName": "n1" } });
        vmis.patch("vm", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        vmis
    }

    /// Asks for an operation on the virtual machine, as `virtctl` does.
    async fn put(&self, operation: &str, body: &str) -> Result<String, Box<kube::core::Status>> {
        let path = format!("/apis/subresources.kubevirt.io/v1/namespaces/default/{operation}");
        let request = http::Request::put(path).body(body.as_bytes().to_vec()).unwrap();
        match self.client(ADMIN).await.request_text(request).await {
            Ok(text) => Ok(text),
            Err(kube::Error::Api(status)) => Err(status),
            Err(other) => panic!("the request could not be made: {other}"),
        }
    }

    async fn open(&self, path: &str) -> WebSocketStream<TlsStream<TcpStream>> {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pki.0.pem().as_bytes()).unwrap()).unwrap();
        let Pair { cert, key } = self.pki.0.issue(ADMIN.0, ADMIN.1);
        let chain = vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let tls = rustls::ClientConfig::builder().with_root_certificates(roots);
        let tls = TlsConnector::from(Arc::new(tls.with_client_auth_cert(chain, key).unwrap()));
        let tcp = TcpStream::connect(("127.0.0.1", self.server.port())).await.unwrap();
        let stream = tls.connect("127.0.0.1".try_into().unwrap(), tcp).await.unwrap();
        let mut request = format!("wss://127.0.0.1:{}{path}", self.server.port()).into_client_request().unwrap();
        let protocol = HeaderValue::from_static(virt_api::SUBPROTOCOL);
        request.headers_mut().insert("sec-websocket-protocol", protocol);
        tokio_tungstenite::client_async(request, stream).await.expect("the stream opens").0
    }
}

async fn next(stream: &mut WebSocketStream<TlsStream<TcpStream>>) -> Message {
    timeout(PATIENCE, stream.next()).await.unwrap().unwrap().unwrap()
}

fn spec() -> Value {
    json!({ "domain": { "memory": { "guest": "64Mi" }, "devices": { "autoattachPodInterface": false } } })
}

#[tokio::test]
async fn starting_and_stopping_change_the_stored_machine() {
    let cluster = Cluster::start().await;
    let vms = cluster.create_vm("Halted").await;
    let strategy = async || vms.get("vm").await.unwrap().spec.run_strategy.unwrap().to_string();
    cluster.put("virtualmachines/vm/start", r#"{"dryRun":["All"]}"#).await.expect("a dry run");
    assert_eq!(strategy().await, "Halted");
    cluster.put("virtualmachines/vm/start", "").await.expect("a start");
    assert_eq!(strategy().await, "Always");
    cluster.put("virtualmachines/vm/stop", "").await.expect("a stop");
    assert_eq!(strategy().await, "Halted");
}

#[tokio::test]
async fn requests_wait_in_the_status_and_do_not_overtake_each_other() {
    let cluster = Cluster::start().await;
    let vms = cluster.create_vm("Manual").await;
    cluster.put("virtualmachines/vm/start", "").await.expect("a start");
    let status = vms.get("vm").await.unwrap().status.unwrap();
    assert_eq!(serde_json::to_value(status.state_change_requests).unwrap(), json!([{ "action": "Start" }]));
    assert_eq!(cluster.put("virtualmachines/vm/start", "").await.expect_err("already asked").code, 500);
    assert_eq!(cluster.put("virtualmachines/vm/stop", "").await.expect_err("does not run").code, 409);
}

#[tokio::test]
async fn a_forced_restart_may_change_the_instances_grace_period() {
    let cluster = Cluster::start().await;
    cluster.create_vm("Always").await;
    let vmis = cluster.create_running_vmi().await;
    cluster.put("virtualmachines/vm/restart", r#"{"gracePeriodSeconds":0}"#).await.expect("a restart");
    assert_eq!(vmis.get("vm").await.unwrap().spec.termination_grace_period_seconds, Some(1));
}

#[tokio::test]
async fn moving_a_guest_makes_one_migration_and_the_second_is_told_of_the_first() {
    let cluster = Cluster::start().await;
    cluster.create_vm("Always").await;
    assert_eq!(cluster.put("virtualmachines/vm/migrate", "").await.expect_err("no instance").code, 404);
    cluster.create_running_vmi().await;
    let migrations: Api<VirtualMachineInstanceMigration> = Api::namespaced(cluster.client(ADMIN).await, "default");
    let all = async || migrations.list(&Default::default()).await.unwrap().items;
    cluster.put("virtualmachines/vm/migrate", r#"{"dryRun":["All"]}"#).await.expect("a dry run");
    assert_eq!(all().await.len(), 0);
    cluster.put("virtualmachines/vm/migrate", r#"{"addedNodeSelector":{"zone":"b"}}"#).await.expect("a migration");
    let made = all().await;
    let [migration] = made.as_slice() else { panic!("{} migrations were made", made.len()) };
    assert!(migration.metadata.name.as_ref().unwrap().starts_with("kubevirt-migrate-vm-"));
    assert_eq!(migration.spec.added_node_selector["zone"], "b");
    assert_eq!(migration.metadata.labels.as_ref().unwrap()["kubevirt.io/vmi-name"], "vm");
    let second = cluster.put("virtualmachines/vm/migrate", "").await.expect_err("one is under way");
    assert!(second.code == 500 && second.message.contains("in-flight migration detected"), "{second:?}");
}

#[tokio::test]
async fn an_evacuation_is_called_off_only_for_the_node_that_was_meant() {
    let cluster = Cluster::start().await;
    let vmis = cluster.create_running_vmi().await;
    let path = "virtualmachineinstances/vm/evacuate/cancel";
    cluster.put(path, "").await.expect("there is nothing to call off");
    let mark = Patch::Merge(json!({ "status": { "evacuationNodeName": "n1" } }));
    vmis.patch("vm", &PatchParams::default(), &mark).await.unwrap();
    let marked = async || vmis.get("vm").await.unwrap().status.unwrap().evacuation_node_name;
    assert_eq!(cluster.put(path, r#"{"evacuationNodeName":"n2"}"#).await.expect_err("another node").code, 500);
    cluster.put(path, r#"{"evacuationNodeName":"n1","dryRun":["All"]}"#).await.expect("a dry run");
    assert_eq!(marked().await.as_deref(), Some("n1"));
    cluster.put(path, r#"{"evacuationNodeName":"n1"}"#).await.expect("the node that was meant");
    assert_eq!(marked().await, None);
}

#[tokio::test]
async fn this_servers_word_for_a_failed_test_is_the_one_that_is_listened_for() {
    let cluster = Cluster::start().await;
    let vms = cluster.create_vm("Halted").await;
    let stale = json!([{ "op": "test", "path": "/spec/runStrategy", "value": "Always" }]);
    let stale = Patch::Json::<()>(serde_json::from_value(stale).unwrap());
    match vms.patch("vm", &PatchParams::default(), &stale).await {
        Err(kube::Error::Api(status)) => {
            assert_eq!(status.code, 422);
            assert!(status.message.contains("test failed"), "{}", status.message);
        }
        other => panic!("the test should have failed: {other:?}"),
    }
}

#[tokio::test]
async fn pausing_and_the_console_reach_the_node_agent() {
    let cluster = Cluster::start().await;
    cluster.create_running_vmi().await;
    cluster.put("virtualmachineinstances/vm/pause", "").await.expect("a pause");
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/vm/console";
    let mut console = cluster.open(path).await;
    assert_eq!(next(&mut console).await, Message::Binary(Bytes::from_static(BANNER)));
    console.send(Message::Binary(Bytes::from_static(b"root\n"))).await.unwrap();
    assert_eq!(next(&mut console).await, Message::Binary(Bytes::from_static(b"root\n")));
    let agent_path = "/v1/namespaces/default/virtualmachineinstances/vm";
    assert_eq!(cluster.agent.seen(), [format!("PUT {agent_path}/pause"), format!("GET {agent_path}/console")]);
}
