//! Who may change what about an instance.

use admission::User;
use serde_json::{Value, json};

use crate::{component, config, judge, someone, told, vmi};

fn stored() -> Value {
    vmi(json!({
        "metadata": { "uid": "u", "labels": { "app": "web", "kubevirt.io/nodeName": "n1" } },
        "status": { "phase": "Running", "nodeName": "n1" },
    }))
}

fn change(over: Value) -> Value {
    let mut object = stored();
    machinery::patch::merge(&mut object, &over);
    object
}

fn update(user: &User, object: &Value) -> Vec<String> {
    told(judge("virtualmachineinstances", user, Some(&stored()), object, &config()))
}

fn agent_of(node: &str) -> User {
    User { groups: vec![format!("ferrovirt:node:{node}")], ..component("kubevirt-handler") }
}

#[test]
fn users_cannot_change_a_spec() {
    let longer = change(json!({ "spec": { "terminationGracePeriodSeconds": 5 } }));
    assert_eq!(update(&someone(), &longer), ["FieldValueNotSupported spec"]);
    assert_eq!(update(&component("kubevirt-apiserver"), &longer), Vec::<String>::new());
    assert_eq!(update(&component("kubevirt-controller"), &longer), Vec::<String>::new());
}

#[test]
fn an_account_of_another_namespace_is_nobody_special() {
    let longer = change(json!({ "spec": { "terminationGracePeriodSeconds": 5 } }));
    for name in [
        "system:serviceaccount:evil:kubevirt-controller",
        "system:serviceaccount:kubevirt-x:kubevirt-controller",
        "system:serviceaccount:kubevirt:kubevirt-operator",
        "kubevirt-controller",
    ] {
        let user = User { name: name.to_owned(), ..User::default() };
        assert_eq!(update(&user, &longer), ["FieldValueNotSupported spec"], "{name}");
    }
}

#[test]
fn a_users_status_is_put_back_without_a_word() {
    let failed = change(json!({ "status": { "phase": "Failed" }, "metadata": { "labels": { "app": "db" } } }));
    let admitted = judge("virtualmachineinstances", &someone(), Some(&stored()), &failed, &config()).expect("passes");
    assert_eq!(admitted.object["status"], stored()["status"]);
    assert_eq!(admitted.object["metadata"]["labels"]["app"], "db");
    let controller = component("kubevirt-controller");
    let admitted = judge("virtualmachineinstances", &controller, Some(&stored()), &failed, &config()).expect("passes");
    assert_eq!(admitted.object["status"]["phase"], "Failed");
}

#[test]
fn a_new_instance_brings_no_status_of_its_own() {
    let forged = vmi(json!({ "status": { "phase": "Running", "nodeName": "n1" } }));
    let admitted = judge("virtualmachineinstances", &someone(), None, &forged, &config()).expect("passes");
    assert_eq!(admitted.object["status"]["phase"], "Pending");
    assert_eq!(admitted.object["status"]["nodeName"], Value::Null);
    let made = vmi(json!({ "status": { "virtualMachineRevisionName": "r" } }));
    let controller = component("kubevirt-controller");
    let admitted = judge("virtualmachineinstances", &controller, None, &made, &config()).expect("passes");
    assert_eq!(admitted.object["status"]["virtualMachineRevisionName"], "r");
}

#[test]
fn labels_of_the_system_are_not_for_users() {
    let moved = change(json!({ "metadata": { "labels": { "kubevirt.io/nodeName": "n2" } } }));
    assert_eq!(update(&someone(), &moved), ["FieldValueNotSupported metadata.labels"]);
    assert_eq!(update(&component("kubevirt-controller"), &moved), Vec::<String>::new());
    let created = vmi(json!({ "metadata": { "labels": { "kubevirt.io/nodeName": "n2" } } }));
    let user = judge("virtualmachineinstances", &someone(), None, &created, &config());
    assert_eq!(told(user), ["FieldValueNotSupported metadata.labels"]);
    let own = judge("virtualmachineinstances", &component("kubevirt-controller"), None, &created, &config());
    assert_eq!(told(own), Vec::<String>::new());
}

#[test]
fn a_node_agent_writes_the_instances_of_its_own_node_only() {
    let paused = change(json!({ "status": { "reason": "looked at" } }));
    let refused = ["FieldValueInvalid status.nodeName"];
    assert_eq!(update(&agent_of("n1"), &paused), Vec::<String>::new());
    assert_eq!(update(&agent_of("n2"), &paused), refused);
    assert_eq!(update(&component("kubevirt-handler"), &paused), refused, "an agent without a node");
    let sent_away = change(json!({ "status": { "migrationState": { "targetNode": "n3" } } }));
    assert_eq!(update(&agent_of("n1"), &sent_away), refused);
}

#[test]
fn a_token_says_which_node_an_agent_runs_on() {
    let with_token = |node: &str| {
        let extra = [("authentication.kubernetes.io/node-name".to_owned(), vec![node.to_owned()])];
        User { extra: extra.into(), ..component("kubevirt-handler") }
    };
    let paused = change(json!({ "status": { "reason": "looked at" } }));
    assert_eq!(update(&with_token("n1"), &paused), Vec::<String>::new());
    assert_eq!(update(&with_token("n2"), &paused), ["FieldValueInvalid status.nodeName"]);
    assert_eq!(update(&with_token(""), &paused), ["FieldValueInvalid status.nodeName"]);
}

#[test]
fn a_node_agent_writes_what_is_on_its_way_to_its_node() {
    let mut old = stored();
    machinery::patch::merge(&mut old, &json!({ "status": { "migrationState": { "targetNode": "n2" } } }));
    let arrived = judge("virtualmachineinstances", &agent_of("n2"), Some(&old), &old, &config());
    assert_eq!(told(arrived), Vec::<String>::new());
}

#[test]
fn the_restriction_of_node_agents_can_be_turned_off() {
    let mut open = config();
    let developer = open.configuration.developer_configuration.get_or_insert_default();
    developer.disabled_feature_gates.push("NodeRestriction".to_owned());
    let paused = change(json!({ "status": { "reason": "looked at" } }));
    let agent = component("kubevirt-handler");
    let result = judge("virtualmachineinstances", &agent, Some(&stored()), &paused, &open);
    assert_eq!(told(result), Vec::<String>::new());
}
