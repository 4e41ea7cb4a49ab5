//! The stored forms of instance types and preferences: live objects and revisions.
//!
//! A revision holds the whole object in the version it had when the virtual machine first started. `v1beta1` is read as
//! it is; `v1alpha1` and `v1alpha2` have the same fields where they have them at all, and are read the same way. Not
//! read are the revisions of the very first releases, which hold no object but its spec as encoded text.

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use k8s_openapi::api::apps::v1::ControllerRevision;
use serde::de::DeserializeOwned;
use serde_json::Value;

pub(crate) const GROUP: &str = "instancetype.kubevirt.io/";
pub(crate) const INSTANCETYPES: [&str; 2] = ["VirtualMachineInstancetype", "VirtualMachineClusterInstancetype"];
const PREFERENCES: [&str; 2] = ["VirtualMachinePreference", "VirtualMachineClusterPreference"];

/// Quantities, which may be bare numbers where they are stored.
const QUANTITIES: [&str; 3] = ["/spec/memory/guest", "/spec/memory/maxGuest", "/spec/requirements/memory/guest"];

/// Why a revision does not contain the expected instance type or preference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the revision {revision:?} does not hold {expected}: {why}")]
pub struct RevisionError {
    /// The revision's name.
    pub revision: String,
    /// What should have been in it.
    pub expected: &'static str,
    /// What is in it instead.
    pub why: String,
}

/// The instance type in a revision.
pub fn instancetype_of(revision: &ControllerRevision) -> Result<VirtualMachineInstancetypeSpec, RevisionError> {
    held(revision, "an instance type", &INSTANCETYPES)
}

/// The preference in a revision.
pub fn preference_of(revision: &ControllerRevision) -> Result<VirtualMachinePreferenceSpec, RevisionError> {
    held(revision, "a preference", &PREFERENCES)
}

/// The spec of an instance type of either kind, from the whole object.
pub fn decode_instancetype(object: &Value) -> Result<VirtualMachineInstancetypeSpec, serde_json::Error> {
    decode(object)
}

/// The spec of a preference of either kind, from the whole object.
pub fn decode_preference(object: &Value) -> Result<VirtualMachinePreferenceSpec, serde_json::Error> {
    decode(object)
}

fn held<T: DeserializeOwned>(
    revision: &ControllerRevision,
    expected: &'static str,
    kinds: &[&str],
) -> Result<T, RevisionError> {
    let refuse =
        |why: String| RevisionError { revision: revision.metadata.name.clone().unwrap_or_default(), expected, why };
    let object = revision.data.as_ref().map(|data| &data.0).ok_or_else(|| refuse("it is empty".to_owned()))?;
    let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if !version.starts_with(GROUP) || !kinds.contains(&kind) {
        return Err(refuse(format!("it holds {kind:?} of {version:?}")));
    }
    decode(object).map_err(|error| refuse(error.to_string()))
}

fn decode<T: DeserializeOwned>(object: &Value) -> Result<T, serde_json::Error> {
    let mut object = object.clone();
    for pointer in QUANTITIES {
        if let Some(quantity) = object.pointer_mut(pointer).filter(|quantity| quantity.is_number()) {
            *quantity = Value::String(quantity.to_string());
        }
    }
    let spec = object.get_mut("spec").map(Value::take).unwrap_or_default();
    serde_json::from_value(spec)
}
