//! The removal of an installation.

use api::v1::KubeVirtPhase;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::cluster::{Cluster, FORMER};
use crate::{by_hand, removable};

fn deleted(strategy: &str) -> Cluster {
    let mut cluster = Cluster::deployed();
    let now = cluster.now;
    cluster.kubevirt().metadata.deletion_timestamp = Some(Time(now));
    cluster.kubevirt().spec.uninstall_strategy = Some(strategy.to_owned());
    cluster.labelled_nodes = vec!["n1".to_owned()];
    cluster
}

/// The last object of every kind is gone.
fn clean_up(cluster: &mut Cluster) {
    for live in cluster.live.values_mut() {
        if let Some(finalizers) = live["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|one| *one != "customresourcecleanup.apiextensions.k8s.io");
        }
    }
}

#[test]
fn programs_run_until_the_last_vm_is_gone_then_everything_goes() {
    let mut cluster = deleted("RemoveWorkloads");
    cluster.workloads = vec!["VirtualMachine".to_owned()];
    cluster.run(|_| {});
    assert_eq!(cluster.phase(), Some(KubeVirtPhase::Deleting));
    assert_eq!(cluster.told().1, "DeletionInProgress");
    assert!(
        cluster.has("DaemonSet", "virt-handler")
            && cluster.has("CustomResourceDefinition", "virtualmachines.kubevirt.io")
    );
    // Objects of one kind are gone before those of another.
    let definition = cluster.object("CustomResourceDefinition", "virtualmachinepools.pool.kubevirt.io");
    definition["metadata"]["finalizers"] = json!(["kubevirt.io/virtOperatorFinalizer"]);
    cluster.run(|_| {});
    assert!(cluster.has("CustomResourceDefinition", "virtualmachinepools.pool.kubevirt.io"), "all go together");
    clean_up(&mut cluster);
    cluster.run(|_| {});
    assert!(cluster.kubevirts.is_empty(), "{:#?}", cluster.log);
    assert!(removable(&cluster.world()).is_empty());
    assert!(
        cluster.has("Deployment", "virt-operator") && cluster.has("CustomResourceDefinition", "kubevirts.kubevirt.io")
    );
    let order = [
        "merge CustomResourceDefinition",
        "delete CustomResourceDefinition",
        "delete DaemonSet kubevirt/virt-handler",
        "delete ClusterRole",
        "unlabel n1",
    ];
    assert!(order.map(|what| cluster.first(what)).is_sorted(), "{:#?}", cluster.log);
}

#[test]
fn workloads_block_the_end_if_the_strategy_says_so() {
    let mut cluster = deleted("BlockUninstallIfWorkloadsExist");
    cluster.workloads = vec!["VirtualMachine".to_owned()];
    cluster.run(|_| {});
    let (_, reason, message) = cluster.told();
    assert_eq!(reason, "DeletionFailed");
    assert!(message.contains("while objects of these kinds exist: VirtualMachine. Delete them"), "{message}");
    assert_eq!(cluster.log, Vec::<String>::new());
    cluster.workloads.clear();
    cluster.run(clean_up);
    assert!(cluster.kubevirts.is_empty());
}

#[test]
fn an_object_without_our_finalizer_is_left_to_go() {
    let mut cluster = deleted("RemoveWorkloads");
    cluster.kubevirt().metadata.finalizers = Some(vec!["example.com/other".to_owned()]);
    cluster.run(|_| {});
    assert_eq!(cluster.log, Vec::<String>::new());
}

#[test]
fn by_hand_registrations_go_first_and_the_namespace_last() {
    let cluster = Cluster::deployed();
    let all = by_hand(&cluster.operator.base, &cluster.operator.programs);
    let kinds: Vec<&str> = all.iter().map(|id| id.kind.as_str()).collect();
    let first = |kind: &str| kinds.iter().position(|one| *one == kind).unwrap();
    let order = ["APIService", "CustomResourceDefinition", "DaemonSet", "ClusterRole", "Namespace"];
    assert!(order.map(first).is_sorted(), "{kinds:?}");
    assert_eq!(kinds.last(), Some(&"Namespace"));
    assert!(all.iter().any(|id| id.kind == "Secret" && id.name == "kubevirt-ca"), "{all:?}");
    let left: Vec<&crate::Id> = cluster.live.keys().filter(|id| !all.contains(id)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn an_object_that_goes_while_another_stays_takes_nothing_along() {
    let mut cluster = deleted("RemoveWorkloads");
    let mut second = cluster.kubevirts[0].clone();
    second.metadata.name = Some("second".to_owned());
    second.metadata.deletion_timestamp = None;
    second.metadata.finalizers = None;
    second.status = None;
    cluster.kubevirts.push(second);
    cluster.run(|cluster| cluster.roll_out_everything());
    let names: Vec<_> = cluster.kubevirts.iter().filter_map(|one| one.metadata.name.as_deref()).collect();
    assert_eq!((names, cluster.phase()), (vec!["second"], Some(KubeVirtPhase::Deployed)));
    assert!(!cluster.log.iter().any(|line| line.starts_with("delete")), "{:#?}", cluster.log);
}

#[test]
fn by_hand_objects_of_earlier_versions_go_too() {
    let mut cluster = Cluster::deployed();
    cluster.operator.base.former = FORMER;
    let all = by_hand(&cluster.operator.base, &cluster.operator.programs);
    assert!(
        FORMER.iter().all(|former| all.iter().any(|id| id.kind == former.kind && id.name == former.name)),
        "{all:?}"
    );
}

#[test]
fn at_the_end_objects_of_earlier_versions_go_too() {
    let mut cluster = deleted("RemoveWorkloads");
    cluster.keep_former("kubevirt");
    cluster.run(clean_up);
    assert!(cluster.kubevirts.is_empty(), "{:#?}", cluster.log);
    for former in FORMER {
        assert!(!cluster.has(former.kind, former.name), "{}", former.name);
    }
}
