//! Rules for machines.

use api::config::ClusterConfig;
use serde_json::{Value, json};

use super::{causes_of, create, create_in, update};
use crate::{config, vm};

fn spec(spec: Value) -> Vec<String> {
    causes_of(create(&vm(json!({ "spec": spec })), []))
}

fn gated(gate: &str, on: bool) -> ClusterConfig {
    let mut config = config();
    let developer = config.configuration.developer_configuration.get_or_insert_default();
    let list = if on { &mut developer.feature_gates } else { &mut developer.disabled_feature_gates };
    list.push(gate.to_owned());
    config
}

#[test]
fn a_machine_runs_by_one_strategy() {
    assert_eq!(spec(json!({ "running": true })), ["FieldValueInvalid spec.running"]);
    assert_eq!(spec(json!({ "runStrategy": null })), ["FieldValueInvalid spec.running"]);
    assert_eq!(spec(json!({ "runStrategy": null, "running": false })), Vec::<String>::new());
    assert_eq!(spec(json!({ "runStrategy": "Sometimes" })), ["FieldValueInvalid spec.runStrategy"]);
    for known in ["Always", "Halted", "Manual", "RerunOnFailure", "Once"] {
        assert_eq!(spec(json!({ "runStrategy": known })), Vec::<String>::new(), "{known}");
    }
}

#[test]
fn waiting_for_a_guest_from_elsewhere_has_a_gate() {
    let object = vm(json!({ "spec": { "runStrategy": "WaitAsReceiver" } }));
    let told = |on: bool| causes_of(create_in(&object, &gated("DecentralizedLiveMigration", on), []));
    assert_eq!(told(true), Vec::<String>::new());
    assert_eq!(told(false), ["FieldValueInvalid spec.runStrategy"]);
}

fn domain(domain: Value) -> Value {
    vm(json!({ "spec": { "template": { "spec": { "domain": domain } } } }))
}

fn rollout(strategy: &str) -> ClusterConfig {
    let mut config = config();
    config.configuration.vm_rollout_strategy = Some(strategy.to_owned());
    config
}

#[test]
fn a_machine_has_room_for_its_sockets() {
    let told = |sockets: u32, most: u32| {
        causes_of(create(&domain(json!({ "cpu": { "sockets": sockets, "maxSockets": most } })), []))
    };
    assert_eq!(told(4, 4), Vec::<String>::new());
    assert_eq!(told(4, 0), Vec::<String>::new());
    assert_eq!(told(5, 4), ["FieldValueInvalid spec.template.spec.domain.cpu.sockets"]);
}

#[test]
fn a_machine_that_names_its_most_memory_can_be_given_it() {
    let refused = ["FieldValueInvalid spec.template.spec.domain.memory.guest"];
    let memory = |guest: &str, most: &str| json!({ "memory": { "guest": guest, "maxGuest": most } });
    let told = |spec: &Value| causes_of(create(&domain(spec.clone()), []));
    let over = |more: Value| {
        let mut spec = memory("1Gi", "4Gi");
        machinery::patch::merge(&mut spec, &more);
        spec
    };
    let fine = [memory("1Gi", "4Gi"), memory("1Gi", "1Gi"), memory("1026Mi", "2Gi")];
    for spec in fine {
        assert_eq!(told(&spec), Vec::<String>::new(), "{spec}");
    }
    let broken = [
        memory("4Gi", "2Gi"),
        memory("512Mi", "2Gi"),
        memory("1025Mi", "2Gi"),
        memory("1Gi", "2049Mi"),
        over(json!({ "memory": { "hugepages": { "pageSize": "1Gi" }, "maxGuest": "1026Mi" } })),
    ];
    for spec in broken {
        assert_eq!(told(&spec), refused, "{spec}");
    }
    // What stands in the way for good; some of it breaks other rules as well.
    let in_the_way = [
        over(json!({ "cpu": { "realtime": {} } })),
        over(json!({ "cpu": { "numa": { "guestMappingPassthrough": {} } } })),
        over(json!({ "launchSecurity": { "sev": {} } })),
        over(json!({ "memory": { "guest": null } })),
    ];
    for spec in in_the_way {
        assert!(told(&spec).contains(&refused[0].to_owned()), "{spec}");
    }
    let mut elsewhere = domain(memory("1Gi", "4Gi"));
    elsewhere["spec"]["template"]["spec"]["architecture"] = json!("arm64");
    assert_eq!(causes_of(create(&elsewhere, [])), refused);
    // Only where changes reach running guests.
    let staged = create_in(&domain(memory("512Mi", "2Gi")), &rollout("Stage"), []);
    assert_eq!(causes_of(staged), Vec::<String>::new());
}

#[test]
fn a_network_card_is_plugged_into_a_stopped_machine_only() {
    let on_networks = |interfaces: Value, created: bool| {
        let networks = ["default", "blue"].map(|name| json!({ "name": name, "multus": { "networkName": name } }));
        let mut vm = domain(json!({ "devices": { "interfaces": interfaces } }));
        let networks: Vec<_> = networks.into_iter().take(interfaces.as_array().map_or(0, Vec::len)).collect();
        vm["spec"]["template"]["spec"]["networks"] = json!(networks);
        vm["status"] = json!({ "created": created });
        vm
    };
    let card = |name: &str, state: &str| json!({ "name": name, "bridge": {}, "state": state });
    let one = json!([card("default", "")]);
    let two = json!([card("default", ""), card("blue", "")]);
    let none_left = json!([card("default", ""), card("blue", "absent")]);
    let at = "spec.template.spec.domain.devices.interfaces[1]";
    for (before, after, refused) in [
        (&one, &two, Some(format!("{at}: network hotplug"))),
        (&two, &none_left, Some(format!("{at}.state: network hot-unplug"))),
        (&none_left, &none_left, None),
        (&two, &two, None),
    ] {
        let told = |created: bool| {
            let mut new = on_networks(after.clone(), created);
            new["spec"]["template"]["spec"]["hostname"] = json!("changed");
            let judged = update(&on_networks(before.clone(), created), &new, []).unwrap();
            assert_eq!(judged.causes, [], "{after}");
            judged.unsupported.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(false), Vec::<String>::new(), "a stopped machine: {after}");
        match refused {
            Some(refused) => assert!(told(true)[0].starts_with(&refused), "{after}: {:?}", told(true)),
            None => assert_eq!(told(true), Vec::<String>::new(), "{after}"),
        }
    }
}

#[test]
fn what_is_gone_is_refused_to_new_machines_only() {
    let bound = |binding: &str| {
        let interfaces = json!([{ "name": "default", binding: {} }]);
        domain(json!({ "devices": { "interfaces": interfaces } }))
    };
    for binding in ["slirp", "passt", "macvtap"] {
        let path = format!("spec.domain.devices.interfaces[0].{binding}");
        assert_eq!(causes_of(create(&bound(binding), [])), [format!("FieldValueInvalid {path}")], "{binding}");
        let gate = match binding {
            "passt" => "Passt",
            "macvtap" => "Macvtap",
            _ => "",
        };
        if !gate.is_empty() {
            let told = causes_of(create_in(&bound(binding), &gated(gate, true), []));
            assert_eq!(told, ["FieldValueNotSupported "], "{binding} with its gate");
        }
        let changed = causes_of(update(&vm(json!({})), &bound(binding), []));
        assert!(!changed.iter().any(|cause| cause.contains(&path)), "{binding}: {changed:?}");
    }
}

#[test]
fn template_and_metadata_are_judged() {
    assert_eq!(
        spec(json!({ "template": { "spec": { "hostname": "a.b" } } })),
        ["FieldValueInvalid spec.template.spec.hostname"]
    );
    let labels = json!({ "kubevirt.io/nodeName": "n" });
    let told = spec(json!({ "template": { "metadata": { "labels": labels } } }));
    assert_eq!(told, ["FieldValueNotSupported spec.template.metadata.labels"]);
}

#[test]
fn rules_that_wait_for_the_instance_do_not_bind_the_template() {
    // A guest without any memory, and a Hyper-V feature without the one it builds on.
    assert_eq!(spec(json!({ "template": { "spec": { "domain": { "memory": null } } } })), Vec::<String>::new());
    let hyperv = json!({ "synictimer": {}, "synic": { "enabled": false } });
    let told = spec(json!({ "template": { "spec": { "domain": { "features": { "hyperv": hyperv } } } } }));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_default_network_that_cannot_be_makes_the_request_fail() {
    let mut config = config();
    let network = config.configuration.network.get_or_insert_default();
    network.default_network_interface = Some("bridge".to_owned());
    network.permit_bridge_interface_on_pod_network = Some(false);
    let bare = vm(json!({ "spec": { "template": { "spec": {
        "networks": null, "domain": { "devices": { "interfaces": null } },
    } } } }));
    let refused = create_in(&bare, &config, []);
    assert!(matches!(refused, Err(admission::Refusal::BadRequest(_))), "{refused:?}");
}

#[test]
fn deprecated_gates_and_fields_are_warned_about() {
    let running = vm(json!({ "spec": { "runStrategy": null, "running": true } }));
    let warnings = create(&running, []).expect("it passes").warnings;
    assert_eq!(warnings, ["spec.running is deprecated, please use spec.runStrategy instead."]);
    assert_eq!(create(&vm(json!({})), []).expect("it passes").warnings, Vec::<String>::new());
}

#[test]
fn an_unchanged_spec_is_not_judged_again() {
    let bad =
        json!({ "spec": { "runStrategy": "Sometimes", "dataVolumeTemplates": [{ "metadata": {}, "spec": {} }] } });
    // As it is stored: with its platform.
    let mut old = vm(bad);
    machinery::patch::merge(
        &mut old,
        &json!({ "spec": { "template": { "spec": { "architecture": "amd64", "domain": { "machine": { "type": "q35" } } } } } }),
    );
    let mut new = old.clone();
    new["metadata"]["labels"] = json!({ "a": "b" });
    assert_eq!(causes_of(update(&old, &new, [])), Vec::<String>::new());
    new["spec"]["runStrategy"] = json!("Never");
    assert_ne!(causes_of(update(&old, &new, [])), Vec::<String>::new());
}
