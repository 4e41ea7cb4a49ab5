//! Migrating a running guest to another node, and canceling an evacuation.

use api::config::ClusterConfig;
use api::v1::{
    VirtualMachineInstance, VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationSpec,
    VirtualMachineInstancePhase,
};
use json_patch::Patch;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use machinery::patch::JsonPatch;
use serde_json::{Value, json};

use super::refusal::{Kind, Refusal};
use crate::options::{EvacuateCancelOptions, MigrateOptions};

/// The prefix of the names of migrations created here.
const GENERATED: &str = "kubevirt-migrate-vm-";

/// The migration for the VMI of the VM `name`.
pub fn migrate(
    name: &str,
    vmi: &VirtualMachineInstance,
    options: &MigrateOptions,
) -> Result<VirtualMachineInstanceMigration, Refusal> {
    let phase = vmi.status.as_ref().and_then(|status| status.phase.as_ref());
    if phase != Some(&VirtualMachineInstancePhase::Running) {
        return Err(Refusal::conflict(Kind::VirtualMachine, name, "VM is not running"));
    }
    Ok(VirtualMachineInstanceMigration {
        metadata: ObjectMeta { generate_name: Some(GENERATED.to_owned()), ..ObjectMeta::default() },
        spec: VirtualMachineInstanceMigrationSpec {
            vmi_name: Some(name.to_owned()),
            added_node_selector: options.added_node_selector.clone(),
            ..VirtualMachineInstanceMigrationSpec::default()
        },
        ..VirtualMachineInstanceMigration::default()
    })
}

/// The node of an evacuation: the marked one, or the one the guest runs on.
pub fn evacuated_node(vmi: &VirtualMachineInstance) -> Option<&str> {
    let status = vmi.status.as_ref()?;
    let named = |name: &'_ Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
    let node = if named(&status.evacuation_node_name) { &status.evacuation_node_name } else { &status.node_name };
    node.as_deref().filter(|name| !name.is_empty())
}

/// Removes the mark that causes the evacuation; `None` if there is none. `node` is the [`evacuated_node`], if it
/// exists.
pub fn cancel_evacuation(
    vmi: &VirtualMachineInstance,
    node: Option<&Node>,
    config: &ClusterConfig,
    options: Option<&EvacuateCancelOptions>,
) -> Result<Option<Patch>, Refusal> {
    let key = config.migrations().node_drain_taint_key.unwrap_or_default();
    let taints = node.and_then(|node| node.spec.as_ref()).and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
    if !key.is_empty() && taints.iter().any(|taint| taint.key == key && taint.effect == "NoSchedule") {
        let why = format!("the node is being drained: while it has the taint {key}, its guests are evacuated");
        return Err(Refusal::bad_request(why));
    }
    let marked = vmi.status.as_ref().and_then(|status| status.evacuation_node_name.as_deref()).unwrap_or_default();
    if marked.is_empty() {
        return Ok(None);
    }
    let Some(options) = options else {
        return Err(Refusal::bad_request("the request needs a body that names the evacuationNodeName"));
    };
    let mut patch = JsonPatch::new();
    patch.change(&["status", "evacuationNodeName"], json!(options.evacuation_node_name), Value::Null);
    Ok(patch.build())
}
