//! The Pod that receives a guest.

use api::config::ClusterConfig;
use api::v1::{VirtualMachineInstance, VirtualMachineInstanceMigration};
use k8s_openapi::api::core::v1::{Node, Pod};
use render::{Context, Error, Source, launcher_pod, migration_target_pod};
use serde_json::{Value, json};

use crate::vmi;

fn migration(over: Value) -> VirtualMachineInstanceMigration {
    let mut object =
        json!({ "metadata": { "name": "move", "namespace": "ns", "uid": "m" }, "spec": { "vmiName": "testvm" } });
    machinery::patch::merge(&mut object, &over);
    serde_json::from_value(object).expect("a migration")
}

fn node(labels: Value) -> Node {
    serde_json::from_value(json!({ "metadata": { "name": "node1", "labels": labels } })).expect("a node")
}

fn target(vmi: &VirtualMachineInstance, source: &Pod, labels: Value) -> Result<Pod, Error> {
    let node = node(labels);
    let source = Source { pod: source, node: Some(&node) };
    migration_target_pod(vmi, &migration(json!({})), source, &ClusterConfig::default(), &Context::default())
}

fn running(over: Value) -> VirtualMachineInstance {
    let mut base = json!({ "status": { "selinuxContext": "none", "runtimeUser": 107 } });
    machinery::patch::merge(&mut base, &over);
    vmi(base)
}

#[test]
fn source_and_target_differ_in_what_must_differ() {
    let vmi = running(json!({}));
    let source = launcher_pod(&vmi, &Default::default(), &Default::default()).expect("a Pod");
    let mut target = target(&vmi, &source, json!({ "cpu-vendor.node.kubevirt.io/AMD": "true" })).expect("a Pod");
    assert_ne!(target.metadata.name, source.metadata.name);
    let labels = target.metadata.labels.as_mut().expect("labels");
    assert_eq!(labels.remove("kubevirt.io/migrationJobUID").as_deref(), Some("m"));
    let annotations = target.metadata.annotations.as_mut().expect("annotations");
    assert_eq!(annotations.remove("kubevirt.io/migrationJobName").as_deref(), Some("move"));
    let spec = target.spec.as_mut().expect("a spec");
    let selector = spec.node_selector.as_mut().expect("a selector");
    assert_eq!(selector.remove("cpu-vendor.node.kubevirt.io/AMD").as_deref(), Some("true"));
    let apart = spec.affinity.as_mut().and_then(|affinity| affinity.pod_anti_affinity.take()).expect("they keep apart");
    let term = &apart.required_during_scheduling_ignored_during_execution.expect("terms")[0];
    let labels = term.label_selector.as_ref().and_then(|selector| selector.match_labels.as_ref()).expect("labels");
    assert_eq!(labels.get("kubevirt.io/created-by"), vmi.metadata.uid.as_ref());
    target.metadata.name = source.metadata.name.clone();
    assert_eq!(target, source, "nothing else differs");
}

#[test]
fn an_image_is_pinned_by_what_ran_or_by_what_was_pinned() {
    let volumes = json!([{ "name": "root", "containerDisk": { "image": "registry:5000/cirros:1" } }]);
    let vmi = running(json!({ "spec": { "volumes": volumes } }));
    let pinned = "registry:5000/cirros@sha256:abc";
    let image = |source: Value| {
        let source: Pod = serde_json::from_value(source).expect("a Pod");
        let spec = target(&vmi, &source, json!({}))?.spec.expect("a spec");
        assert_eq!(spec.init_containers.iter().flatten().filter(|c| c.name == "volumeroot").count(), 0);
        let volume = spec.volumes.into_iter().flatten().find(|volume| volume.name == "root").expect("the disk");
        Ok::<_, Error>(volume.image.expect("an image").reference.expect("a reference"))
    };
    let ran = json!({ "status": { "initContainerStatuses":
        [{ "name": "volumeroot", "image": "", "imageID": "docker-pullable://x@sha256:abc", "ready": true, "restartCount": 0 }] } });
    assert_eq!(image(ran).as_deref(), Ok(pinned));
    let before =
        json!({ "spec": { "containers": [], "volumes": [{ "name": "root", "image": { "reference": pinned } }] } });
    assert_eq!(image(before).as_deref(), Ok(pinned));
    assert_eq!(image(json!({})), Err(Error::NoDigest { volume: "root".to_owned() }));
}

#[test]
fn the_hosts_cpu_is_looked_for_where_the_guest_goes() {
    let vmi = running(json!({ "spec": { "domain": { "cpu": { "model": "host-model" } } } }));
    let labels = json!({
        "host-model-cpu.node.kubevirt.io/Skylake": "true",
        "host-model-required-features.node.kubevirt.io/ssbd": "true",
    });
    let selector = |pod: Pod| pod.spec.expect("a spec").node_selector.expect("a selector");
    let first = selector(target(&vmi, &Pod::default(), labels.clone()).expect("a Pod"));
    assert_eq!(first["cpu-model-migration.node.kubevirt.io/Skylake"], "true");
    assert_eq!(first["cpu-feature.node.kubevirt.io/ssbd"], "true");
    // A guest that has moved before keeps to what it was started with, not to what its present node has.
    let kept =
        json!({ "spec": { "containers": [], "nodeSelector": { "cpu-model-migration.node.kubevirt.io/Old": "true" } } });
    let again = selector(target(&vmi, &serde_json::from_value(kept).expect("a Pod"), labels).expect("a Pod"));
    assert!(again.contains_key("cpu-model-migration.node.kubevirt.io/Old"));
    assert!(!again.contains_key("cpu-model-migration.node.kubevirt.io/Skylake"));
    let unknown = target(&vmi, &Pod::default(), json!({}));
    assert_eq!(unknown, Err(Error::NoHostModel { node: "node1".to_owned() }));
}

#[test]
fn the_level_is_the_guests_unless_the_cluster_says_otherwise() {
    let labelled = running(json!({ "status": { "selinuxContext": "u:r:t:s0:c1" } }));
    let options = |vmi: &VirtualMachineInstance, config: &ClusterConfig| {
        let source = Source { pod: &Pod::default(), node: None };
        let pod = migration_target_pod(vmi, &migration(json!({})), source, config, &Context::default())?;
        Ok(pod.spec.expect("a spec").security_context.expect("a context").se_linux_options.and_then(|o| o.level))
    };
    let mut free = ClusterConfig::default();
    free.configuration.migrations.get_or_insert_default().match_selinux_level_on_migration = Some(false);
    assert_eq!(options(&labelled, &ClusterConfig::default()), Ok(Some("s0:c1".to_owned())));
    assert_eq!(options(&labelled, &free), Ok(None));
    let unknown = running(json!({ "status": { "selinuxContext": null } }));
    assert_eq!(options(&unknown, &ClusterConfig::default()), Err(Error::NoSelinuxContext));
}

#[test]
fn what_the_migration_adds_gives_way_to_what_the_guest_needs() {
    let added = json!({ "zone": "b", "kubernetes.io/arch": "riscv64" });
    let migration = migration(json!({ "spec": { "addedNodeSelector": added },
        "metadata": { "annotations": { "kubevirt.io/func-test-migration-target-image-override": "other" } } }));
    let source = Source { pod: &Pod::default(), node: None };
    let pod = migration_target_pod(&running(json!({})), &migration, source, &Default::default(), &Default::default());
    let spec = pod.expect("a Pod").spec.expect("a spec");
    let selector = spec.node_selector.expect("a selector");
    assert_eq!((selector["zone"].as_str(), selector["kubernetes.io/arch"].as_str()), ("b", "amd64"));
    assert_eq!(spec.containers[0].image.as_deref(), Some("other"));
}
