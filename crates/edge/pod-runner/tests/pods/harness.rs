//! A node for one test, which takes everything away at the end and looks whether anything is left.

use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use hostfs::{mounts, ns};
use ipnet::Ipv4Net;
use k8s_openapi::api::core::v1::Pod;
use netlink::blocking::Links;
use pod_runner::{Dns, Host, Inputs, NodeFacts, PodNetwork, PodSandbox, PodUid, StartFailure, Storage};
use podstate::{Exit, Observed, ShimState, Stage};
use serde_json::{Value, json};
use test_support::Look;
use volumeplan::{NodeName, Reach};

const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct TestNode {
    dir: tempfile::TempDir,
    pub(crate) netns: OwnedFd,
    pub(crate) host: Host,
}

impl TestNode {
    pub(crate) fn new() -> TestNode {
        Self::numbered(1)
    }

    /// Node K has the Pod network 10.244.K.0/24.
    pub(crate) fn numbered(k: u8) -> TestNode {
        let dir = tempfile::tempdir().unwrap();
        let netns = ns::create_netns(dir.path().join("node-net")).unwrap();
        let cidr: Ipv4Net = format!("10.244.{k}.0/24").parse().unwrap();
        let gateway: Ipv4Net = format!("10.244.{k}.1/24").parse().unwrap();
        ns::run_in_netns(&netns, || {
            let mut links = Links::new().unwrap();
            links.set_up("lo").unwrap();
            links.create_bridge("cni0").unwrap();
            links.add_address("cni0", gateway.into()).unwrap();
            links.set_up("cni0").unwrap();
        })
        .unwrap();
        let host = host(dir.path(), dir.path(), cidr);
        TestNode { dir, netns, host }
    }

    /// A node that has its volumes from another node's pool.
    pub(crate) fn beside(other: &TestNode) -> TestNode {
        let mut node = Self::numbered(2);
        node.host = host(node.path(), other.path(), node.host.network.cidr);
        node
    }

    /// Settings of the volume engine.
    pub(crate) fn volumes(&self) -> volumes::Config {
        volumes(self.path(), self.path(), "n1")
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A Pod object with a UID of its own.
    pub(crate) fn pod(&self, spec: Value) -> Pod {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let uid =
            format!("{:08}-{:04}-4000-8000-000000000000", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        serde_json::from_value(json!({
            "metadata": {"name": "test", "namespace": "default", "uid": uid},
            "spec": spec,
        }))
        .unwrap()
    }

    pub(crate) fn sandbox(&self, pod: &Pod) -> PodSandbox {
        PodSandbox::new(&self.host.pods_dir, uid(pod)).with_storage(self.host.storage.clone())
    }

    pub(crate) fn start(&self, pod: &Pod) -> PodSandbox {
        self.start_with(pod, &Inputs::default())
    }

    pub(crate) fn start_with(&self, pod: &Pod, inputs: &Inputs) -> PodSandbox {
        match self.try_start(pod, inputs) {
            Ok(sandbox) => sandbox,
            Err(failure) => panic!("the Pod does not start: {failure:?}"),
        }
    }

    pub(crate) fn try_start(&self, pod: &Pod, inputs: &Inputs) -> Result<PodSandbox, StartFailure> {
        let sandbox = self.sandbox(pod);
        ns::run_in_netns(&self.netns, || sandbox.start(&self.host, pod, inputs)).unwrap()?;
        Ok(sandbox)
    }

    /// Starts a Pod with one container that runs a shell script, and waits for its end.
    pub(crate) fn run_to_end(&self, container: Value) -> (PodSandbox, Exit) {
        let pod = self.pod(json!({"restartPolicy": "Never", "containers": [container]}));
        let sandbox = self.start(&pod);
        let seen = until_gone(&sandbox);
        let exit = exit_of(&seen, "c");
        (sandbox, exit)
    }

    pub(crate) fn exec(&self, pod: &Pod, argv: &[&str]) -> Output {
        pod_runner::exec_in_pod(&exe(), &self.host.pods_dir, uid(pod).as_str(), "c", argv).unwrap()
    }

    pub(crate) fn logs(&self, pod: &PodSandbox) -> String {
        let uid = pod.paths().dir().file_name().unwrap().to_str().unwrap();
        String::from_utf8(pod_runner::logs(&self.host.pods_dir, uid, "c").unwrap()).unwrap()
    }

    /// Releases the Pod in the node's network namespace.
    pub(crate) fn release(&self, sandbox: &PodSandbox) {
        ns::run_in_netns(&self.netns, || sandbox.release()).unwrap().unwrap();
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        let destroyed = ns::run_in_netns(&self.netns, || pod_runner::destroy_all(&self.host.pods_dir)).unwrap();
        let links: Vec<String> = ns::run_in_netns(&self.netns, || {
            Links::new().unwrap().list().unwrap().into_iter().map(|l| l.name).collect()
        })
        .unwrap();
        mounts::umount_all_below(self.dir.path().join("node-net")).unwrap();
        if std::thread::panicking() {
            return;
        }
        destroyed.unwrap_or_else(|errors| panic!("not destroyed: {errors:?}"));
        assert!(std::fs::read_dir(&self.host.pods_dir).map_or(true, |mut d| d.next().is_none()), "records are left");
        let addresses = std::fs::read_dir(self.dir.path().join("addresses")).map_or(0, Iterator::count);
        assert_eq!(addresses, 0, "addresses are taken");
        let left: Vec<_> =
            mounts::mount_points().unwrap().into_iter().filter(|m| m.starts_with(self.dir.path())).collect();
        assert_eq!(left, Vec::<PathBuf>::new(), "mounts are left");
        assert_eq!(attached(self.dir.path()), Vec::<PathBuf>::new(), "loop devices are left");
        assert_eq!(links, ["lo", "cni0"], "links are left");
    }
}

/// Settings of the engine of a node in this directory, for the pool of that one.
pub(crate) fn volumes(dir: &Path, pool: &Path, node: &str) -> volumes::Config {
    let pool = pool.join("pool");
    std::fs::create_dir_all(&pool).unwrap();
    let local = volumes::Config::local(pool, NodeName::parse(node).unwrap());
    volumes::Config { reach: Reach::Shared, kubelet_dir: dir.join("pods"), ..local }
}

/// Files that loop devices are attached to, below a directory.
pub(crate) fn attached(dir: &Path) -> Vec<PathBuf> {
    let devices = std::fs::read_dir("/sys/block").unwrap().flatten();
    let files = devices.filter_map(|d| std::fs::read_to_string(d.path().join("loop/backing_file")).ok());
    files.map(|file| PathBuf::from(file.trim_end())).filter(|file| file.starts_with(dir)).collect()
}

pub(crate) fn host(dir: &Path, pool: &Path, cidr: Ipv4Net) -> Host {
    let name = format!("n{}", cidr.network().octets()[2]);
    Host {
        storage: Some(Arc::new(Storage::new(volumes(dir, pool, &name)))),
        pods_dir: dir.join("pods"),
        network: PodNetwork { bridge: "cni0".into(), cidr, mtu: 1450 },
        facts: NodeFacts {
            name,
            address: Ipv4Addr::new(10, 201, 0, 11),
            images_dir: dir.join("images"),
            exe: exe(),
            dns: Dns::default(),
            memory_bytes: 8 << 30,
        },
    }
}

pub(crate) fn exe() -> PathBuf {
    std::env::current_exe().unwrap()
}

pub(crate) fn uid(pod: &Pod) -> PodUid {
    pod.metadata.uid.as_ref().unwrap().parse().unwrap()
}

/// A container named `c` that runs a shell script on the host's image.
pub(crate) fn shell(script: &str) -> Value {
    json!({"name": "c", "image": "ferrovirt.io/host", "command": ["sh", "-c", script]})
}

pub(crate) fn with(mut container: Value, extra: Value) -> Value {
    for (key, value) in extra.as_object().unwrap() {
        container[key] = value.clone();
    }
    container
}

pub(crate) fn until<L: Look>(what: &str, look: impl FnMut() -> L) -> L::Found {
    test_support::until(PATIENCE, what, look)
}

pub(crate) fn observe(sandbox: &PodSandbox) -> Observed {
    sandbox.observe().unwrap().expect("the Pod has a state")
}

pub(crate) fn until_gone(sandbox: &PodSandbox) -> Observed {
    until("the end of the shim", || Some(observe(sandbox)).filter(|seen| seen.shim == ShimState::Gone))
}

pub(crate) fn until_running(sandbox: &PodSandbox) -> Observed {
    until("a running container", || {
        let seen = observe(sandbox);
        match seen.containers.get("c").map(|r| &r.stage) {
            Some(Stage::Running { .. }) => Some(seen),
            Some(Stage::Exited(exit)) if seen.shim == ShimState::Gone => panic!("it ended: {exit:?}"),
            _ => None,
        }
    })
}

pub(crate) fn exit_of(seen: &Observed, container: &str) -> Exit {
    seen.containers[container].stage.exit().expect("the container ended").clone()
}

/// Waits until the log holds a line.
pub(crate) fn until_logged(node: &TestNode, sandbox: &PodSandbox, line: &str) {
    until(line, || node.logs(sandbox).lines().any(|l| l == line).then_some(()));
}
