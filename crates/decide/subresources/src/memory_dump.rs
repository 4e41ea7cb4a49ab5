//! Requests to dump a guest's memory to a claim.

use api::cdi::{DEFAULT_FILESYSTEM_OVERHEAD, FilesystemOverhead};
use api::config::ClusterConfig;
use api::v1::{
    MemoryDumpPhase as Phase, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase,
    VirtualMachineMemoryDumpRequest, VirtualMachineStatus,
};
use json_patch::Patch;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use machinery::patch::JsonPatch;
use machinery::quantity::Quantity;
use serde_json::{Value, json};

use super::refusal::{Kind, Refusal};
use crate::lifecycle::Step;
use crate::options::MemoryDumpOptions;

const VM: Kind = Kind::VirtualMachine;
/// What a dump has besides the guest's memory.
const DUMP_OVERHEAD: u64 = 100 << 20;

/// The claim that a dump goes to: the one that is asked for, or that of the last dump.
pub fn dump_claim<'a>(vm: &'a VirtualMachine, options: &'a MemoryDumpOptions) -> Result<&'a str, Refusal> {
    let associated = request(vm).map(|request| request.claim_name.as_str()).filter(|name| !name.is_empty());
    match (options.claim_name.as_str(), associated) {
        ("", None) => Err(Refusal::bad_request("Memory dump requires claim name to be set")),
        ("", Some(associated)) => Ok(associated),
        (asked, Some(associated)) if asked != associated => {
            let why = format!(
                "unable to associate the claim {asked}: the memory dump is already associated with another claim, \
                 {associated}; remove that first"
            );
            Err(Refusal::conflict(VM, name(vm), why))
        }
        (asked, _) => Ok(asked),
    }
}

/// Everything a dump needs to know.
#[derive(Clone, Copy, Debug)]
pub struct DumpFacts<'a> {
    pub vmi: Option<&'a VirtualMachineInstance>,
    /// `None` if it does not exist.
    pub claim: Option<&'a PersistentVolumeClaim>,
    /// The settings of the importer, if it is installed.
    pub overhead: Option<&'a FilesystemOverhead>,
}

/// Asks for a dump to the claim of this name.
pub fn dump_memory(
    vm: &VirtualMachine,
    claim_name: &str,
    facts: DumpFacts<'_>,
    config: &ClusterConfig,
) -> Result<Step, Refusal> {
    is_enabled(config)?;
    let refuse = |why: String| Err(Refusal::conflict(VM, name(vm), why));
    let running = |vmi: &&VirtualMachineInstance| {
        vmi.status.as_ref().and_then(|status| status.phase.as_ref()) == Some(&VirtualMachineInstancePhase::Running)
    };
    let Some(vmi) = facts.vmi.filter(running) else { return refuse("VM is not running".to_owned()) };
    let Some(claim) = facts.claim else { return Err(Refusal::not_found(Kind::PersistentVolumeClaim, claim_name)) };
    let spec = claim.spec.clone().unwrap_or_default();
    if spec.volume_mode.as_deref() == Some("Block") {
        return refuse(format!("claim {claim_name} has volumeMode Block; a memory dump needs Filesystem"));
    }
    if spec.access_modes.iter().flatten().all(|mode| mode == "ReadOnlyMany") {
        return refuse(format!("claim {claim_name} is read only; a memory dump has to be written to it"));
    }
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let size = requests.and_then(|requests| requests.get("storage")).map(bytes).unwrap_or_default();
    let class = spec.storage_class_name.as_deref().unwrap_or_default();
    let needed = with_overhead(dump_bytes(vmi), fraction(facts.overhead, class));
    if size.div_ceil(1000) * 1000 < needed {
        return refuse(format!("claim {claim_name} has {size} bytes; a memory dump needs {needed}"));
    }
    match request(vm) {
        Some(last) if last.remove == Some(true) => {
            refuse("the memory dump is being removed; wait until that is done".to_owned())
        }
        Some(last) if !matches!(last.phase, Phase::Completed | Phase::Failed) => {
            refuse(format!("another memory dump to claim {} is in progress", last.claim_name))
        }
        _ => {
            let claim_name = claim_name.to_owned();
            Ok(ask(vm, VirtualMachineMemoryDumpRequest { claim_name, phase: Phase::Associating, ..Default::default() }))
        }
    }
}

/// Takes the claim of the last dump away from the VM.
pub fn remove_dump(vm: &VirtualMachine, config: &ClusterConfig) -> Result<Step, Refusal> {
    is_enabled(config)?;
    let Some(last) = request(vm) else {
        return Err(Refusal::conflict(VM, name(vm), "VM has no memory dump associated with it"));
    };
    if last.remove == Some(true) {
        return Err(Refusal::conflict(VM, name(vm), "the memory dump is already being removed"));
    }
    Ok(ask(vm, VirtualMachineMemoryDumpRequest { phase: Phase::Dissociating, remove: Some(true), ..last.clone() }))
}

/// Bytes of a claim for a dump of this guest's memory, without knowing the claim's storage class.
pub fn dump_claim_bytes(vmi: &VirtualMachineInstance, overhead: Option<&FilesystemOverhead>, class: &str) -> u64 {
    with_overhead(dump_bytes(vmi), fraction(overhead, class))
}

/// Whether the guest's memory is given as such or as a request, the larger counts.
fn dump_bytes(vmi: &VirtualMachineInstance) -> u64 {
    let domain = &vmi.spec.domain;
    let guest = domain.memory.as_ref().and_then(|memory| memory.guest.as_ref()).map(bytes).unwrap_or_default();
    let requests = domain.resources.as_ref().map(|resources| &resources.requests);
    let requested = requests.and_then(|requests| requests.get("memory")).map(bytes).unwrap_or_default();
    guest.max(requested).saturating_add(DUMP_OVERHEAD)
}

fn bytes(amount: &k8s_openapi::apimachinery::pkg::api::resource::Quantity) -> u64 {
    Quantity::try_from(amount).ok().and_then(|amount| u64::try_from(amount.value()).ok()).unwrap_or_default()
}

fn fraction(overhead: Option<&FilesystemOverhead>, class: &str) -> f64 {
    let configured = overhead.and_then(|overhead| overhead.storage_class.get(class).or(overhead.global.as_ref()));
    let default = || DEFAULT_FILESYSTEM_OVERHEAD.parse().ok();
    let fraction = configured.and_then(|fraction| fraction.parse().ok()).or_else(default).unwrap_or_default();
    f64::clamp(fraction, 0.0, 0.99)
}

fn with_overhead(bytes: u64, fraction: f64) -> u64 {
    // Sizes of guests are far below the numbers that lose precision here.
    (bytes as f64 / (1.0 - fraction)).ceil() as u64
}

fn request(vm: &VirtualMachine) -> Option<&VirtualMachineMemoryDumpRequest> {
    vm.status.as_ref()?.memory_dump_request.as_ref()
}

fn name(vm: &VirtualMachine) -> &str {
    vm.metadata.name.as_deref().unwrap_or_default()
}

fn is_enabled(config: &ClusterConfig) -> Result<(), Refusal> {
    if config.feature_gate("HotplugVolumes") || config.feature_gate("DeclarativeHotplugVolumes") {
        return Ok(());
    }
    let why =
        "Unable to dump memory because neither HotplugVolumes nor DeclarativeHotplugVolumes feature gate is enabled.";
    Err(Refusal::bad_request(why))
}

fn ask(vm: &VirtualMachine, new: VirtualMachineMemoryDumpRequest) -> Step {
    let mut patch = JsonPatch::new();
    let value = |request: &VirtualMachineMemoryDumpRequest| {
        serde_json::to_value(request).expect("API types have string keys and serialize")
    };
    if vm.status.as_ref().is_none_or(|status| *status == VirtualMachineStatus::default()) {
        patch.set(&["status"], json!({ "memoryDumpRequest": value(&new) }));
    } else {
        let old = request(vm).map_or(Value::Null, value);
        patch.change(&["status", "memoryDumpRequest"], old, value(&new));
    }
    Step::VmStatus(patch.build().unwrap_or_else(|| Patch(vec![])))
}
