//! A whole node against a real API server: objects in, Pods running, status back.
//!
//! Server, runner and the test's own client live in the node's network namespace, where the server listens on loopback.

use std::future::Future;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use futures::StreamExt;
use hostfs::ns;
use k8s_openapi::api::core::v1::{Event, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodStatus};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use pod_runner::{Capacity, Dns, PodPaths, PodUid, RunnerConfig, images};
use serde_json::{Value, json};
use test_server::TestServer;
use test_support::{Look, eventually_within};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use volumeplan::{Access, AccessMode, Capability, Kind, PoolId as _, Publish, Range, Users};
use volumes::Engine;

use crate::claims::{MIB, Provisioned, Provisioner, size_of};
use crate::containers::busybox;
use crate::harness::{TestNode, exe, shell, with};

const PATIENCE: Duration = Duration::from_secs(60);

struct Cluster {
    node: TestNode,
    admin: Client,
    runner: Client,
    server: TestServer,
}

impl Cluster {
    async fn start(node: TestNode) -> Cluster {
        let server = TestServer::start(vec![], &[pod_runner::program()]).await;
        let admin = server.admin().await;
        let runner = server.client("system:node:n1", &["system:nodes"]).await;
        Cluster { node, admin, runner, server }
    }

    fn run_node(&self) -> (CancellationToken, JoinHandle<()>) {
        self.run_node_with(None)
    }

    fn run_node_with(&self, puller: Option<std::path::PathBuf>) -> (CancellationToken, JoinHandle<()>) {
        let config = RunnerConfig {
            client: self.runner.clone(),
            node_name: "n1".to_owned(),
            node_address: Ipv4Addr::new(10, 201, 0, 11),
            pods_dir: self.node.host.pods_dir.clone(),
            images_dir: self.node.host.facts.images_dir.clone(),
            network: self.node.host.network.clone(),
            dns: Dns::default(),
            capacity: Capacity::of_machine(self.node.path(), false),
            exe: exe(),
            volumes: Some(self.node.volumes()),
            puller,
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn({
            let stop = stop.clone();
            async move { pod_runner::run(config, stop).await.unwrap() }
        });
        (stop, task)
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), "default")
    }

    async fn create(&self, name: &str, spec: Value) -> Pod {
        let mut spec = spec;
        spec["nodeName"] = json!("n1");
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap()
    }

    /// Waits until the Pod's status is as wished.
    async fn until(&self, name: &str, what: &str, wish: impl Fn(&PodStatus) -> bool) -> Pod {
        eventually(what, || async {
            let pod = self.pods().get_opt(name).await.unwrap()?;
            pod.status.as_ref().is_some_and(&wish).then_some(pod)
        })
        .await
    }

    async fn until_phase(&self, name: &str, phase: &str) -> Pod {
        self.until(name, phase, |s| s.phase.as_deref() == Some(phase)).await
    }

    async fn until_purged(&self) {
        eventually("no Pod on disk", || async {
            std::fs::read_dir(&self.node.host.pods_dir).unwrap().next().is_none().then_some(())
        })
        .await;
    }

    async fn stop(self) {
        self.server.stop().await;
    }
}

async fn eventually<L: Look>(what: &str, look: impl AsyncFnMut() -> L) -> L::Found {
    eventually_within(PATIENCE, what, look).await
}

/// Runs a test on a runtime whose threads are all in the node's network namespace.
fn in_cluster<F: Future<Output = ()>>(test: impl FnOnce(Cluster) -> F + Send) {
    let node = TestNode::new();
    let netns = node.netns.try_clone().unwrap();
    ns::run_in_netns(&netns, || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async { test(Cluster::start(node).await).await });
    })
    .unwrap();
}

fn condition<'a>(pod: &'a Pod, type_: &str) -> &'a str {
    let conditions = pod.status.as_ref().unwrap().conditions.as_deref().unwrap_or_default();
    conditions.iter().find(|c| c.type_ == type_).map_or("", |c| c.status.as_str())
}

pub(crate) fn a_pod_lives_from_its_object_to_its_deletion() {
    in_cluster(|cluster| async move {
        let (stop, task) = cluster.run_node();
        let node: Node = eventually("a ready Node", || async {
            let node = Api::<Node>::all(cluster.admin.clone()).get_opt("n1").await.unwrap()?;
            let status = node.status.clone()?;
            status.conditions?.iter().any(|c| c.type_ == "Ready" && c.status == "True").then_some(node)
        })
        .await;
        assert_eq!(node.metadata.labels.as_ref().unwrap()["kubernetes.io/hostname"], "n1");
        let offers = node.status.unwrap().allocatable.unwrap();
        assert!(offers.contains_key("devices.kubevirt.io/tun") && !offers.contains_key("devices.kubevirt.io/kvm"));

        let spec = json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 300, "containers": [shell("trap 'exit 0' TERM; echo hello; while :; do sleep 0.1; done")]});
        let mut changes = cluster.pods().watch(&WatchParams::default(), "0").await.unwrap().boxed();
        let created = cluster.create("p", spec).await;
        let running = cluster.until_phase("p", "Running").await;
        assert_eq!((condition(&running, "Ready"), condition(&running, "PodScheduled")), ("True", "True"));
        let status = running.status.unwrap();
        assert!(status.pod_ip.as_deref().unwrap().starts_with("10.244.1."));
        assert_eq!(status.host_ip.as_deref(), Some("10.201.0.11"));

        // The object is written once to say that the Pod runs.
        let mut versions = 0;
        while let Ok(Some(change)) = tokio::time::timeout(Duration::from_millis(500), changes.next()).await {
            versions += usize::from(matches!(change.unwrap(), WatchEvent::Added(_) | WatchEvent::Modified(_)));
        }
        assert_eq!(versions, 2, "creation and one status");

        let uid = created.metadata.uid.as_deref().unwrap();
        let pods_dir = cluster.node.host.pods_dir.clone();
        let inside = {
            let (pods_dir, uid) = (pods_dir.clone(), uid.to_owned());
            tokio::task::spawn_blocking(move || pod_runner::exec_in_pod(&exe(), &pods_dir, &uid, "c", &["hostname"]))
        };
        assert_eq!(inside.await.unwrap().unwrap().stdout, b"p\n");
        assert_eq!(pod_runner::logs(&pods_dir, uid, "c").unwrap(), b"hello\n");

        cluster.pods().delete("p", &DeleteParams::default()).await.unwrap();
        eventually("the end of the object", || async {
            cluster.pods().get_opt("p").await.unwrap().is_none().then_some(())
        })
        .await;
        cluster.until_purged().await;
        let reasons: Vec<String> = eventually("events", || async {
            let events =
                Api::<Event>::namespaced(cluster.admin.clone(), "default").list(&ListParams::default()).await.unwrap();
            let reasons: Vec<_> = events.items.into_iter().filter_map(|e| e.reason).collect();
            (reasons.len() >= 2).then_some(reasons)
        })
        .await;
        assert!(reasons.contains(&"Started".to_owned()) && reasons.contains(&"Killing".to_owned()), "{reasons:?}");
        stop.cancel();
        task.await.unwrap();
        cluster.stop().await;
    });
}

pub(crate) fn ends_refusals_and_obstacles_are_told() {
    in_cluster(|cluster| async move {
        let (stop, task) = cluster.run_node();
        let container = with(shell("echo oh no; exit 9"), json!({"terminationMessagePolicy": "FallbackToLogsOnError"}));
        cluster.create("fails", json!({"restartPolicy": "Never", "containers": [container]})).await;
        let probe = with(shell("true"), json!({"livenessProbe": {"exec": {"command": ["true"]}}}));
        cluster.create("asks-too-much", json!({"containers": [probe]})).await;
        let image = json!({"name": "c", "image": "example.com/box:1", "command": ["sh", "-c", "busybox sleep 1000"]});
        cluster.create("waits", json!({"restartPolicy": "Never", "containers": [image]})).await;

        let failed = cluster.until_phase("fails", "Failed").await.status.unwrap();
        let terminated = failed.container_statuses.unwrap()[0].state.clone().unwrap().terminated.unwrap();
        assert_eq!((terminated.exit_code, terminated.message.as_deref()), (9, Some("oh no")));
        let refused = cluster.until_phase("asks-too-much", "Failed").await.status.unwrap();
        assert_eq!(refused.reason.as_deref(), Some("UnsupportedByRunner"));

        let waiting = cluster
            .until("waits", "a reason to wait", |s| {
                let state = s.container_statuses.iter().flatten().next().and_then(|c| c.state.clone());
                state.and_then(|s| s.waiting).is_some_and(|w| w.reason.as_deref() == Some("ErrImagePull"))
            })
            .await;
        let state = waiting.status.unwrap().container_statuses.unwrap()[0].state.clone().unwrap();
        assert!(state.waiting.unwrap().message.unwrap().contains("ferrovirt image import"));
        let root = busybox(cluster.node.path());
        images::import(&cluster.node.host.facts.images_dir, "example.com/box:1", &root).unwrap();
        cluster.until_phase("waits", "Running").await;

        // A finished Pod has given its address back and keeps its log.
        let addresses = || std::fs::read_dir(cluster.node.path().join("addresses")).unwrap().count();
        eventually("one address in use", || async { (addresses() == 1).then_some(()) }).await;
        stop.cancel();
        task.await.unwrap();
        cluster.stop().await;
    });
}

/// Somebody who pulls: refuses the first time, then imports what it is asked for.
async fn pull(listener: tokio::net::UnixListener, images_dir: std::path::PathBuf, root: std::path::PathBuf) -> Value {
    use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
    for attempt in 0.. {
        let (stream, _) = listener.accept().await.unwrap();
        let mut stream = BufReader::new(stream);
        let mut line = String::new();
        stream.read_line(&mut line).await.unwrap();
        let request: Value = serde_json::from_str(&line).unwrap();
        let answer = match attempt {
            0 => json!({"failed": {"message": "manifest unknown"}}),
            _ => {
                images::import(&images_dir, request["reference"].as_str().unwrap(), &root).unwrap();
                json!({"pulled": {"digest": "sha256:00"}})
            }
        };
        stream.write_all(format!("{answer}\n").as_bytes()).await.unwrap();
        if attempt == 1 {
            return request;
        }
    }
    unreachable!("it returns")
}

pub(crate) fn a_missing_image_is_pulled_and_a_failed_pull_is_told_and_tried_again() {
    in_cluster(|cluster| async move {
        let socket = cluster.node.path().join("pull.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let store = cluster.node.host.facts.images_dir.clone();
        let puller = tokio::spawn(pull(listener, store, busybox(cluster.node.path())));
        let (stop, task) = cluster.run_node_with(Some(socket));
        let secrets: Api<k8s_openapi::api::core::v1::Secret> = Api::namespaced(cluster.admin.clone(), "default");
        let secret = json!({"metadata": {"name": "pull"}, "type": "kubernetes.io/dockerconfigjson",
            "stringData": {".dockerconfigjson": r#"{"auths":{"example.com":{"auth":"dTpw"}}}"#}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret).unwrap()).await.unwrap();
        let image = json!({"name": "c", "image": "example.com/box:1", "command": ["sh", "-c", "busybox sleep 1000"]});
        let spec = json!({"restartPolicy": "Never", "containers": [image], "imagePullSecrets": [{"name": "pull"}, {"name": "none"}]});
        cluster.create("pulls", spec).await;
        let waiting = |s: &PodStatus| {
            let state = s.container_statuses.iter().flatten().next().and_then(|c| c.state.clone());
            state.and_then(|state| state.waiting)
        };
        let refused = cluster
            .until("pulls", "the refusal", |s| waiting(s).is_some_and(|w| w.reason.as_deref() == Some("ErrImagePull")))
            .await;
        let message = waiting(&refused.status.unwrap()).unwrap().message.unwrap();
        assert!(message.starts_with("failed to pull image \"example.com/box:1\": manifest unknown"), "{message}");
        // After the back-off of ten seconds.
        cluster.until_phase("pulls", "Running").await;
        let request = puller.await.unwrap();
        assert_eq!(request["secrets"], json!([{"auths": {"example.com": {"auth": "dTpw"}}}]));
        stop.cancel();
        task.await.unwrap();
        cluster.stop().await;
    });
}

pub(crate) fn a_new_runner_adopts_what_runs_and_clears_what_nobody_owns() {
    in_cluster(|cluster| async move {
        let (stop, task) = cluster.run_node();
        let sleeper = json!({"restartPolicy": "Never", "containers": [shell("sleep 1000")]});
        cluster.create("kept", sleeper.clone()).await;
        cluster.create("forgotten", sleeper).await;
        let before = cluster.until_phase("kept", "Running").await;
        cluster.until_phase("forgotten", "Running").await;
        stop.cancel();
        task.await.unwrap();

        // Nobody is there while one of them is deleted by force.
        let now = DeleteParams::default().grace_period(0);
        cluster.pods().delete("forgotten", &now).await.unwrap();
        let on_disk = || std::fs::read_dir(&cluster.node.host.pods_dir).unwrap().count();
        assert_eq!(on_disk(), 2);

        let (stop, task) = cluster.run_node();
        eventually("one Pod on disk", || async { (on_disk() == 1).then_some(()) }).await;
        let after = cluster.pods().get("kept").await.unwrap();
        assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "adopting changes nothing");
        cluster.pods().delete("kept", &now).await.unwrap();
        cluster.until_purged().await;
        stop.cancel();
        task.await.unwrap();
        cluster.stop().await;
    });
}

/// As the volume controller writes them.
struct BoundClaims<'a> {
    cluster: &'a Cluster,
    provisioner: &'a Provisioner,
}

impl BoundClaims<'_> {
    fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.cluster.admin.clone(), "default")
    }

    fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.cluster.admin.clone())
    }

    async fn create(&self, name: &str, mode: &str) {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "volumeMode": mode, "storageClassName": "local",
            "resources": {"requests": {"storage": "8Mi"}}});
        let claim = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
        self.claims().create(&PostParams::default(), &claim).await.unwrap();
    }

    async fn bind(&self, name: &str, kind: Kind) -> Provisioned {
        let made = self.provisioner.provision(name, kind, "ReadWriteOnce");
        let uid = self.claims().get(name).await.unwrap().metadata.uid;
        let mut volume = made.claim.volume.clone().unwrap();
        let spec = volume.spec.as_mut().unwrap();
        spec.claim_ref.as_mut().unwrap().uid = uid;
        spec.storage_class_name = Some("local".to_owned());
        spec.persistent_volume_reclaim_policy = Some("Delete".to_owned());
        self.volumes().create(&PostParams::default(), &volume).await.unwrap();
        let bound = json!({"spec": {"volumeName": volume.metadata.name}});
        self.claims().patch(name, &PatchParams::default(), &Patch::Merge(bound)).await.unwrap();
        let status = json!({"status": {"phase": "Bound", "capacity": {"storage": "8Mi"}}});
        self.claims().patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
        made
    }

    async fn capacity(&self, name: &str, size: &str) {
        let raised = Patch::Merge(json!({"spec": {"capacity": {"storage": size}}}));
        self.volumes().patch(&format!("pvc-{name}"), &PatchParams::default(), &raised).await.unwrap();
    }
}

pub(crate) fn a_pod_waits_for_its_claim_starts_at_once_and_sees_it_grow() {
    in_cluster(|cluster| async move {
        let provisioner = Provisioner::of(&cluster.node);
        let all = BoundClaims { cluster: &cluster, provisioner: &provisioner };
        all.create("disk", "Block").await;
        let (stop, task) = cluster.run_node();
        let device = json!({"volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}]});
        let created = cluster
            .create(
                "p",
                json!({
                    "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                    "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}],
                    "containers": [with(shell("exec sleep 1000"), device)]}),
            )
            .await;
        let waiting = |status: &PodStatus| {
            let state = status.container_statuses.as_ref()?.first()?.state.clone()?.waiting?;
            Some((state.reason?, state.message?))
        };
        let pod = cluster.until("p", "a reason to wait", |status| waiting(status).is_some()).await;
        let (reason, message) = waiting(&pod.status.unwrap()).unwrap();
        assert_eq!(reason, "ContainerCreating");
        assert!(message.contains("error processing PVC default/disk: PVC is not bound"), "{message}");
        let events: Api<Event> = Api::namespaced(cluster.admin.clone(), "default");
        eventually("an event", || async {
            let mut events = events.list(&ListParams::default()).await.unwrap().items.into_iter();
            events
                .any(|event| event.reason.as_deref() == Some("FailedMount") && event.message.as_ref() == Some(&message))
                .then_some(())
        })
        .await;

        let disk = all.bind("disk", Kind::Block).await;
        let since = Instant::now();
        cluster.until_phase("p", "Running").await;
        assert!(since.elapsed() < Duration::from_secs(3), "it has waited for {:?}", since.elapsed());
        let uid: PodUid = created.metadata.uid.as_deref().unwrap().parse().unwrap();
        let target = PodPaths::new(&cluster.node.host.pods_dir, &uid).claim("pvc-disk", true);
        assert_eq!(size_of(&target), 8 << 20);
        provisioner.engine.grow(disk.volume.id.as_str(), Range { required: 16 * MIB, limit: 0 }).unwrap();
        let since = Instant::now();
        all.capacity("disk", "16Mi").await;
        eventually("a larger device", || async { (size_of(&target) == 16 << 20).then_some(()) }).await;
        assert!(since.elapsed() < Duration::from_secs(3), "it has grown after {:?}", since.elapsed());

        // The claim is wanted elsewhere, and the Pod goes: nothing of it is left.
        assert_eq!(provisioner.users(&disk).publications.len(), 1);
        cluster.pods().delete("p", &DeleteParams::default()).await.unwrap();
        cluster.until_purged().await;
        assert_eq!(provisioner.users(&disk), Users::default());
        provisioner.engine.delete_volume(disk.volume.id.as_str()).unwrap();
        stop.cancel();
        task.await.unwrap();
        cluster.stop().await;
    });
}

pub(crate) fn a_new_runner_keeps_the_claims_of_what_runs_and_takes_those_of_nobody() {
    in_cluster(|cluster| async move {
        let provisioner = Provisioner::of(&cluster.node);
        let all = BoundClaims { cluster: &cluster, provisioner: &provisioner };
        for name in ["kept", "lost"] {
            all.create(name, "Filesystem").await;
        }
        let (kept, lost) = (all.bind("kept", Kind::Filesystem).await, all.bind("lost", Kind::Filesystem).await);
        let (stop, task) = cluster.run_node();
        let mount = json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]});
        let pod = |claim: &str| {
            json!({
                "restartPolicy": "Never", "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
                "containers": [with(shell("exec sleep 1000"), mount.clone())]})
        };
        cluster.create("kept", pod("kept")).await;
        cluster.until_phase("kept", "Running").await;
        stop.cancel();
        task.await.unwrap();

        // Published for a Pod whose directory somebody has removed by force.
        let target = cluster.node.host.pods_dir.join("11111111-2222-3333-4444-555555555555/mount");
        std::fs::create_dir_all(target.parent().unwrap()).unwrap();
        let engine = Engine::open(cluster.node.volumes()).unwrap();
        engine
            .publish(
                lost.volume.id.as_str(),
                &Publish {
                    target: target.to_str().unwrap().to_owned(),
                    read_only: false,
                    capability: Capability {
                        access: Some(Access::Mount { fs_type: String::new(), flags: vec![] }),
                        mode: Some(AccessMode::SingleNodeMultiWriter),
                    },
                },
            )
            .unwrap();
        drop(engine);

        let (stop, task) = cluster.run_node();
        eventually("nobody's volume is free", || async {
            (provisioner.users(&lost) == Users::default()).then_some(())
        })
        .await;
        assert_eq!(provisioner.users(&kept).publications.len(), 1);
        cluster.pods().delete("kept", &DeleteParams::default().grace_period(0)).await.unwrap();
        cluster.until_purged().await;
        assert_eq!(provisioner.users(&kept), Users::default());
        stop.cancel();
        task.await.unwrap();
        cluster.stop().await;
    });
}
