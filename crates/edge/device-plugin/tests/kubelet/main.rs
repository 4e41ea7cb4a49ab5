//! Device plugins against a kubelet that acts as Kubernetes' does, and their messages byte for byte.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

mod fake;
mod peers;
mod sockets;
mod wire;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device_plugin::{Config, Error, serve};
use devices::{Check, Plugin};
use parking_lot::Mutex;
use tempfile::TempDir;
use test_support::eventually;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use fake::Kubelet;

/// A node with a directory for the kubelet, devices that are links to /dev/null, and our plugins.
struct Node {
    home: TempDir,
    wanted: watch::Sender<Vec<Plugin>>,
    registered: watch::Receiver<BTreeSet<String>>,
    kvm: Arc<Mutex<Result<(), String>>>,
    shutdown: CancellationToken,
    serving: JoinHandle<Result<(), Error>>,
}

fn plugin(name: &str, check: Check) -> Plugin {
    Plugin {
        name: name.to_owned(),
        resource: format!("devices.kubevirt.io/{name}"),
        nodes: vec![format!("/dev/{name}")],
        count: 3,
        permissions: "rw",
        check,
    }
}

fn kvm_and_tun() -> Vec<Plugin> {
    vec![plugin("kvm", Check::RunsVcpu), plugin("tun", Check::Opens)]
}

/// A node's files: `plugins` is the kubelet's directory, `dev` has the devices.
fn home() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    fs::create_dir(home.path().join("plugins")).unwrap();
    fs::create_dir(home.path().join("dev")).unwrap();
    for device in ["kvm", "tun", "vsock"] {
        symlink("/dev/null", home.path().join("dev").join(device)).unwrap();
    }
    home
}

impl Node {
    fn start(wanted: Vec<Plugin>) -> Node {
        let home = home();
        let dir = home.path().join("plugins");
        Node::start_in(home, dir.clone(), dir, wanted)
    }

    fn start_in(home: TempDir, dir: PathBuf, kubelet_dir: PathBuf, wanted: Vec<Plugin>) -> Node {
        let kvm = Arc::new(Mutex::new(Ok(())));
        let answer = kvm.clone();
        let (known, registered) = watch::channel(BTreeSet::new());
        let config = Config {
            dir,
            kubelet_dir,
            root: home.path().to_owned(),
            interval: Duration::from_millis(20),
            registered: known,
            ..Config::new(Arc::new(move || answer.lock().clone()))
        };
        let (wanted, following) = watch::channel(wanted);
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(config, following, shutdown.clone()));
        Node { home, wanted, registered, kvm, shutdown, serving }
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("plugins")
    }

    fn device(&self, name: &str) -> PathBuf {
        self.home.path().join("dev").join(name)
    }

    fn kubelet(&self) -> Kubelet {
        Kubelet::start(&self.dir())
    }

    async fn stop(self) -> TempDir {
        self.shutdown.cancel();
        self.serving.await.unwrap().unwrap();
        assert!(self.registered.borrow().is_empty(), "nothing is registered after the end");
        self.home
    }
}

fn sockets(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

async fn healthy(kubelet: &Kubelet, name: &str) {
    eventually(&format!("{name} is healthy"), async || kubelet.known(name).all(3, "Healthy")).await;
}

async fn unhealthy(kubelet: &Kubelet, name: &str) {
    eventually(&format!("{name} is unhealthy"), async || kubelet.known(name).all(3, "Unhealthy")).await;
}

#[tokio::test]
async fn plugins_register_and_list_their_devices() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    for name in ["kvm", "tun"] {
        healthy(&kubelet, name).await;
        let known = kubelet.known(name);
        assert_eq!(known.endpoint, format!("kubevirt-{name}.sock"));
        let ids: Vec<&str> = known.devices.iter().map(|device| device.id.as_str()).collect();
        assert_eq!(ids, [0, 1, 2].map(|index| format!("{name}{index}")));
        let options = known.options.unwrap();
        assert!(!options.pre_start_required && !options.get_preferred_allocation_available);
    }
    eventually("both are known", async || devices::initialized(&kvm_and_tun(), &node.registered.borrow())).await;
    assert_eq!(sockets(&node.dir()), ["kubelet.sock", "kubevirt-kvm.sock", "kubevirt-tun.sock"]);
    assert_eq!(kubelet.known("kvm").registrations, 1);
    node.stop().await;
}

#[tokio::test]
async fn each_container_gets_the_device_node() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    let answer = kubelet.allocate("tun", &[&["tun0"], &["tun1", "tun2"]]).await.unwrap();
    assert_eq!(answer.container_responses.len(), 2);
    for container in answer.container_responses {
        assert!(container.mounts.is_empty() && container.envs.is_empty() && container.annotations.is_empty());
        let [device] = &container.devices[..] else { panic!("{:?}", container.devices) };
        assert_eq!((device.host_path.as_str(), device.container_path.as_str()), ("/dev/tun", "/dev/tun"));
        assert_eq!(device.permissions, "rw");
    }
    let refused = kubelet.allocate("tun", &[&["tun3"]]).await.unwrap_err();
    assert_eq!(refused.message(), "devices.kubevirt.io/tun has no device \"tun3\"");
    node.stop().await;
}

#[tokio::test]
async fn calls_that_the_options_do_not_offer_are_refused() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    let mut client = kubelet.known("tun").client.unwrap();
    let refused = client.pre_start_container(device_plugin::v1beta1::PreStartContainerRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unimplemented);
    let refused = client.get_preferred_allocation(device_plugin::v1beta1::PreferredAllocationRequest::default()).await;
    assert_eq!(refused.unwrap_err().code(), tonic::Code::Unimplemented);
    let huge = vec!["x".repeat(1 << 20); 2];
    let huge: Vec<&str> = huge.iter().map(String::as_str).collect();
    assert!(kubelet.allocate("tun", &[&huge]).await.is_err(), "a request has a limit");
    node.stop().await;
}

#[tokio::test]
async fn a_device_that_goes_is_unhealthy_until_it_comes_back() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    fs::remove_file(node.device("tun")).unwrap();
    unhealthy(&kubelet, "tun").await;
    let refused = kubelet.allocate("tun", &[&["tun0"]]).await.unwrap_err();
    assert_eq!(refused.message(), "devices.kubevirt.io/tun does not work on this node: /dev/tun does not exist");
    fs::write(node.device("tun"), "a file").unwrap();
    eventually("a file is not a device", async || {
        let refused = kubelet.allocate("tun", &[&["tun0"]]).await;
        refused.is_err_and(|refused| refused.message().contains("is not a character device"))
    })
    .await;
    fs::remove_file(node.device("tun")).unwrap();
    symlink("/dev/null", node.device("tun")).unwrap();
    healthy(&kubelet, "tun").await;
    assert_eq!(kubelet.known("tun").registrations, 1, "health is no reason to register");
    assert!(kubelet.known("kvm").all(3, "Healthy"), "the other plugin is not concerned");
    node.stop().await;
}

#[tokio::test]
async fn kvm_is_healthy_only_where_a_virtual_cpu_runs() {
    let node = Node::start(kvm_and_tun());
    *node.kvm.lock() = Err("/dev/kvm is there, but cannot run a virtual CPU".to_owned());
    let kubelet = node.kubelet();
    // The task may have asked before the answer was changed: then a device node of its own makes it ask again.
    fs::remove_file(node.device("kvm")).unwrap();
    unhealthy(&kubelet, "kvm").await;
    symlink("/dev/zero", node.device("kvm")).unwrap();
    eventually("the reason is KVM's own", async || {
        let refused = kubelet.allocate("kvm", &[&["kvm0"]]).await;
        refused.is_err_and(|refused| refused.message().ends_with("cannot run a virtual CPU"))
    })
    .await;
    assert!(kubelet.known("kvm").all(3, "Unhealthy"));
    *node.kvm.lock() = Ok(());
    fs::remove_file(node.device("kvm")).unwrap();
    symlink("/dev/full", node.device("kvm")).unwrap();
    healthy(&kubelet, "kvm").await;
    node.stop().await;
}

#[tokio::test]
async fn plugins_register_again_when_the_kubelet_restarts() {
    let node = Node::start(kvm_and_tun());
    for _ in 0..3 {
        let kubelet = node.kubelet();
        healthy(&kubelet, "kvm").await;
        healthy(&kubelet, "tun").await;
        kubelet.allocate("kvm", &[&["kvm2"]]).await.unwrap();
        drop(kubelet);
        eventually("the kubelet is missed", async || node.registered.borrow().is_empty()).await;
    }
    node.stop().await;
}

#[tokio::test]
async fn a_kubelet_that_starts_later_or_refuses_at_first_gets_the_plugins() {
    let node = Node::start(kvm_and_tun());
    eventually("the plugins listen", async || sockets(&node.dir()).len() == 2).await;
    let kubelet = node.kubelet();
    kubelet.refuse(2);
    healthy(&kubelet, "kvm").await;
    healthy(&kubelet, "tun").await;
    assert_eq!(kubelet.refusals_left(), 0);
    node.stop().await;
}

#[tokio::test]
async fn a_watch_that_ends_without_a_restart_is_noticed() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    kubelet.known("tun").watch.unwrap().cancel();
    eventually("it registers again", async || {
        let known = kubelet.known("tun");
        known.registrations == 2 && known.watched
    })
    .await;
    assert_eq!(kubelet.known("kvm").registrations, 1);
    node.stop().await;
}

#[tokio::test]
async fn plugins_follow_the_configuration() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "tun").await;
    node.wanted.send_modify(|wanted| wanted.push(plugin("vsock", Check::Opens)));
    healthy(&kubelet, "vsock").await;
    node.wanted.send_modify(|wanted| wanted.retain(|plugin| plugin.name != "tun"));
    eventually("tun is withdrawn", async || kubelet.known("tun").devices.is_empty()).await;
    eventually("its socket goes", async || !node.dir().join("kubevirt-tun.sock").exists()).await;
    node.wanted.send_modify(|wanted| wanted[0].count = 5);
    eventually("kvm has more devices", async || kubelet.known("kvm").all(5, "Healthy")).await;
    assert!(kubelet.known("vsock").watched);
    node.stop().await;
}

#[tokio::test]
async fn the_end_withdraws_the_devices_and_leaves_no_socket() {
    let node = Node::start(kvm_and_tun());
    let kubelet = node.kubelet();
    healthy(&kubelet, "kvm").await;
    healthy(&kubelet, "tun").await;
    let home = node.stop().await;
    for name in ["kvm", "tun"] {
        eventually("no device is left", async || {
            let known = kubelet.known(name);
            known.devices.is_empty() && !known.watched
        })
        .await;
    }
    assert_eq!(sockets(&home.path().join("plugins")), ["kubelet.sock"]);
}
