//! What depends on more than one field: which bindings this build has on which networks, and what changes of them.

use api::v1::{Binding, Interface, VirtualMachineInstanceSpec};
use machinery::field::{Cause, FieldError, FieldPath};
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

/// What a change of a template at `field` would plug into, or out of, the running guest.
pub(crate) fn plugged(
    field: &FieldPath,
    old: &VirtualMachineInstanceSpec,
    new: &VirtualMachineInstanceSpec,
) -> Vec<FieldError> {
    let is_absent = |interface: &Interface| interface.state.as_deref() == Some("absent");
    let before = |name: &str| old.domain.devices.interfaces.iter().find(|interface| interface.name == name);
    let refuse = |at: FieldPath, what: &str| {
        FieldError::new(Cause::Unsupported, at, format!("{what} is not supported; stop the VM first"))
    };
    let interfaces = new.domain.devices.interfaces.iter().enumerate();
    // The others need a restart, and the controller says so.
    let pluggable = interfaces.filter(|(_, interface)| interface.bound_by() == Binding::Bridge);
    pluggable
        .filter_map(|(index, interface)| {
            let at = field.child("domain.devices.interfaces").index(index);
            match (before(&interface.name), is_absent(interface)) {
                (None, false) => Some(refuse(at, "network hotplug")),
                (Some(before), true) if !is_absent(before) => Some(refuse(at.child("state"), "network hot-unplug")),
                _ => None,
            }
        })
        .collect()
}
