//! `ferrovirt controller` as a process: leadership, work, endpoints and its ends.

use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use api::v1::VirtualMachineInstance;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use supervisor::cluster::identities;
use supervisor::cluster::pki::Subject;
use test_server::TestServer;
use test_support::eventually_within;

const PATIENCE: Duration = Duration::from_secs(60);
/// The controller's kubeconfig in the server's directory.
const KUBECONFIG: &str = "kubeconfig";

/// An embedded API server and what is needed to talk to it.
struct Cluster {
    admin: kube::Client,
    server: TestServer,
}

impl Cluster {
    async fn start() -> Self {
        let admission = std::sync::Arc::<virt_api::Admission>::default();
        let server = TestServer::start(vec![admission], &supervisor::cluster::bootstrap::programs()).await;
        let Subject { common_name, organization, .. } = identities::CONTROLLER;
        server.write_kubeconfig(KUBECONFIG, common_name, organization.as_slice());
        let admin = server.admin().await;
        Self { admin, server }
    }

    fn controller(&self) -> Controller {
        Controller::start(&self.server.dir().join(KUBECONFIG))
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin.clone(), "kubevirt")
    }

    async fn end(self) {
        self.server.stop().await;
    }
}

/// A controller process, which does not outlive the test.
struct Controller {
    process: Child,
    port: u16,
}

impl Controller {
    fn start(kubeconfig: &Path) -> Self {
        // Free a moment ago; whoever takes it meanwhile makes the start fail, which shows.
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Command::new(env!("CARGO_BIN_EXE_ferrovirt"))
            .arg("controller")
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--listen", "127.0.0.1", "--port", &port.to_string()])
            .args(["--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s"])
            .arg("--leader-elect-retry-period=200ms")
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        Self { process, port }
    }

    /// The answer of an endpoint, if there is one.
    async fn get(&self, path: &str) -> Option<String> {
        let mut config = kube::Config::new(format!("https://127.0.0.1:{}", self.port).parse().unwrap());
        config.accept_invalid_certs = true;
        let client = kube::Client::try_from(config).unwrap();
        client.request_text(http::Request::get(path).body(vec![]).unwrap()).await.ok()
    }

    async fn leads(&self) -> bool {
        let answer = self.get("/leader").await.unwrap_or_default();
        serde_json::from_str::<Value>(&answer).is_ok_and(|answer| answer["apiserver"]["leader"] == "true")
    }

    fn terminate(&self) {
        kill_process(Pid::from_child(&self.process), Signal::TERM).unwrap();
    }

    async fn ended(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.process.try_wait().unwrap() {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "the controller does not end");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn vmi() -> VirtualMachineInstance {
    let object = json!({
        "metadata": {"name": "machine"},
        "spec": {
            "domain": {"devices": {"disks": [{"name": "root", "disk": {"bus": "virtio"}}],
                                   "interfaces": [{"name": "default", "masquerade": {}}]},
                       "resources": {"requests": {"memory": "64Mi"}}},
            "networks": [{"name": "default", "pod": {}}],
            "volumes": [{"name": "root", "containerDisk": {"image": "disk:1"}}],
        },
    });
    serde_json::from_value(object).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_controller_works_hands_over_when_told_to_end_and_stops_when_its_lease_is_taken() {
    let cluster = Cluster::start().await;
    let mut first = cluster.controller();
    eventually_within(PATIENCE, "the first controller leads", async || first.leads().await).await;
    let mut second = cluster.controller();
    eventually_within(PATIENCE, "the second controller answers", async || second.get("/healthz").await.is_some()).await;
    assert!(!second.leads().await, "one is enough");

    let vmis: Api<VirtualMachineInstance> = Api::namespaced(cluster.admin.clone(), "default");
    vmis.create(&PostParams::default(), &vmi()).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(cluster.admin.clone(), "default");
    eventually_within(PATIENCE, "the instance has a Pod", async || {
        !pods.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    let metrics = first.get("/metrics").await.unwrap();
    for part in [
        "workqueue_adds_total{name=\"virt-controller-vmi\"}",
        "rest_client_requests_total{code=\"201\"",
        "kubevirt_virt_controller_leading_status 1",
        "ferrovirt_cache_objects{cache=\"vmis\"} 1",
    ] {
        assert!(metrics.contains(part), "no {part} in\n{metrics}");
    }

    first.terminate();
    assert!(first.ended().await.success());
    let start = Instant::now();
    eventually_within(PATIENCE, "the second controller takes over", async || second.leads().await).await;
    println!("the second controller took over after {:?}", start.elapsed());

    let thief = json!({"spec": {"holderIdentity": "somebody-else"}});
    cluster.leases().patch("virt-controller", &PatchParams::default(), &Patch::Merge(thief)).await.unwrap();
    assert!(!second.ended().await.success(), "whoever lost the lease has failed");
    cluster.end().await;
}

#[test]
fn times_of_the_lease_under_which_two_could_lead_are_refused() {
    let refused = Command::new(env!("CARGO_BIN_EXE_ferrovirt"))
        .args(["controller", "--kubeconfig=/nonexistent", "--leader-elect-renew-deadline=20s"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr);
    assert!(told.contains("must be longer than the renew deadline"), "{told}");
}
