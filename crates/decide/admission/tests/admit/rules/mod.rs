//! One row per rule: what breaks it, what is said, and the nearest thing that passes.
//!
//! Rules are about validity, whatever this build supports.

mod claims;
mod compute;
mod devices;
mod firmware;
mod life_cycle;
mod metadata;
mod names;
mod network;
mod placement;
mod platform;
mod storage;

use admission::{Refusal, World};
use api::config::ClusterConfig;
use serde_json::{Value, json};

use crate::{config, gated, someone, validity, vmi};

struct Row {
    rule: &'static str,
    broken: (Value, ClusterConfig),
    errors: Vec<&'static str>,
    fine: (Value, ClusterConfig),
}

/// A rule of every cluster.
fn row(rule: &'static str, broken: Value, error: &'static str, fine: Value) -> Row {
    Row { rule, broken: (broken, config()), errors: vec![error], fine: (fine, config()) }
}

/// Something that is only to be had with a feature gate, and otherwise refused with this error.
fn gate(gate: &'static str, object: Value, error: &'static str) -> Row {
    Row { rule: gate, broken: (object.clone(), config()), errors: vec![error], fine: (object, gated(&[gate])) }
}

impl Row {
    /// A rule that matters only where these gates are open.
    fn behind(mut self, gates: &[&str]) -> Self {
        self.broken.1 = gated(gates);
        self.fine.1 = gated(gates);
        self
    }

    /// A rule about something that only this cluster has.
    fn of(mut self, config: &ClusterConfig) -> Self {
        self.broken.1 = config.clone();
        self.fine.1 = config.clone();
        self
    }

    /// What else is said, because the broken object breaks another rule as well.
    fn and(mut self, error: &'static str) -> Self {
        self.errors.push(error);
        self
    }
}

fn check(rows: impl IntoIterator<Item = Row>) {
    for Row { rule, broken, errors, fine } in rows {
        assert_eq!(causes(&fine.0, &fine.1), Vec::<String>::new(), "{rule}: the neighbour passes");
        assert_eq!(causes(&broken.0, &broken.1), errors, "{rule}");
    }
}

/// What is wrong with an instance that differs in `over` from one that passes: causes and fields, each once.
fn causes(over: &Value, config: &ClusterConfig) -> Vec<String> {
    let judged = validity("virtualmachineinstances", &someone(), None, &vmi(over.clone()), config, &World::default());
    let errors = match judged {
        Ok(judged) => judged.causes,
        Err(Refusal::Invalid(errors)) => errors,
        Err(Refusal::BadRequest(message)) => return vec![format!("BadRequest {message}")],
    };
    let mut told = Vec::new();
    for error in errors {
        let said = format!("{} {}", error.cause.as_str().trim_start_matches("FieldValue"), error.field);
        if !told.contains(&said) {
            told.push(said);
        }
    }
    told
}

fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

fn domain(domain: Value) -> Value {
    spec(json!({ "domain": domain }))
}

fn devices(devices: Value) -> Value {
    domain(json!({ "devices": devices }))
}

/// The one disk, changed.
fn disk(over: Value) -> Value {
    let mut disk = json!({ "name": "root", "disk": { "bus": "virtio" } });
    machinery::patch::merge(&mut disk, &over);
    devices(json!({ "disks": [disk] }))
}

/// The one interface, changed.
fn interface(over: Value) -> Value {
    let mut interface = json!({ "name": "default", "masquerade": {} });
    machinery::patch::merge(&mut interface, &over);
    devices(json!({ "interfaces": [interface] }))
}

/// The one volume, of this source.
fn volume(source: Value) -> Value {
    let mut volume = json!({ "name": "root" });
    machinery::patch::merge(&mut volume, &source);
    spec(json!({ "volumes": [volume] }))
}

/// Both of these changes. What is to be removed from the instance, a `null`, has to be in the first.
fn both(one: Value, other: Value) -> Value {
    let mut both = one;
    machinery::patch::merge(&mut both, &other);
    both
}

#[test]
fn unknown_fields_and_wrong_types_are_refused_with_their_path() {
    let refused = |over: Value| causes(&over, &config());
    assert_eq!(refused(domain(json!({ "colour": "red" }))), ["Invalid spec.domain.colour"]);
    assert_eq!(
        refused(spec(json!({ "terminationGracePeriodSeconds": "soon" }))),
        ["TypeInvalid spec.terminationGracePeriodSeconds"]
    );
    assert_eq!(refused(disk(json!({ "bootOrder": -1 }))), ["TypeInvalid spec.domain.devices.disks[0].bootOrder"]);
}

#[test]
fn every_error_is_reported_networks_and_storage_first() {
    let wrong = json!({
        "hostname": "a.b",
        "networks": [{ "name": "default" }],
        "volumes": [{ "name": "root" }],
        "domain": { "machine": { "type": "isapc" }, "devices": { "gpus": [{ "name": "g" }] } },
        "architecture": "amd64",
    });
    assert_eq!(
        causes(&spec(wrong), &config()),
        [
            "Required spec.networks[0]",
            "Invalid spec.domain.devices.interfaces[0].name",
            "Invalid spec.volumes[0]",
            "Invalid spec.hostname",
            "Invalid spec.domain.machine.type",
            "Required spec.domain.devices.gpus",
        ]
    );
}

#[test]
fn a_cluster_whose_default_network_cannot_be_had_says_so() {
    let none = spec(json!({ "networks": null, "domain": { "devices": { "interfaces": null } } }));
    let mut cluster = ClusterConfig::default();
    assert_eq!(causes(&none, &cluster), Vec::<String>::new(), "bridge");
    let network = cluster.configuration.network.get_or_insert_default();
    network.permit_bridge_interface_on_pod_network = Some(false);
    let said = causes(&none, &cluster);
    assert!(said[0].starts_with("BadRequest the cluster's default binding, bridge, is not permitted"), "{said:?}");
    let network = cluster.configuration.network.get_or_insert_default();
    network.default_network_interface = Some("slirp".to_owned());
    let said = causes(&none, &cluster);
    assert!(said[0].starts_with("BadRequest the cluster's default binding, slirp, was discontinued"), "{said:?}");
}
