//! Pods that bring plugged volumes.

use k8s_openapi::api::core::v1::Pod;
use render::{Attachment, Claim, Context, Error, attachment_pod, migration_attachment_pod, trigger_pod};
use serde_json::json;

use crate::vmi;

fn launcher(over: serde_json::Value) -> Pod {
    let mut pod = json!({
        "metadata": { "name": "virt-launcher-testvm-abcde", "namespace": "ns", "uid": "1" },
        "spec": { "nodeName": "node1", "containers": [] },
    });
    machinery::patch::merge(&mut pod, &over);
    serde_json::from_value(pod).expect("a Pod")
}

fn context() -> Context {
    let claim = |uid: &str| (uid.to_owned(), Claim { uid: uid.to_owned(), ..Claim::default() });
    Context { claims: [claim("a"), claim("b")].into(), ..Context::default() }
}

fn of(volume: &str) -> Attachment {
    Attachment { volume: volume.to_owned(), claim: volume.to_owned() }
}

fn plugged() -> api::v1::VirtualMachineInstance {
    vmi(json!({ "status": { "selinuxContext": "none" } }))
}

fn name(volumes: &[Attachment], launcher: &Pod) -> String {
    let pod = attachment_pod(&plugged(), launcher, volumes, &Default::default(), &context()).expect("a Pod");
    pod.metadata.name.expect("a name")
}

#[test]
fn the_name_follows_from_launcher_and_volumes_whatever_their_order() {
    let (one, other) = (launcher(json!({})), launcher(json!({ "metadata": { "uid": "2" } })));
    assert_eq!(name(&[of("a"), of("b")], &one), name(&[of("b"), of("a")], &one));
    assert_ne!(name(&[of("a")], &one), name(&[of("a"), of("b")], &one));
    assert_ne!(name(&[of("a")], &one), name(&[of("a")], &other));
    let trigger = trigger_pod(&plugged(), &one, &of("a"), &Default::default(), &context()).expect("a Pod");
    assert_ne!(trigger.metadata.name, Some(name(&[of("a")], &one)));
}

#[test]
fn it_belongs_to_the_launcher_and_goes_to_its_node() {
    let pod = attachment_pod(&plugged(), &launcher(json!({})), &[of("a")], &Default::default(), &context());
    let pod = serde_json::to_value(pod.expect("a Pod")).expect("it encodes");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["name"], "virt-launcher-testvm-abcde");
    assert_eq!(pod["metadata"]["ownerReferences"][0]["kind"], "Pod");
    let required = &pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"];
    assert_eq!(required["nodeSelectorTerms"][0]["matchExpressions"][0]["values"], json!(["node1"]));
}

#[test]
fn without_a_claim_a_node_or_a_label_there_is_none() {
    let on_node = launcher(json!({}));
    let attach = |vmi, launcher: &Pod, volume| {
        attachment_pod(&vmi, launcher, &[of(volume)], &Default::default(), &context()).expect_err("no Pod")
    };
    let missing = Error::ClaimNotFound { volume: "gone".to_owned(), name: "gone".to_owned() };
    assert_eq!(attach(plugged(), &on_node, "gone"), missing);
    assert_eq!(attach(vmi(json!({})), &on_node, "a"), Error::NoSelinuxContext);
    let unscheduled = launcher(json!({ "spec": { "nodeName": null } }));
    assert_eq!(attach(plugged(), &unscheduled, "a"), Error::Missing("spec.nodeName"));
    let garbled = vmi(json!({ "status": { "selinuxContext": "u:r" } }));
    assert!(attach(garbled, &on_node, "a").to_string().contains("user:role:type:level"));
}

#[test]
fn a_receiver_takes_the_label_of_its_source() {
    let state = json!({ "sourceState": { "selinuxContext": "u:r:t:s0:c3,c4" } });
    let receiver = vmi(json!({ "status": { "migrationState": state } }));
    let pod = attachment_pod(&receiver, &launcher(json!({})), &[of("a")], &Default::default(), &context());
    let context = pod.expect("a Pod").spec.expect("a spec").containers.remove(0).security_context.expect("a context");
    assert_eq!(context.se_linux_options.expect("options").level.as_deref(), Some("s0:c3,c4"));
}

#[test]
fn a_volume_that_the_guest_has_is_mounted_as_well_so_that_the_node_keeps_it() {
    let ready = json!([{ "name": "a", "target": "sda", "hotplugVolume": {}, "phase": "Ready" }]);
    let vmi = vmi(json!({ "status": { "selinuxContext": "none", "volumeStatus": ready } }));
    let target = launcher(json!({ "metadata": {
        "labels": { "kubevirt.io/migrationJobUID": "m" },
        "annotations": { "kubevirt.io/migrationJobName": "move" },
    } }));
    let mounts =
        |pod: &Pod| pod.spec.as_ref().map_or(0, |spec| spec.containers[0].volume_mounts.iter().flatten().count());
    let here = attachment_pod(&vmi, &target, &[of("a")], &Default::default(), &context()).expect("a Pod");
    let there = migration_attachment_pod(&vmi, &target, &[of("a")], &Default::default(), &context()).expect("a Pod");
    assert_eq!((mounts(&here), mounts(&there)), (2, 2));
    assert_eq!(there.metadata.labels.expect("labels")["kubevirt.io/migrationJobUID"], "m");
    assert_eq!(there.metadata.annotations.expect("annotations")["kubevirt.io/migrationJobName"], "move");
}
