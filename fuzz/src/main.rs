//! No text and no object makes the dictionary panic: manifests of any shape go through the reader, the schemas, the
//! defaults and the rules of every kind.
//!
//! An input is the text of a manifest. Most mutations change the JSON of an object, field by field, guided by what code
//! they reach; the rest change bytes.

#![no_main]

mod mutate;

use std::sync::LazyLock;

use admission::{Operation, Review, Shape, User, World};
use api::config::ClusterConfig;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use mutate::Kind;
use serde_json::Value;

fuzz_target!(|data: &[u8]| {
    let Ok(documents) = manifests::parse_bytes("input", data) else { return };
    let objects: Vec<Value> = documents.into_iter().map(|document| document.object).collect();
    let world = World::of(objects.iter().cloned());
    for object in &objects {
        if let Some(kind) = Kind::of(object) {
            judge(kind, object, &world);
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    match mutate::text(&data[..size], seed) {
        Some(text) if text.len() <= max_size => {
            data[..text.len()].copy_from_slice(text.as_bytes());
            text.len()
        }
        _ => libfuzzer_sys::fuzzer_mutate(data, size, max_size),
    }
});

/// Clusters as they come, and with every feature gate open.
static CLUSTERS: LazyLock<[ClusterConfig; 2]> = LazyLock::new(|| {
    let mut open = ClusterConfig::default();
    let developer = open.configuration.developer_configuration.get_or_insert_default();
    developer.feature_gates = api::gates::names().map(str::to_owned).collect();
    [ClusterConfig::default(), open]
});

/// Every way an object comes in: created, as a change of another, as the other of a change, as a status, deleted; by a
/// user and by our own components.
fn judge(kind: &Kind, object: &Value, world: &World) {
    let least = &kind.least;
    let alice = User { name: "alice".into(), ..User::default() };
    let handler = User { name: "system:serviceaccount:kubevirt:kubevirt-handler".into(), ..User::default() };
    let [closed, open] = &*CLUSTERS;
    let cases = [
        (Operation::Create, "", &alice, None, object, open),
        (Operation::Create, "", &alice, None, object, closed),
        (Operation::Update, "", &alice, Some(least), object, open),
        (Operation::Update, "", &handler, Some(object), least, open),
        (Operation::Update, "status", &handler, Some(least), object, open),
        (Operation::Delete, "", &alice, None, object, open),
    ];
    for (operation, subresource, user, old, object, config) in cases {
        let (version, resource) = (kind.resource.storage_version(), kind.resource.plural);
        let now = Time(Timestamp::UNIX_EPOCH);
        let request =
            Review { subresource, old, ..Review::of(operation, version, resource, user, object, now) };
        let _ = admission::wanted(&request, &World::default());
        let _ = admission::judge(&request, Shape::Kubernetes, config, world);
    }
}
