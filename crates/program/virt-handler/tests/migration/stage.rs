//! Two nodes, one guest, and the test in the controller's place.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigrationState};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams, PostParams};
use launcher_contract::migration::MigrationPhase;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Handler};
use crate::pod::{Pod, Serial};

/// Generous: the machine may be busy with other builds.
const LIMIT: Duration = Duration::from_secs(120);

pub(crate) struct Stage {
    cluster: Cluster,
    vmis: Api<VirtualMachineInstance>,
    handlers: BTreeMap<String, Handler>,
    /// The guest's Pods, oldest first. The last but one is the source of the last migration.
    pods: Vec<Pod>,
    serial: Option<Serial>,
    dirs: tempfile::TempDir,
    migrations: u32,
    /// How many Pods there have been: none has the name or the UID of an earlier one.
    started: u32,
}

pub(crate) fn migration_state(vmi: &VirtualMachineInstance) -> VirtualMachineInstanceMigrationState {
    vmi.status.clone().unwrap_or_default().migration_state.unwrap_or_default()
}

impl Stage {
    pub(crate) async fn new() -> Stage {
        let cluster = Cluster::start().await;
        let nodes: Api<Node> = Api::all(cluster.admin().await);
        let second: Node = serde_json::from_value(json!({"metadata": {"name": "node02"}})).unwrap();
        nodes.create(&PostParams::default(), &second).await.unwrap();
        let vmis = Api::namespaced(cluster.controller().await, "default");
        let (handlers, pods, dirs) = (BTreeMap::new(), Vec::new(), tempfile::tempdir().unwrap());
        let mut stage = Stage { cluster, vmis, handlers, pods, serial: None, dirs, migrations: 0, started: 0 };
        stage.restart("node01").await;
        stage.restart("node02").await;
        stage
    }

    fn pods_dir(&self, node: &str) -> PathBuf {
        self.dirs.path().join(node).join("pods")
    }

    pub(crate) async fn stop(&mut self, node: &str) {
        if let Some(handler) = self.handlers.remove(node) {
            handler.stop().await;
        }
    }

    pub(crate) async fn restart(&mut self, node: &str) {
        self.stop(node).await;
        let private = self.dirs.path().join(node).join("private");
        let handler = self.cluster.handler_of(node, self.pods_dir(node), private).await;
        self.handlers.insert(node.to_owned(), handler);
    }

    pub(crate) async fn vmi(&self) -> VirtualMachineInstance {
        self.vmis.get("testvm").await.unwrap()
    }

    pub(crate) async fn patch(&self, patch: Value) {
        self.vmis.patch("testvm", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    pub(crate) async fn until(&self, what: &str, condition: impl AsyncFn(&Stage) -> bool) {
        let limit = Instant::now() + LIMIT;
        while !condition(self).await {
            if Instant::now() > limit {
                let status = self.vmi().await.status.unwrap_or_default();
                panic!("{what}: not in time; {:?} {:?}", status.phase, status.migration_state);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    fn active_pods(&mut self) -> Value {
        let alive =
            self.pods.iter_mut().filter_map(|pod| (!pod.has_ended()).then(|| (pod.uid.clone(), json!(pod.node))));
        Value::Object(alive.collect())
    }

    /// A guest with a disk of its own that counts; returns the last count that was seen.
    pub(crate) async fn boot(&mut self, node: &str) -> u64 {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "testvm", "labels": {"kubevirt.io/nodeName": node}},
            "spec": {
                "terminationGracePeriodSeconds": 5,
                "domain": {
                    "memory": {"guest": "256Mi"},
                    "firmware": {"kernelBoot": {
                        "kernelArgs": "console=ttyS0 quiet no_timer_check tick=1",
                        "container": {"image": "guest", "kernelPath": "/boot/vmlinuz", "initrdPath": "/boot/initrd.gz"},
                    }},
                    "devices": {
                        "disks": [{"name": "scratch", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}],
                        "interfaces": [{"name": "default", "masquerade": {}}],
                    },
                },
                "networks": [{"name": "default", "pod": {}}],
                "volumes": [
                    {"name": "scratch", "emptyDisk": {"capacity": "64Mi"}},
                    {"name": "seed", "cloudInitNoCloud": {"userData": "#!/bin/sh\necho seeded\n"}},
                ],
            },
        }))
        .unwrap();
        let vmi = self.vmis.create(&PostParams::default(), &vmi).await.unwrap();
        self.start_pod(node, vmi.metadata.uid.as_deref().unwrap());
        let pods = self.active_pods();
        self.patch(json!({"status": {"phase": "Scheduled", "nodeName": node, "activePods": pods}})).await;
        self.until("the guest runs", async |stage| stage.vmi().await.is_running()).await;
        self.attach().await;
        self.until("the guest counts", async |stage| stage.last_count() >= 2).await;
        self.last_count()
    }

    /// Listens to the guest in the newest Pod that has one.
    async fn attach(&mut self) {
        self.until("the guest has a serial line", async |stage| {
            stage.pods.last().is_some_and(|pod| pod.serial().is_some())
        })
        .await;
        self.serial = self.pods.last().and_then(Pod::serial);
    }

    fn last_count(&self) -> u64 {
        self.serial.as_ref().and_then(Serial::last).unwrap_or_default()
    }

    /// What the migration controller does when the target's Pod is ready.
    pub(crate) async fn hand_off(&mut self, node: &str, configuration: Value) {
        self.pods.retain_mut(|pod| !pod.has_ended());
        let vmi = self.vmi().await;
        self.start_pod(node, vmi.metadata.uid.as_deref().unwrap());
        self.migrations += 1;
        let [.., source, target] = self.pods.as_slice() else { panic!("a source and a target") };
        let state = json!({
            "migrationUid": format!("migration-{}", self.migrations),
            "sourceNode": source.node, "sourcePod": source.name, "targetNode": target.node, "targetPod": target.name,
            "migrationConfiguration": configuration,
        });
        // A merge would keep what the last migration has left.
        self.patch(json!({"status": {"migrationState": null}})).await;
        let pods = self.active_pods();
        self.patch(json!({
            "metadata": {"labels": {"kubevirt.io/migrationTargetNodeName": node}},
            "status": {"migrationState": state, "activePods": pods},
        }))
        .await;
    }

    fn start_pod(&mut self, node: &str, vmi_uid: &str) {
        self.started += 1;
        self.pods.push(Pod::start(&self.pods_dir(node), node, self.started, vmi_uid));
    }

    fn source(&self) -> &Pod {
        &self.pods[self.pods.len() - 2]
    }

    fn target(&self) -> &Pod {
        &self.pods[self.pods.len() - 1]
    }

    async fn source_phase(&self) -> Option<MigrationPhase> {
        let migration = self.source().state().await?.migration?;
        let begun = migration.progress.data_total > 0 || migration.phase != MigrationPhase::Transferring;
        begun.then_some(migration.phase)
    }

    pub(crate) async fn transferring(&self) {
        let under_way = async |stage: &Stage| stage.source_phase().await == Some(MigrationPhase::Transferring);
        self.until("the guest is migrating", under_way).await;
        // Also the API has to show it: that is what a controller acts on.
        let started = async |stage: &Stage| migration_state(&stage.vmi().await).start_timestamp.is_some();
        self.until("the migration has a beginning", started).await;
    }

    pub(crate) async fn switching(&self) {
        let limit = Instant::now() + LIMIT;
        while !self.source_phase().await.is_some_and(|phase| phase != MigrationPhase::Transferring) {
            assert!(Instant::now() < limit, "the switch-over did not come");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) async fn over(&self) -> VirtualMachineInstanceMigrationState {
        let over = async |stage: &Stage| migration_state(&stage.vmi().await).is_over();
        self.until("the migration is over", over).await;
        migration_state(&self.vmi().await)
    }

    pub(crate) async fn completed(&mut self) {
        let state = self.over().await;
        assert_eq!(
            state.failed,
            None,
            "{:?}\nsource:\n{}\ntarget:\n{}",
            state,
            self.source().log(),
            self.target().log()
        );
    }

    pub(crate) async fn failed(&self) -> VirtualMachineInstanceMigrationState {
        let state = self.over().await;
        assert_eq!(state.failed, Some(true), "{state:?}");
        state
    }

    /// The guest counts in its new Pod, on from where it was; returns its last count.
    pub(crate) async fn counts_on(&mut self, before: u64) -> u64 {
        let last = self.last_count().max(before);
        self.attach().await;
        self.until("the guest counts in its new Pod", async |stage| stage.last_count() > 0).await;
        let first = self.serial.as_ref().and_then(Serial::first).unwrap();
        assert!(first > last.saturating_sub(1) && first < last + 60, "{last}, then {first}");
        assert_eq!(self.running(), 1);
        self.last_count()
    }

    pub(crate) async fn goes_on_at_its_source(&self) {
        let last = self.last_count();
        self.until("the guest goes on", async |stage| stage.last_count() > last + 1).await;
        assert_eq!(self.running(), 1);
        let vmi = self.vmi().await;
        assert_eq!(vmi.status.as_ref().unwrap().node_name, Some(self.source().node.clone()));
        assert!(vmi.is_running());
    }

    /// How many of the Pods have a guest that runs.
    pub(crate) fn running(&self) -> usize {
        self.pods.iter().filter(|pod| pod.runs_a_guest()).count()
    }

    pub(crate) async fn source_is_gone(&mut self) {
        let index = self.pods.len() - 2;
        self.ends(index, "the source's launcher ends").await;
    }

    pub(crate) async fn target_is_gone(&mut self) {
        let index = self.pods.len() - 1;
        self.ends(index, "the target's launcher ends").await;
        self.until("the VMI has no target", async |stage| {
            let labels = stage.vmi().await.metadata.labels.unwrap_or_default();
            !labels.contains_key("kubevirt.io/migrationTargetNodeName")
        })
        .await;
    }

    async fn ends(&mut self, index: usize, what: &str) {
        let limit = Instant::now() + LIMIT;
        while !self.pods[index].has_ended() {
            assert!(Instant::now() < limit, "{what}: not in time");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) fn kill_target(&mut self) {
        let index = self.pods.len() - 1;
        self.pods[index].kill();
    }

    pub(crate) fn kill_source(&mut self) {
        let index = self.pods.len() - 2;
        self.pods[index].kill();
    }
}
