use api::v1::{VirtualMachineInstance, VirtualMachineInstanceGuestOSInfo};
use jiff::Timestamp;
use launcher_contract::types::{DomainReason, DomainStatus};

use crate::launcher::LauncherView;
use crate::{ActionKind, IoRetry, Migration, Proxy};

/// Everything the decision may see.
#[derive(Debug, Clone)]
pub struct World<'a> {
    pub now: Timestamp,
    pub node_name: &'a str,
    pub vmi: Vmi<'a>,
    pub launcher: LauncherView<'a>,
    /// The name of the launcher's Pod, once the launcher has told it.
    pub pod_name: Option<&'a str>,
    pub proxy: Proxy<'a>,
    pub network: Network<'a>,
    /// Why KVM cannot run a guest here; `Ok` if it can.
    pub kvm: Result<(), &'a str>,
    /// Something on this node belongs to this launcher: a ghost record, network state.
    pub has_record: bool,
    /// Another launcher of the same VMI is on this node. Two must never hold a domain.
    pub rival: bool,
    /// The grace period noted when the VMI was still there.
    pub recorded_grace_seconds: Option<i64>,
    pub sent: Sent,
    /// The action that failed last, unless it has succeeded since.
    pub failure: Option<&'a Failure>,
    pub io_retry: Option<IoRetry>,
}

/// When this agent last sent a command that the launcher took; forgotten when the agent restarts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    pub sync: Option<Timestamp>,
    pub shutdown: Option<Timestamp>,
    pub kill: Option<Timestamp>,
    pub delete: Option<Timestamp>,
    pub settle: Option<Timestamp>,
}

/// The object this launcher was started for, by its UID.
#[derive(Debug, Clone, Copy)]
pub enum Vmi<'a> {
    Present(&'a VirtualMachineInstance),
    /// The API server itself said so; a cache's silence is not enough to end a guest.
    Absent,
    /// The cache lacks it and the API server could not be asked.
    Unconfirmed,
}

/// Phase 1 of the network, as recorded on disk.
#[derive(Debug, Clone, Copy)]
pub enum Network<'a> {
    Pending,
    /// Begun and not finished: by an agent that died, or one that met an error. Never repaired.
    Interrupted,
    /// Done; the Pod's addresses per network.
    Finished(&'a [PodAddresses]),
}

/// Addresses by which the cluster reaches a network of the VMI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodAddresses {
    pub network: String,
    pub addresses: Vec<std::net::IpAddr>,
}

/// An action that failed, and how often in a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub action: ActionKind,
    /// For users, with all causes.
    pub message: String,
    /// Trying again cannot help: the VMI fails.
    pub critical: bool,
    pub count: u32,
    pub at: Timestamp,
}

/// What the launcher said last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LauncherState {
    pub domain: Option<Domain>,
    pub guest_agent: Option<GuestAgent>,
    /// The Pod is being stopped.
    pub marked_for_graceful_shutdown: bool,
    /// When the guest was first asked to power off.
    pub shutdown_requested_at: Option<Timestamp>,
    /// The migration it takes or last took part in.
    pub migration: Option<Migration>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Domain {
    pub status: DomainStatus,
    pub reason: DomainReason,
    pub machine: String,
    /// Runs on QEMU's translator instead of KVM.
    pub emulated: bool,
    /// The guest can be asked to power off.
    pub acpi: bool,
    pub interfaces: Vec<Interface>,
    pub disks: Vec<Disk>,
    pub memory_bytes: u64,
    pub agent_connected: bool,
}

impl Domain {
    /// QEMU still runs, as far as anybody knows.
    pub fn is_alive(&self) -> bool {
        !matches!(self.status, DomainStatus::Shutoff | DomainStatus::Crashed)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interface {
    /// The interface's name in the VMI.
    pub name: String,
    pub mac: String,
    pub queues: u32,
    pub link_state: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Disk {
    /// The disk's name in the VMI.
    pub name: String,
    pub target: String,
    pub source: String,
}

/// What the guest says about itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct GuestAgent {
    pub os: Option<VirtualMachineInstanceGuestOSInfo>,
    pub interfaces: Vec<GuestInterface>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GuestInterface {
    pub name: String,
    pub mac: String,
    pub ips: Vec<String>,
}
