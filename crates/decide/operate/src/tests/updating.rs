//! Another version.

use api::v1::KubeVirtPhase;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::cluster::{Cluster, operator};

fn updated() -> Cluster {
    let mut cluster = Cluster::deployed();
    cluster.operator = operator("v0.3.0");
    cluster
}

/// virt-handler's DaemonSet with this many new Pods of three.
fn roll(cluster: &mut Cluster, updated: i64, ready: i64) {
    let set = cluster.object("DaemonSet", "virt-handler");
    set["status"] = json!({"observedGeneration": set["metadata"]["generation"], "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3, "updatedNumberScheduled": updated, "numberReady": ready});
}

/// A Pod of the current template.
fn new_pod(cluster: &mut Cluster, status: Value) -> Pod {
    let annotations =
        cluster.object("DaemonSet", "virt-handler")["spec"]["template"]["metadata"]["annotations"].clone();
    let metadata = json!({"name": "virt-handler-new", "annotations": annotations});
    serde_json::from_value(
        json!({"metadata": metadata, "spec": {"nodeName": "n1", "containers": []}, "status": status}),
    )
    .unwrap()
}

fn at_once(cluster: &mut Cluster) -> Value {
    cluster.object("DaemonSet", "virt-handler")["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"].clone()
}

#[test]
fn virt_handler_comes_first_with_a_canary_and_virt_api_last() {
    let mut cluster = updated();
    cluster.run(|_| {});
    assert_eq!(cluster.phase(), Some(KubeVirtPhase::Deployed));
    let waiting = "Waiting for virt-handler to be rolled out.".to_owned();
    assert_eq!(cluster.told(), ([true, true, true], "UpdateInProgress".to_owned(), waiting));
    assert_eq!(at_once(&mut cluster), json!(1));

    roll(&mut cluster, 1, 3);
    let ready = json!({"conditions": [{"type": "Ready", "status": "True"}]});
    cluster.handlers = vec![new_pod(&mut cluster, ready)];
    cluster.run(|cluster| roll(cluster, 1, 3));
    assert_eq!(at_once(&mut cluster), json!("10%"), "the canary lives");
    roll(&mut cluster, 3, 3);
    cluster.run(|cluster| roll(cluster, 3, 3));
    assert_eq!(at_once(&mut cluster), json!(1));
    assert_eq!(cluster.told().2, "Waiting for virt-controller to be rolled out.");
    assert!(!cluster.log.contains(&"apply Deployment kubevirt/virt-api".to_owned()));

    cluster.run(|cluster| cluster.roll_out("virt-controller"));
    assert_eq!(cluster.told().2, "Waiting for virt-api to be rolled out.");
    assert!(!cluster.log.iter().any(|line| line.contains("WebhookConfiguration")), "the old ones are still served");
    cluster.run(|cluster| cluster.roll_out("virt-api"));
    cluster.first("apply ValidatingWebhookConfiguration");
    assert_eq!(cluster.told().0, [true, false, false]);
    let status = cluster.kubevirt().status.clone().unwrap();
    assert_eq!(status.observed_kube_virt_version.as_deref(), Some("v0.3.0"));
    assert_eq!(status.operator_version.as_deref(), Some("v0.3.0"));
}

#[test]
fn a_canary_that_crashes_stops_the_update() {
    let mut cluster = updated();
    cluster.run(|_| {});
    roll(&mut cluster, 1, 2);
    let crash = json!({"containerStatuses": [{"name": "virt-handler", "image": "", "imageID": "", "ready": false,
        "restartCount": 5, "state": {"waiting": {"reason": "CrashLoopBackOff"}}}]});
    cluster.handlers = vec![new_pod(&mut cluster, crash)];
    cluster.pass();
    let (holds, reason, message) = cluster.told();
    assert_eq!((holds[2], reason.as_str()), (true, "DeploymentFailed"));
    assert!(message.contains("Pod virt-handler-new on n1: CrashLoopBackOff"), "{message}");
    assert_eq!(at_once(&mut cluster), json!(1));
    assert!(!cluster.log.contains(&"apply Deployment kubevirt/virt-controller".to_owned()));
}

#[test]
fn a_dead_node_is_named_and_holds_the_update_up_for_five_minutes_at_most() {
    let mut cluster = updated();
    cluster.run(|_| {});
    // Kubernetes has deleted the old Pod of a dead node, and takes no other while that stays.
    roll(&mut cluster, 0, 2);
    let mut dead = new_pod(&mut cluster, json!({"conditions": [{"type": "Ready", "status": "False"}]}));
    dead.metadata.annotations = None;
    cluster.handlers = vec![dead.clone()];
    cluster.not_ready = [("n1".to_owned(), cluster.now)].into();
    cluster.run(|cluster| roll(cluster, 0, 2));
    let message = cluster.told().2;
    assert!(message.starts_with("Waiting for virt-handler to be rolled out: node n1 is NotReady since "), "{message}");
    assert_eq!(at_once(&mut cluster), json!(1));

    cluster.now += std::time::Duration::from_secs(300);
    cluster.run(|cluster| roll(cluster, 0, 2));
    assert_eq!(at_once(&mut cluster), json!(2), "one that lives may go");
    let mut new = new_pod(&mut cluster, json!({"conditions": [{"type": "Ready", "status": "True"}]}));
    new.spec.as_mut().unwrap().node_name = Some("n2".to_owned());
    cluster.handlers.push(new);
    cluster.run(|cluster| roll(cluster, 2, 2));
    assert_eq!(at_once(&mut cluster), json!(1));
    assert_eq!(cluster.told().2, "Waiting for virt-controller to be rolled out.");
}

#[test]
fn a_kind_that_is_new_is_defined_after_virt_api_is_new() {
    let mut cluster = updated();
    cluster.live.retain(|id, _| id.name != "virtualmachines.kubevirt.io");
    cluster.run(|_| {});
    assert!(!cluster.has("CustomResourceDefinition", "virtualmachines.kubevirt.io"));
    cluster.run(|cluster| cluster.roll_out_everything());
    let order = ["apply Deployment kubevirt/virt-api", "apply CustomResourceDefinition virtualmachines.kubevirt.io"];
    assert!(order.map(|what| cluster.first(what)).is_sorted(), "{:#?}", cluster.log);
}

#[test]
fn a_downgrade_is_refused_and_certificates_are_still_renewed() {
    let mut cluster = Cluster::deployed();
    cluster.operator = operator("v0.1.0");
    cluster.run(|_| {});
    let (holds, reason, message) = cluster.told();
    assert_eq!((holds, reason.as_str()), ([true, false, true], "DowngradeRefused"));
    assert!(message.starts_with("virt-operator v0.1.0 is older than the previous one, v0.2.0."), "{message}");
    assert_eq!(cluster.log, ["apply ConfigMap kubevirt/kubevirt-ca"], "only what holds certificates is kept");
    cluster.now = cluster.certificates.authority.as_ref().unwrap().not_after - std::time::Duration::from_secs(3600);
    cluster.run(|_| {});
    cluster.first("renew ca");
    cluster.first("merge ValidatingWebhookConfiguration");
    cluster.first("merge APIService");
    // The newer one goes on where it was.
    cluster.operator = operator("v0.2.0");
    cluster.run(|_| {});
    assert_eq!(cluster.told().0, [true, false, false]);
}

#[test]
fn an_older_tag_is_refused_too() {
    let mut cluster = Cluster::deployed();
    cluster.kubevirt().spec.image_tag = Some("v0.1.9".to_owned());
    cluster.run(|_| {});
    let (_, reason, message) = cluster.told();
    assert_eq!(reason, "DowngradeRefused");
    assert!(message.starts_with("Version v0.1.9 is older than the running version v0.2.0."), "{message}");
}

#[test]
fn what_an_earlier_version_created_goes_if_it_is_ours_but_no_users_objects_with_it() {
    for (installation, goes) in [("kubevirt", true), ("elsewhere", false)] {
        let mut cluster = Cluster::deployed();
        cluster.keep_former(installation);
        cluster.run(Cluster::roll_out_everything);
        assert_eq!(!cluster.has("ValidatingAdmissionPolicy", "kubevirt-old-policy"), goes, "{:#?}", cluster.log);
        assert!(cluster.has("CustomResourceDefinition", "olds.kubevirt.io"), "{:#?}", cluster.log);
    }
    // Objects that nobody named stay: virt-operator has no right to them.
    let mut cluster = Cluster::deployed();
    cluster.keep_former("kubevirt");
    cluster.operator.base.former = &[];
    cluster.run(Cluster::roll_out_everything);
    assert!(cluster.has("ValidatingAdmissionPolicy", "kubevirt-old-policy"));
}
