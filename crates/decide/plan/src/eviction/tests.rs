use api::v1::VirtualMachineInstance;
use serde_json::{Value, json};

use super::*;

fn launcher(node: &str, phase: &str) -> Pod {
    let pod = json!({"metadata": {"name": "virt-launcher-a-x", "namespace": "ns", "uid": "p1",
            "labels": {labels::APP: "virt-launcher", labels::CREATED_BY: "u1"}, "annotations": {annotations::DOMAIN: "a"},
            "ownerReferences": [owner("VirtualMachineInstance", "a", "u1")]},
        "spec": {"nodeName": node, "containers": []}, "status": {"phase": phase}});
    serde_json::from_value(pod).unwrap()
}

fn attachment() -> Pod {
    let pod = json!({"metadata": {"name": "hp-volume-x", "namespace": "ns", "uid": "h1",
            "labels": {labels::APP: "hotplug-disk"}, "ownerReferences": [owner("Pod", "virt-launcher-a-x", "p1")]},
        "spec": {"nodeName": "n1", "containers": []}, "status": {"phase": "Running"}});
    serde_json::from_value(pod).unwrap()
}

fn owner(kind: &str, name: &str, uid: &str) -> Value {
    json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid, "controller": true})
}

fn vmi(strategy: Option<&str>, migratable: bool) -> VirtualMachineInstance {
    let status = if migratable { "True" } else { "False" };
    let vmi = json!({"metadata": {"name": "a", "namespace": "ns", "uid": "u1", "resourceVersion": "7"},
        "spec": {"evictionStrategy": strategy, "domain": {"devices": {}}},
        "status": {"phase": "Running", "nodeName": "n1",
            "conditions": [{"type": "LiveMigratable", "status": status, "message": "a disk stays behind"}]}});
    serde_json::from_value(vmi).unwrap()
}

fn config(strategy: &str) -> ClusterConfig {
    let mut config = ClusterConfig::default();
    config.configuration.eviction_strategy = Some(strategy.to_owned());
    config
}

fn world<'a>(pod: &'a Pod, vmi: Option<&'a VirtualMachineInstance>, config: &'a ClusterConfig) -> World<'a> {
    World { pod, launcher: None, vmi, annotations: None, config }
}

/// In one word, and with a part of the refusal's text.
fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Allow => "allow",
        Verdict::Deny(_) => "deny",
        Verdict::Mark { .. } => "mark",
    }
}

#[test]
fn the_strategy_and_whether_the_guest_can_move_decide() {
    let none = ClusterConfig::default();
    let live = config("LiveMigrate");
    let table: [(Option<&str>, bool, &ClusterConfig, &str); 12] = [
        (None, true, &none, "allow"),
        (None, true, &live, "mark"),
        (None, false, &live, "deny"),
        (Some(""), true, &live, "mark"),
        (Some("None"), true, &live, "allow"),
        (Some("LiveMigrate"), true, &none, "mark"),
        (Some("LiveMigrate"), false, &none, "deny"),
        (Some("LiveMigrateIfPossible"), true, &none, "mark"),
        (Some("LiveMigrateIfPossible"), false, &none, "allow"),
        (Some("External"), true, &none, "mark"),
        (Some("External"), false, &none, "mark"),
        (Some("NobodyKnows"), true, &none, "allow"),
    ];
    for (strategy, migratable, config, expected) in table {
        let (pod, vmi) = (launcher("n1", "Running"), vmi(strategy, migratable));
        let verdict = judge(&world(&pod, Some(&vmi), config));
        assert_eq!(word(&verdict), expected, "{strategy:?}, migratable {migratable}: {verdict:?}");
    }
}

#[test]
fn a_mark_names_the_node_and_the_refusal_names_the_instance() {
    let (pod, vmi, config) = (launcher("n1", "Running"), vmi(Some("LiveMigrate"), true), ClusterConfig::default());
    let Verdict::Mark { patch, message } = judge(&world(&pod, Some(&vmi), &config)) else { panic!("not marked") };
    assert_eq!(message, "Eviction triggered evacuation of VMI \"ns/a\"");
    let mut object = serde_json::to_value(&vmi).unwrap();
    machinery::patch::apply(&mut object, &patch).unwrap();
    assert_eq!(object["status"]["evacuationNodeName"], "n1");
    assert_eq!(object["metadata"]["annotations"], Value::Null);
    let again = machinery::patch::apply(&mut object, &patch);
    assert!(again.is_err(), "a second mark meets the first");
}

#[test]
fn the_descheduler_leaves_its_mark_beside_other_annotations() {
    let asked = BTreeMap::from([("requested-by".to_owned(), "sigs.k8s.io/descheduler".to_owned())]);
    let config = ClusterConfig::default();
    for others in [json!(null), json!({"other": "1"})] {
        let (pod, mut vmi) = (launcher("n1", "Running"), vmi(Some("LiveMigrate"), true));
        vmi.metadata.annotations = serde_json::from_value(others.clone()).unwrap();
        let world = World { annotations: Some(&asked), ..world(&pod, Some(&vmi), &config) };
        let Verdict::Mark { patch, .. } = judge(&world) else { panic!("not marked") };
        let mut object = serde_json::to_value(&vmi).unwrap();
        machinery::patch::apply(&mut object, &patch).unwrap();
        assert_eq!(object["metadata"]["annotations"]["kubevirt.io/eviction-source"], "descheduler");
        assert_eq!(object["metadata"]["annotations"]["other"], others["other"]);
    }
}

#[test]
fn what_is_not_the_guests_own_pod_is_judged_by_what_it_is() {
    let config = ClusterConfig::default();
    let live = vmi(Some("LiveMigrate"), true);
    let mut marked = live.clone();
    marked.status_mut().evacuation_node_name = Some("n1".into());
    let mut namesake = live.clone();
    namesake.metadata.uid = Some("u2".into());
    let mut undomained = launcher("n1", "Running");
    undomained.metadata.annotations = None;
    let mut foreign = launcher("n1", "Running");
    foreign.metadata.labels = None;
    let running = launcher("n1", "Running");
    let table: [(&str, &Pod, Option<&VirtualMachineInstance>, &str); 9] = [
        ("already marked", &running, Some(&marked), "deny"),
        ("a migration's target", &launcher("n2", "Running"), Some(&live), "deny"),
        ("not bound to a node", &launcher("", "Pending"), Some(&live), "deny"),
        ("completed", &launcher("n1", "Succeeded"), Some(&live), "allow"),
        ("crashed", &launcher("n1", "Failed"), Some(&live), "allow"),
        ("without an instance", &running, None, "deny"),
        ("of an earlier instance", &running, Some(&namesake), "deny"),
        ("no launcher of a guest", &undomained, Some(&live), "allow"),
        ("somebody else's", &foreign, Some(&live), "allow"),
    ];
    for (what, pod, vmi, expected) in table {
        let verdict = judge(&world(pod, vmi, &config));
        assert_eq!(word(&verdict), expected, "{what}: {verdict:?}");
    }
}

#[test]
fn an_attachment_pod_stays_while_the_guest_it_serves_does() {
    let config = ClusterConfig::default();
    let (pod, live) = (attachment(), vmi(None, false));
    let (running, ended) = (launcher("n1", "Running"), launcher("n1", "Succeeded"));
    let mut replaced = running.clone();
    replaced.metadata.uid = Some("p2".into());
    let table: [(&str, Option<&Pod>, Option<&VirtualMachineInstance>, &str); 5] = [
        ("in use", Some(&running), Some(&live), "deny"),
        ("its launcher has ended", Some(&ended), Some(&live), "allow"),
        ("its launcher is gone", None, Some(&live), "allow"),
        ("its launcher was replaced", Some(&replaced), Some(&live), "allow"),
        ("its instance is gone", Some(&running), None, "allow"),
    ];
    for (what, launcher, vmi, expected) in table {
        let verdict = judge(&World { launcher, ..world(&pod, vmi, &config) });
        assert_eq!(word(&verdict), expected, "{what}: {verdict:?}");
    }
    assert_eq!(subject(&pod), Subject::Attachment { launcher: "virt-launcher-a-x" });
}

#[test]
fn a_dry_run_is_answered_alike_and_writes_nothing() {
    let patch = json_patch::Patch(vec![]);
    let mark = Verdict::Mark { patch, message: "it moves".to_owned() };
    assert_eq!(mark.without_effect(), Verdict::Deny("it moves".to_owned()));
    assert_eq!(Verdict::Allow.without_effect(), Verdict::Allow);
}
