//! A whole node agent against a real API server, with launchers that only pretend.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod cluster;
mod fake_launcher;

use std::time::Duration;

use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use test_support::eventually;

use crate::cluster::{Cluster, Handler, NODE};
use crate::fake_launcher::FakeLauncher;

const POD: &str = "0b0e7c3a-0000-4000-8000-000000000001";

/// A VMI without networks that is to run on the node.
fn placed() -> VirtualMachineInstance {
    serde_json::from_value(json!({
        "metadata": {
            "namespace": "default", "name": "testvm", "labels": {"kubevirt.io/nodeName": NODE},
        },
        "spec": {"terminationGracePeriodSeconds": 5, "domain": {
            "devices": {"autoattachPodInterface": false}, "memory": {"guest": "64Mi"},
        }},
    }))
    .unwrap()
}

/// What the controller writes when the VMI's Pod runs: from here on it is the node's. Every VMI has a finalizer; one that
/// is to vanish at once loses it here.
fn handed_over(finalizer: bool) -> Patch<serde_json::Value> {
    let mut patch = json!({"status": {"phase": "Scheduled", "nodeName": NODE, "activePods": {POD: NODE}}});
    if !finalizer {
        patch["metadata"] = json!({"finalizers": null});
    }
    Patch::Merge(patch)
}

struct Scene {
    cluster: Cluster,
    vmis: Api<VirtualMachineInstance>,
    launcher: FakeLauncher,
}

/// A VMI whose guest runs, and the handler that started it.
async fn running(finalizer: bool) -> (Scene, Handler) {
    let cluster = Cluster::start().await;
    let handler = cluster.handler().await;
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(cluster.controller().await, "default");
    // A VMI is handed over when its Pod runs; a Pod without a directory would be one that is gone.
    std::fs::create_dir_all(cluster.pods_dir().join(POD)).unwrap();
    vmis.create(&PostParams::default(), &placed()).await.unwrap();
    let vmi = vmis.patch("testvm", &PatchParams::default(), &handed_over(finalizer)).await.unwrap();
    let launcher = FakeLauncher::start(&cluster.pods_dir(), POD, vmi.metadata.uid.as_deref().unwrap());
    let scene = Scene { cluster, vmis, launcher };
    scene.until_phase("Running").await;
    (scene, handler)
}

impl Scene {
    async fn vmi(&self) -> Option<VirtualMachineInstance> {
        self.vmis.get_opt("testvm").await.unwrap()
    }

    async fn until_phase(&self, phase: &str) {
        let reached = async || self.vmi().await.is_some_and(|vmi| vmi.phase().is_some_and(|p| p.as_str() == phase));
        eventually(&format!("the phase is {phase}"), reached).await;
    }

    fn record(&self) -> std::path::PathBuf {
        self.cluster.private_dir().join("ghost-records").join(POD)
    }

    fn has_record(&self) -> bool {
        self.record().exists()
    }

    /// The pretended launcher is a part of this process; the record is made to name one that is no more.
    fn record_an_ended_process(&self) {
        let mut record: serde_json::Value = serde_json::from_slice(&std::fs::read(self.record()).unwrap()).unwrap();
        record["launcher"]["start_time"] = json!(0);
        std::fs::write(self.record(), record.to_string()).unwrap();
    }
}

#[tokio::test]
async fn a_node_says_that_its_agent_is_there_and_when_it_leaves() {
    let cluster = Cluster::start().await;
    let nodes: Api<Node> = Api::all(cluster.admin().await);
    let handler = cluster.handler().await;
    let schedulable = async || {
        let node = nodes.get(NODE).await.unwrap();
        node.metadata.labels.and_then(|labels| labels.get("kubevirt.io/schedulable").cloned())
    };
    eventually("the node takes VMs", async || schedulable().await.as_deref() == Some("true")).await;
    let annotations = nodes.get(NODE).await.unwrap().metadata.annotations.unwrap();
    assert_eq!(annotations["ferrovirt.io/handler-address"], handler.address.to_string());
    assert!(annotations.contains_key("kubevirt.io/heartbeat"));
    handler.stop().await;
    assert_eq!(schedulable().await.as_deref(), Some("false"));
}

#[tokio::test]
async fn beside_a_kubelet_the_node_takes_vms_only_when_its_devices_are_known() {
    let cluster = Cluster::start().await;
    let nodes: Api<Node> = Api::all(cluster.admin().await);
    let kubelet = tempfile::tempdir().unwrap();
    let beside = || virt_handler::Kubelet {
        device_plugins: kubelet.path().to_owned(),
        device_plugins_on_node: kubelet.path().to_owned(),
        node_root: "/".into(),
        max_devices: 3,
        seccomp: kubelet.path().to_owned(),
    };
    let handler = cluster.handler_beside(beside()).await;
    let sockets = ["kvm", "tun", "vhost-net"].map(|name| kubelet.path().join(format!("kubevirt-{name}.sock")));
    eventually("the plugins listen", async || sockets.iter().all(|socket| socket.exists())).await;
    let has_heartbeat = async || {
        let annotations = nodes.get(NODE).await.unwrap().metadata.annotations.unwrap_or_default();
        annotations.contains_key("kubevirt.io/heartbeat")
    };
    eventually("the agent has a heartbeat", has_heartbeat).await;
    let node = nodes.get(NODE).await.unwrap().metadata;
    assert_eq!(node.labels.unwrap()["kubevirt.io/schedulable"], "false", "no kubelet knows the devices");
    let annotations = node.annotations.unwrap();
    assert!(!annotations.contains_key("ferrovirt.io/handler-address"), "virt-api finds the Pod");
    handler.stop().await;
    assert!(sockets.iter().all(|socket| !socket.exists()), "no socket is left behind");

    // As an agent leaves it that is killed. A kubelet that restarts now must find what launchers select.
    let killed = json!({"metadata": {
        "labels": {"kubevirt.io/schedulable": "true"}, "annotations": {"kubevirt.io/heartbeat": null},
    }});
    nodes.patch(NODE, &PatchParams::default(), &Patch::Merge(killed)).await.unwrap();
    let handler = cluster.handler_beside(beside()).await;
    eventually("the next agent has a heartbeat", has_heartbeat).await;
    let labels = nodes.get(NODE).await.unwrap().metadata.labels.unwrap();
    assert_eq!(
        labels["kubevirt.io/schedulable"], "true",
        "guests run here, whether or not the kubelet knows the devices"
    );
    handler.stop().await;
}

#[tokio::test]
async fn a_guest_runs_survives_its_agent_and_ends_with_its_vmi() {
    let (scene, handler) = running(true).await;
    let vmi = scene.vmi().await.unwrap();
    assert!(vmi.condition("LiveMigratable").unwrap().is_true());
    assert_eq!(vmi.status.as_ref().unwrap().machine.as_ref().unwrap().type_.as_deref(), Some("pc-q35-7.2"));
    assert!(scene.has_record());

    handler.stop().await;
    assert!(scene.launcher.is_running(), "a handler that leaves touches no guest");
    let handler = scene.cluster.handler().await;
    scene.launcher.pause();
    eventually("the new handler adopts the guest", async || {
        scene.vmi().await.is_some_and(|vmi| vmi.has_condition("Paused"))
    })
    .await;
    assert_eq!(scene.launcher.calls("sync"), 1, "a guest that runs is not started again");

    scene.vmis.delete("testvm", &DeleteParams::default()).await.unwrap();
    scene.until_phase("Succeeded").await;
    eventually("the launcher is told to end", async || scene.launcher.calls("delete") == 1).await;
    eventually("nothing is left on the node", async || !scene.has_record()).await;

    let events: Api<Event> = Api::namespaced(scene.cluster.admin().await, "default");
    eventually("the events are there", async || {
        let events = events.list(&ListParams::default()).await.unwrap();
        let reasons: Vec<String> = events.items.into_iter().filter_map(|event| event.reason).collect();
        ["Created", "Started", "ShuttingDown", "Stopped", "Deleted"].iter().all(|r| reasons.iter().any(|s| s == r))
    })
    .await;
    handler.stop().await;
}

#[tokio::test]
async fn a_guest_whose_vmi_vanished_while_nobody_looked_is_ended() {
    let (scene, handler) = running(false).await;
    handler.stop().await;
    scene.vmis.delete("testvm", &DeleteParams::default()).await.unwrap();
    eventually("the VMI is gone", async || scene.vmi().await.is_none()).await;
    assert!(scene.launcher.is_running());
    let handler = scene.cluster.handler().await;
    eventually("the guest is shut down", async || !scene.launcher.is_running()).await;
    eventually("nothing is left on the node", async || !scene.has_record()).await;
    assert_eq!(scene.launcher.calls("kill"), 0);
    handler.stop().await;
}

#[tokio::test]
async fn a_guest_that_ignores_the_request_is_ended_after_its_grace_period() {
    let (scene, handler) = running(true).await;
    scene.launcher.ignore_shutdown();
    let asked = std::time::Instant::now();
    scene.vmis.delete("testvm", &DeleteParams::default()).await.unwrap();
    scene.until_phase("Failed").await;
    assert!(asked.elapsed() >= Duration::from_secs(5), "it had its five seconds");
    assert!(scene.launcher.calls("shutdown") >= 1);
    assert_eq!(scene.launcher.calls("kill"), 1);
    handler.stop().await;
}

#[tokio::test]
async fn the_end_of_a_guest_is_told_as_it_was() {
    for (reason, phase) in [("Shutdown", "Succeeded"), ("Crashed", "Failed")] {
        let (scene, handler) = running(true).await;
        scene.launcher.power_off(reason);
        scene.until_phase(phase).await;
        eventually("nothing is left on the node", async || !scene.has_record()).await;
        handler.stop().await;
    }
}

#[tokio::test]
async fn the_end_of_a_guest_is_told_as_it_was_also_if_nobody_was_there_to_see_it() {
    for (reason, phase) in [("Shutdown", "Succeeded"), ("Crashed", "Failed")] {
        let (scene, handler) = running(true).await;
        handler.stop().await;
        scene.launcher.end(reason);
        scene.record_an_ended_process();
        let handler = scene.cluster.handler().await;
        scene.until_phase(phase).await;
        let vmi = scene.vmi().await.unwrap();
        assert!(vmi.condition("Synchronized").is_none(), "{reason} is an end like others");
        eventually("nothing is left on the node", async || !scene.has_record()).await;
        handler.stop().await;
    }
}

#[tokio::test]
async fn a_launcher_whose_pod_is_gone_fails_its_vmi_with_a_reason() {
    let (scene, handler) = running(true).await;
    scene.launcher.vanish();
    scene.until_phase("Failed").await;
    let vmi = scene.vmi().await.unwrap();
    assert_eq!(vmi.condition("Synchronized").unwrap().message(), "the launcher Pod is gone from its node");
    eventually("nothing is left on the node", async || !scene.has_record()).await;
    handler.stop().await;
}
