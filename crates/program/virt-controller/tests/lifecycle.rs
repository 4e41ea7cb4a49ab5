//! The controllers against the embedded API server.

#![allow(clippy::unwrap_used, reason = "the helpers of a test may panic like the test itself")]

mod support;

use std::time::Duration;

use api::v1::VirtualMachineInstance;
use api::{conditions, reasons};
use informer::Key;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Event;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::json;
use support::{Cluster, Controller, IMAGE, NAMESPACE, Node, wait, wait_gone, wait_none};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_virtual_machine_starts_stops_restarts_and_goes() {
    let cluster = Cluster::start().await;
    let node = Node::start(&cluster).await;
    let controller = cluster.controller().await;
    cluster.create_vm("vm", "Always").await;
    let vm = cluster.wait_printable("vm", "Running").await;
    assert_eq!(vm.status.as_ref().unwrap().created, Some(true));

    let vmi = cluster.vmis().get("vm").await.unwrap();
    assert_eq!(vmi.status.as_ref().unwrap().node_name.as_deref(), Some("n1"));
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap().items;
    let name = machinery::names::launcher_pod_name("vm", vmi.metadata.uid.as_deref().unwrap());
    assert_eq!(pods.iter().map(|pod| pod.metadata.name.clone().unwrap()).collect::<Vec<_>>(), [name]);
    wait(&cluster.vmis(), "vm", |vmi| vmi.has_condition(conditions::READY)).await;

    let stop =
        json!({"status": {"stateChangeRequests": [{"action": "Stop", "uid": vmi.metadata.uid}, {"action": "Start"}]}});
    cluster.vms().patch_status("vm", &PatchParams::default(), &Patch::Merge(stop)).await.unwrap();
    let is_new = |new: &VirtualMachineInstance| new.metadata.uid != vmi.metadata.uid && new.is_running();
    wait(&cluster.vmis(), "vm", is_new).await;
    assert_eq!((node.vmis_ever(), node.pods_ever()), (2, 2), "a restart makes one new instance");

    cluster.set_strategy("vm", "Halted").await;
    wait_gone(&cluster.vmis(), "vm").await;
    cluster.wait_printable("vm", "Stopped").await;
    wait_none(&cluster.pods()).await;

    cluster.vms().delete("vm", &DeleteParams::default()).await.unwrap();
    wait_gone(&cluster.vms(), "vm").await;
    let revisions: Api<ControllerRevision> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    wait_none(&revisions).await;
    let events: Api<Event> = Api::namespaced(cluster.admin.clone(), NAMESPACE);
    let told = events.list(&ListParams::default()).await.unwrap().items;
    for reason in [reasons::SUCCESSFUL_CREATE, reasons::SUCCESSFUL_DELETE] {
        for kind in ["VirtualMachine", "VirtualMachineInstance"] {
            let found =
                |e: &Event| e.reason.as_deref() == Some(reason) && e.involved_object.kind.as_deref() == Some(kind);
            assert!(told.iter().any(found), "no event {reason} about a {kind}");
        }
    }
    controller.stop().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_machine_is_left_in_peace_and_cost_few_writes() {
    let cluster = Cluster::start().await;
    let _node = Node::start(&cluster).await;
    let controller = cluster.controller().await;
    cluster.create_vm("vm", "Always").await;
    cluster.wait_ready("vm").await;
    let key = Key::new(NAMESPACE, "vm");
    tokio::time::sleep(Duration::from_millis(500)).await;
    let writes = controller.writes.of(&key);
    assert!(writes <= 15, "{writes} writes for one start");

    // Others write; what we would write is what is there.
    for round in 0..5 {
        let mark = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        cluster.vms().patch("vm", &PatchParams::default(), &Patch::Merge(mark.clone())).await.unwrap();
        cluster.vmis().patch("vm", &PatchParams::default(), &Patch::Merge(mark)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(controller.writes.of(&key), writes, "a settled machine is not written");
    controller.stop().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_dies_again_and_again_makes_nothing_twice() {
    let cluster = Cluster::start().await;
    let node = Node::start(&cluster).await;
    cluster.create_vm("vm", "Always").await;
    for round in 0..12u64 {
        let controller = cluster.controller().await;
        tokio::time::sleep(Duration::from_millis(15 + 12 * round)).await;
        controller.crash().await;
    }
    let controller = cluster.controller().await;
    cluster.wait_printable("vm", "Running").await;
    assert_eq!((node.vmis_ever(), node.pods_ever()), (1, 1));
    controller.crash().await;

    // The same on the way down.
    cluster.vms().delete("vm", &DeleteParams::default()).await.unwrap();
    for round in 0..6u64 {
        let controller = cluster.controller().await;
        tokio::time::sleep(Duration::from_millis(15 + 12 * round)).await;
        controller.crash().await;
    }
    let controller = cluster.controller().await;
    wait_gone(&cluster.vms(), "vm").await;
    wait_none(&cluster.vmis()).await;
    wait_none(&cluster.pods()).await;
    assert_eq!((node.vmis_ever(), node.pods_ever()), (1, 1));
    controller.stop().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_whose_pod_was_taken_away_fails_and_is_replaced() {
    let cluster = Cluster::start().await;
    let node = Node::start(&cluster).await;
    let controller = cluster.controller().await;
    cluster.create_vm("vm", "Always").await;
    cluster.wait_printable("vm", "Running").await;
    let first = cluster.vmis().get("vm").await.unwrap();
    let name = machinery::names::launcher_pod_name("vm", first.metadata.uid.as_deref().unwrap());
    let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
    cluster.pods().delete(&name, &now).await.unwrap();
    wait(&cluster.vmis(), "vm", |vmi| vmi.metadata.uid != first.metadata.uid && vmi.is_running()).await;
    assert_eq!((node.vmis_ever(), node.pods_ever()), (2, 2));
    controller.stop().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_machine_that_fits_nowhere_says_what_the_scheduler_said() {
    let cluster = Cluster::start().await;
    let _node = Node::full(&cluster).await;
    let controller = cluster.controller().await;
    cluster.create_vm("vm", "Always").await;
    let vm = cluster.wait_printable("vm", "ErrorUnschedulable").await;
    let condition = vm.condition(conditions::POD_SCHEDULED).unwrap();
    assert!(condition.message().contains("Insufficient memory"), "{condition:?}");
    cluster.vms().delete("vm", &DeleteParams::default()).await.unwrap();
    wait_gone(&cluster.vms(), "vm").await;
    controller.stop().await;
    cluster.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_controller_takes_over_when_the_leader_leaves() {
    let cluster = Cluster::start().await;
    let _node = Node::start(&cluster).await;
    let candidate = async |identity: &str| {
        let client = cluster.controller_client().await;
        let config = virt_controller::Config {
            identity: identity.to_owned(),
            leader_election: Some(client.clone()),
            ..virt_controller::Config::new(client, IMAGE)
        };
        Controller::start(config)
    };
    let first = candidate("first").await;
    cluster.create_vm("one", "Always").await;
    cluster.wait_ready("one").await;
    let second = candidate("second").await;
    first.stop().await;
    cluster.create_vm("two", "Always").await;
    cluster.wait_printable("two", "Running").await;
    assert_eq!(second.writes.of(&Key::new(NAMESPACE, "one")), 0, "the new leader found nothing to do about the first");
    second.stop().await;
    cluster.end().await;
}
