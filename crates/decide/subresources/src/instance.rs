//! Requests to a running VMI: whether they are allowed, and where to connect.

use std::net::{IpAddr, SocketAddr};

use api::conditions;
use api::v1::{
    Condition, ProbeHandler, VirtualMachine, VirtualMachineInstance, VirtualMachineInstancePhase,
    VirtualMachineInstanceStatus,
};

use super::refusal::{Kind, Refusal};

const VMI: Kind = Kind::VirtualMachineInstance;

/// Transport of a forwarded port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// A stream.
    Tcp,
    /// Datagrams.
    Udp,
}

impl Protocol {
    /// The protocol of a path's last element; absent means TCP.
    pub fn parse(text: Option<&str>) -> Result<Self, Refusal> {
        match text {
            None | Some("tcp") => Ok(Protocol::Tcp),
            Some("udp") => Ok(Protocol::Udp),
            Some(other) => Err(Refusal::bad_request(format!("unknown protocol {other:?}, use tcp or udp"))),
        }
    }
}

/// The node whose virt-handler serves the VMI.
pub fn handler_node(vmi: &VirtualMachineInstance) -> Result<&str, Refusal> {
    use VirtualMachineInstancePhase::{Running, Scheduled};
    match phase(vmi) {
        Some(Running | Scheduled) => {}
        other => {
            let phase = other.map(|phase| phase.as_str()).unwrap_or_default();
            return Err(Refusal::bad_request(format!(
                "unable to connect to VirtualMachineInstance because phase is {phase:?} instead of Running or Scheduled"
            )));
        }
    }
    let node = vmi.status.as_ref().and_then(|status| status.node_name.as_deref()).filter(|node| !node.is_empty());
    node.ok_or_else(|| Refusal::bad_request("the VirtualMachineInstance has no node yet"))
}

/// The serial console.
pub fn console(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vmi.spec.domain.devices.autoattach_serial_console == Some(false) {
        return Err(Refusal::bad_request("No serial consoles are present."));
    }
    if phase(vmi) == Some(&VirtualMachineInstancePhase::Failed) {
        return Err(Refusal::conflict(VMI, name(vmi), "VMI is in failed status"));
    }
    running_or_bad_request(vmi)
}

/// The display.
pub fn vnc(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    if vmi.spec.domain.devices.autoattach_graphics_device == Some(false) {
        return Err(Refusal::bad_request("No graphics devices are present."));
    }
    running_or_bad_request(vmi)
}

/// Pause.
pub fn pause(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    running(vmi)?;
    if vmi.spec.liveness_probe.as_ref().is_some_and(|probe| probe.handler() != ProbeHandler::GuestAgentPing) {
        let why = "Pausing VMIs with LivenessProbe is currently not supported";
        return Err(Refusal::forbidden(VMI, name(vmi), why));
    }
    match condition(vmi, conditions::PAUSED) {
        Some(_) => Err(Refusal::conflict(VMI, name(vmi), "VMI is already paused")),
        None => Ok(()),
    }
}

/// Unpause. The VM may be missing: a VMI can exist without one.
pub fn unpause(vmi: &VirtualMachineInstance, vm: Option<&VirtualMachine>) -> Result<(), Refusal> {
    if vm.and_then(|vm| vm.status.as_ref()).is_some_and(|status| status.snapshot_in_progress.is_some()) {
        return Err(Refusal::conflict(VMI, name(vmi), "VMI snapshot in progress"));
    }
    running(vmi)?;
    match condition(vmi, conditions::PAUSED) {
        Some(_) => Ok(()),
        None => Err(Refusal::conflict(VMI, name(vmi), "VMI is not paused")),
    }
}

/// Soft reboot: the guest must respond to it, through the guest agent or the ACPI button.
pub fn soft_reboot(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    running(vmi)?;
    if condition(vmi, conditions::PAUSED).is_some_and(Condition::is_true) {
        return Err(Refusal::conflict(VMI, name(vmi), "VMI is paused"));
    }
    let acpi = vmi.spec.domain.features.as_ref().and_then(|f| f.acpi.as_ref()?.enabled).unwrap_or(true);
    if !acpi && condition(vmi, conditions::AGENT_CONNECTED).is_none() {
        let why = "VMI neither have the agent connected nor the ACPI feature enabled";
        return Err(Refusal::conflict(VMI, name(vmi), why));
    }
    Ok(())
}

/// The message for a failed reset: the phase explains most of them.
pub fn reset_failure(vmi: &VirtualMachineInstance, error: Refusal) -> Refusal {
    match phase(vmi) {
        Some(VirtualMachineInstancePhase::Running) => error,
        other => {
            let phase = other.map(|phase| phase.as_str()).unwrap_or_default();
            error.because(format_args!("unable to reset VMI in phase {phase:?}"))
        }
    }
}

/// Queries to the guest agent. These endpoints answer every refusal with plain text and code 500.
pub fn guest_agent(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    running(vmi)?;
    match condition(vmi, conditions::AGENT_CONNECTED) {
        Some(_) => Ok(()),
        None => Err(Refusal::conflict(VMI, name(vmi), "VMI does not have guest agent connected")),
    }
}

/// The address that a forwarded port connects to.
pub fn port_forward(vmi: &VirtualMachineInstance, port: &str) -> Result<SocketAddr, Refusal> {
    let port: u16 = match port.parse() {
        Ok(port) if port > 0 => port,
        _ => return Err(Refusal::bad_request(format!("{port:?} is not a port between 1 and 65535"))),
    };
    if condition(vmi, conditions::PAUSED).is_some() {
        return Err(Refusal::conflict(VMI, name(vmi), "VMI is paused"));
    }
    let interfaces = status(vmi).map(|status| status.interfaces.as_slice()).unwrap_or_default();
    let address = interfaces.first().and_then(|interface| interface.ip_address.as_deref()).unwrap_or_default();
    match address.parse::<IpAddr>() {
        Ok(ip) => Ok(SocketAddr::new(ip, port)),
        Err(_) => Err(Refusal::bad_request("no network interfaces are present")),
    }
}

/// Whether `vmi` belongs to `vm`, for requests to a VM that are forwarded to its VMI.
pub fn instance_of(vm: &VirtualMachine, vmi: Option<&VirtualMachineInstance>) -> Result<(), Refusal> {
    let vm_name = vm.metadata.name.as_deref().unwrap_or_default();
    if vm.status.as_ref().and_then(|status| status.created) != Some(true) {
        return Err(Refusal::conflict(Kind::VirtualMachine, vm_name, "VMI is not started"));
    }
    let Some(vmi) = vmi else { return Err(Refusal::not_found(VMI, vm_name)) };
    let owners = vmi.metadata.owner_references.as_deref().unwrap_or_default();
    let owned = vm.metadata.uid.as_deref().is_some_and(|uid| owners.iter().any(|owner| owner.uid == uid));
    match owned {
        true => Ok(()),
        false => Err(Refusal::internal(format!("VMI {vm_name:?} does not belong to the VM of that name"))),
    }
}

fn name(vmi: &VirtualMachineInstance) -> &str {
    vmi.metadata.name.as_deref().unwrap_or_default()
}

fn status(vmi: &VirtualMachineInstance) -> Option<&VirtualMachineInstanceStatus> {
    vmi.status.as_ref()
}

fn phase(vmi: &VirtualMachineInstance) -> Option<&VirtualMachineInstancePhase> {
    status(vmi)?.phase.as_ref()
}

/// Only the presence of a condition counts here: virt-handler removes conditions that no longer hold.
fn condition<'a>(vmi: &'a VirtualMachineInstance, type_: &str) -> Option<&'a Condition> {
    conditions::find(&status(vmi)?.conditions, type_)
}

fn running(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match phase(vmi) {
        Some(VirtualMachineInstancePhase::Running) => Ok(()),
        _ => Err(Refusal::conflict(VMI, name(vmi), "VMI is not running")),
    }
}

fn running_or_bad_request(vmi: &VirtualMachineInstance) -> Result<(), Refusal> {
    match phase(vmi) {
        Some(VirtualMachineInstancePhase::Running) => Ok(()),
        _ => Err(Refusal::bad_request("VMI is not running")),
    }
}
