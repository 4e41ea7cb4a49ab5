//! Instance types and preferences, applied.

mod captures;
mod instancetypes;
mod matchers;
mod preferences;
mod requirements;
mod topologies;

use api::instancetype::{VirtualMachineInstancetypeSpec, VirtualMachinePreferenceSpec};
use api::v1::VirtualMachineInstanceSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::field::FieldPath;
use serde_json::{Value, json};

/// An instance type of two CPUs and 1Gi; `over` is merged over it.
fn instancetype(over: Value) -> VirtualMachineInstancetypeSpec {
    let mut spec = json!({ "cpu": { "guest": 2 }, "memory": { "guest": "1Gi" } });
    machinery::patch::merge(&mut spec, &over);
    serde_json::from_value(spec).expect("an instance type")
}

fn preference(spec: Value) -> VirtualMachinePreferenceSpec {
    serde_json::from_value(spec).expect("a preference")
}

fn vmi(spec: &Value) -> VirtualMachineInstanceSpec {
    serde_json::from_value(spec.clone()).expect("an instance's spec")
}

/// What an instance becomes, as JSON, with its annotations; or the fields that are in conflict.
fn applied(
    instancetype: Option<&VirtualMachineInstancetypeSpec>,
    preference: Option<&VirtualMachinePreferenceSpec>,
    spec: &Value,
    annotations: Value,
) -> Result<(Value, Value), Vec<String>> {
    let mut vmi = vmi(spec);
    let mut metadata =
        ObjectMeta { annotations: serde_json::from_value(annotations).expect("annotations"), ..ObjectMeta::default() };
    let field = FieldPath::new("spec.template.spec");
    let conflicts = instancetype::apply(&field, instancetype, preference, &mut vmi, &mut metadata);
    if conflicts.is_empty() {
        let spec = serde_json::to_value(&vmi).expect("it serializes");
        Ok((spec, json!(metadata.annotations.unwrap_or_default())))
    } else {
        let untouched = self::vmi(spec);
        assert_eq!(vmi, untouched, "with a conflict nothing is applied");
        Err(conflicts.iter().map(ToString::to_string).collect())
    }
}
