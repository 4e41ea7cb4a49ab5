//! What depends on more than one field: which bindings this build has on which networks.

use machinery::field::{FieldError, FieldPath};
use serde_json::Value;

use super::refusal;

/// The interfaces of a VMI's spec at `field` with a binding that is not supported on their network.
pub(super) fn refusals(field: &FieldPath, spec: &Value) -> Vec<FieldError> {
    let list = |pointer: &str| spec.pointer(pointer).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let networks = list("/networks");
    let on_pod_network = |interface: &Value| {
        let mut own = networks.iter().filter(|network| network["name"] == interface["name"]);
        own.any(|network| network["pod"].is_object())
    };
    let bridged = |interface: &&Value| interface["bridge"].is_object() && on_pod_network(interface);
    let interfaces = list("/domain/devices/interfaces").iter().enumerate();
    interfaces
        .filter(|(_, interface)| bridged(interface))
        .map(|(index, _)| {
            let at = field.child("domain.devices.interfaces").index(index).child("bridge");
            refusal(at, "the bridge binding on the Pod network (use masquerade instead) is")
        })
        .collect()
}
