//! Stores instance types and preferences as revisions: a VM keeps what it was first started with.
//!
//! The name of a revision identifies its content, down to the object's generation: capturing the same object again
//! gives the same revision.

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::labels;
use api::v1::VirtualMachine;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use machinery::meta::{controller_ref, label};
use machinery::names::{SUBDOMAIN_MAX, truncated_name};
use serde::Serialize;
use serde_json::{Value, json};

use crate::revision::{GROUP, INSTANCETYPES, RevisionError, instancetype_of, preference_of};

/// The version that objects are captured in.
const VERSION: &str = "v1beta1";

/// An instance type or preference in the cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Live<T> {
    /// The object's kind.
    pub kind: String,
    /// Only name, namespace, UID and generation are used.
    pub metadata: ObjectMeta,
    /// Its spec.
    pub spec: T,
}

/// The revision that stores an object for a VM.
pub fn capture<T: Serialize>(vm: &VirtualMachine, live: &Live<T>) -> ControllerRevision {
    let ObjectMeta { name, namespace, uid, generation, .. } = &live.metadata;
    let (object, uid) = (name.as_deref().unwrap_or_default(), uid.as_deref().unwrap_or_default());
    let generation = generation.unwrap_or_default();
    let machine = vm.metadata.name.as_deref().unwrap_or_default();
    let mut held = json!({"name": object, "uid": uid, "generation": generation});
    if let Some(namespace) = namespace {
        held["namespace"] = json!(namespace);
    }
    let marks = [
        (labels::REVISION_OBJECT_GENERATION, generation.to_string()),
        (labels::REVISION_OBJECT_KIND, live.kind.clone()),
        (labels::REVISION_OBJECT_NAME, object.to_owned()),
        (labels::REVISION_OBJECT_UID, uid.to_owned()),
        (labels::REVISION_OBJECT_VERSION, VERSION.to_owned()),
    ];
    let suffix = format!("{VERSION}-{uid}-{generation}");
    ControllerRevision {
        metadata: ObjectMeta {
            name: Some(truncated_name(&format!("{machine}-{object}"), &suffix, SUBDOMAIN_MAX)),
            namespace: vm.metadata.namespace.clone(),
            labels: Some(marks.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()),
            owner_references: controller_ref(vm).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        data: Some(RawExtension(json!({
            "apiVersion": format!("{GROUP}{VERSION}"), "kind": live.kind, "metadata": held, "spec": live.spec,
        }))),
        revision: 0,
    }
}

/// The same object captured in the current version, if the revision holds an older one.
pub fn upgrade(vm: &VirtualMachine, old: &ControllerRevision) -> Result<Option<ControllerRevision>, RevisionError> {
    if label(&old.metadata, labels::REVISION_OBJECT_VERSION) == Some(VERSION) {
        return Ok(None);
    }
    let object = old.data.as_ref().map(|data| &data.0).unwrap_or(&Value::Null);
    let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    let metadata = ObjectMeta {
        name: text("/metadata/name"),
        namespace: text("/metadata/namespace"),
        uid: text("/metadata/uid"),
        generation: object.pointer("/metadata/generation").and_then(Value::as_i64),
        ..ObjectMeta::default()
    };
    Ok(Some(if INSTANCETYPES.contains(&kind.as_str()) {
        let spec: VirtualMachineInstancetypeSpec = instancetype_of(old)?;
        capture(vm, &Live { kind, metadata, spec })
    } else {
        let spec: VirtualMachinePreferenceSpec = preference_of(old)?;
        capture(vm, &Live { kind, metadata, spec })
    }))
}
