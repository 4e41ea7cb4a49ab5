//! Interfaces: what the Pod shows of them, and what only a move brings.

use api::v1::Condition;
use api::{conditions, nad, reasons};

use super::super::decide;
use super::*;

const HASHED: &str = "podb1f51a511f1";

fn hashed(network: &str) -> String {
    let networks = [serde_json::from_value(json!({"name": network, "multus": {"networkName": "x"}})).unwrap()];
    render::network::Naming::Hashed.names(&networks)[network].clone()
}

/// A running instance with a secondary interface `blue`, whose Pod has joined what `joined` says.
fn running(interface: Value, joined: Value, statuses: Value) -> World {
    let mut vmi = vmi("Running");
    vmi.spec.domain.devices.interfaces.push(serde_json::from_value(interface).unwrap());
    vmi.spec.networks.push(serde_json::from_value(json!({"name": "blue", "multus": {"networkName": "net"}})).unwrap());
    vmi.status_mut().interfaces = serde_json::from_value(statuses).unwrap();
    let mut pod = pod("ready");
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(nad::NETWORK_STATUS.into(), joined.to_string());
    world(vmi, vec![pod])
}

fn bridge() -> Value {
    json!({"name": "blue", "bridge": {}})
}

fn interfaces(w: &World) -> Vec<(String, String, String)> {
    let new = written(w, &decide(w)).unwrap_or_else(|| (*w.vmi).clone());
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let all = new.status.unwrap().interfaces;
    all.iter().map(|i| (text(&i.name), text(&i.pod_interface_name), text(&i.info_source))).collect()
}

fn row(name: &str, pod: &str, source: &str) -> (String, String, String) {
    (name.to_owned(), pod.to_owned(), source.to_owned())
}

#[test]
fn an_interface_is_shown_where_the_pod_has_it() {
    let blue = hashed("blue");
    assert!(blue.starts_with("pod") && blue.len() == HASHED.len());
    let joined =
        json!([{"name": "ns/pod-network", "interface": "ovn", "default": true}, {"name": "ns/net", "interface": blue}]);
    let w = running(bridge(), joined.clone(), json!([]));
    assert_eq!(interfaces(&w), [row("default", "ovn", ""), row("blue", &blue, "multus-status")]);

    let known = json!([{"name": "default", "podInterfaceName": "ovn", "infoSource": "domain"},
                       {"name": "blue", "infoSource": "domain, guest-agent"},
                       {"interfaceName": "docker0", "infoSource": "guest-agent"}]);
    let w = running(bridge(), joined, known.clone());
    let expected = [
        row("default", "ovn", "domain"),
        row("blue", &blue, "domain, guest-agent, multus-status"),
        row("", "", "guest-agent"),
    ];
    assert_eq!(interfaces(&w), expected, "what others found out stays");

    let w = running(bridge(), json!([]), json!([{"name": "blue", "infoSource": "domain, multus-status"}]));
    assert_eq!(interfaces(&w), [row("default", "eth0", ""), row("blue", &blue, "domain")], "it left the Pod");
    let w = running(bridge(), json!([{"name": "ns/net", "interface": "net1"}]), json!([]));
    assert_eq!(interfaces(&w)[1], row("blue", "net1", "multus-status"), "older Pods number their interfaces");
}

#[test]
fn another_order_alone_is_not_written() {
    let blue = hashed("blue");
    let joined = json!([{"name": "ns/net", "interface": blue}]);
    let known = json!([{"name": "blue", "podInterfaceName": blue, "infoSource": "domain, multus-status"},
                       {"name": "default", "podInterfaceName": "eth0"}]);
    let w = running(bridge(), joined, known);
    let new = written(&w, &decide(&w)).expect("other things are to be written");
    assert_eq!(new.status.unwrap().interfaces, w.vmi.status.as_ref().unwrap().interfaces);
}

fn annotation(w: &World, key: &str) -> Option<String> {
    decide(w).into_iter().find_map(|action| match action {
        Action::Patch { kind: Kind::Pod, patch: Patch::Json(patch), .. } => {
            let mut value = serde_json::to_value(&*w.pods[0]).unwrap();
            machinery::patch::apply(&mut value, &patch).unwrap();
            value["metadata"]["annotations"][key].as_str().map(str::to_owned)
        }
        _ => None,
    })
}

#[test]
fn a_plugged_interface_is_asked_for_on_the_running_pod_and_an_absent_one_is_not() {
    let w = running(bridge(), json!([]), json!([{"name": "default", "podInterfaceName": "eth0"}]));
    let asked = annotation(&w, nad::NETWORKS).expect("Multus is asked");
    assert!(asked.contains(&hashed("blue")) && asked.contains("\"name\":\"net\""), "{asked}");
    let w = running(bridge(), json!([{"interface": "net7"}]), json!([{"name": "default"}]));
    assert!(annotation(&w, nad::NETWORKS).unwrap().contains("\"net1\""), "a Pod keeps the naming it started with");

    let sriov = json!({"name": "blue", "sriov": {}});
    let w = running(sriov, json!([]), json!([{"name": "default", "podInterfaceName": "eth0"}]));
    assert_eq!(annotation(&w, nad::NETWORKS), None, "a device cannot come to a running Pod");

    let mut w = running(json!({"name": "blue", "bridge": {}, "state": "absent"}), json!([]), json!([{"name": "blue"}]));
    let pod = Arc::make_mut(&mut w.pods[0]);
    pod.metadata.annotations.get_or_insert_default().insert(nad::NETWORKS.into(), "[old]".into());
    assert_eq!(annotation(&w, nad::NETWORKS).as_deref(), Some(""));
}

#[test]
fn the_launcher_learns_of_the_devices_behind_its_networks() {
    let device = json!({"type": "pci", "version": "1.0.0", "pci": {"pci-address": "0000:65:00.2"}});
    let joined = json!([{"name": "ns/net", "interface": hashed("blue"), "mac": "02:00", "device-info": device}]);
    let w = running(json!({"name": "blue", "sriov": {}}), joined, json!([{"name": "blue"}]));
    let info: Value = serde_json::from_str(&annotation(&w, api::annotations::NETWORK_INFO).unwrap()).unwrap();
    assert_eq!(info, json!({"interfaces": [{"network": "blue", "deviceInfo": device, "mac": "02:00"}]}));
}

fn required(w: &World) -> Option<Condition> {
    written(w, &decide(w)).unwrap_or_else(|| (*w.vmi).clone()).condition(conditions::MIGRATION_REQUIRED).cloned()
}

/// The interface, what the Pod has joined, what the status shows → the condition's status and reason.
#[test]
fn a_change_that_only_a_move_brings_is_told() {
    let blue = hashed("blue");
    let joined = |name: &str| json!([{"name": name, "interface": blue}]);
    let known = |source: &str| json!([{"name": "blue", "podInterfaceName": blue, "infoSource": source}]);
    let absent = json!({"name": "blue", "bridge": {}, "state": "absent"});
    let at_once = Some(("True", reasons::AUTO_MIGRATION_DUE_TO_LIVE_UPDATE));
    let soon = Some(("False", reasons::AUTO_MIGRATION_PENDING));
    for (name, w, expected) in [
        ("as it should be", running(bridge(), joined("ns/net"), known("domain, multus-status")), None),
        ("a new interface", running(bridge(), json!([]), json!([])), soon),
        ("a new device", running(json!({"name": "blue", "sriov": {}}), json!([]), json!([])), at_once),
        ("absent and still in the Pod", running(absent.clone(), joined("ns/net"), known("multus-status")), soon),
        ("absent and still in the guest", running(absent, joined("ns/net"), known("domain, multus-status")), None),
        ("another definition", running(bridge(), joined("ns/other"), known("domain, multus-status")), at_once),
    ] {
        let seen = required(&w);
        assert_eq!(seen.as_ref().map(|c| (c.status.as_str(), c.reason())), expected, "{name}");
        let again = decide(&w).iter().any(|action| matches!(action, Action::RequeueAfter(_)));
        assert_eq!(again, expected == soon, "{name}");
    }
}

#[test]
fn what_nobody_does_in_place_becomes_a_migration_and_is_not_taken_back() {
    let mut w = running(bridge(), json!([]), json!([]));
    w.vmi = Arc::new(written(&w, &decide(&w)).unwrap());
    w.now = time(110);
    assert!(required(&w).unwrap().is_false());
    w.now = time(116);
    w.vmi = Arc::new(written(&w, &decide(&w)).unwrap());
    assert!(required(&w).unwrap().is_true());
    w.now = time(117);
    assert!(required(&w).unwrap().is_true());
    let vmi = Arc::make_mut(&mut w.vmi);
    vmi.spec.networks.pop();
    vmi.spec.domain.devices.interfaces.pop();
    assert_eq!(required(&w), None, "the wish was taken back");
    let mut moving = running(bridge(), json!([]), json!([]));
    Arc::make_mut(&mut moving.vmi).status_mut().migration_state =
        Some(serde_json::from_value(json!({"startTimestamp": time(50)})).unwrap());
    assert_eq!(required(&moving), None, "not while it moves");
}
