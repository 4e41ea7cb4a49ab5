use api::v1::VirtualMachineInstance;
use jiff::Timestamp;
use launcher_contract::types::{DomainState, GuestAgent, MemoryDump};

use crate::launcher::LauncherView;
use crate::{ActionKind, IoRetry, Migration, Proxy, Volumes};

/// The input of the decision.
#[derive(Debug, Clone)]
pub struct World<'a> {
    pub now: Timestamp,
    pub node_name: &'a str,
    pub vmi: Vmi<'a>,
    pub launcher: LauncherView<'a>,
    /// The name of the launcher's Pod, once the launcher has reported it.
    pub pod_name: Option<&'a str>,
    pub proxy: Proxy<'a>,
    pub network: Network<'a>,
    /// Why KVM cannot run a guest here; `Ok` if it can.
    pub kvm: Result<(), &'a str>,
    /// The launcher's SELinux label, or [`selinux::OFF`](crate::selinux::OFF); `None` if it is not known yet.
    pub selinux: Option<&'a str>,
    /// The node holds state of this launcher: a ghost record, network state.
    pub has_record: bool,
    /// Another launcher of the same VMI is on this node. Only one may have a domain.
    pub rival: bool,
    /// The grace period recorded while the VMI still existed.
    pub recorded_grace_seconds: Option<i64>,
    pub sent: Sent,
    /// The action that failed last, unless it has succeeded since.
    pub failure: Option<&'a Failure>,
    pub io_retry: Option<IoRetry>,
    /// Disks grow with their claims.
    pub expand_disks: bool,
    pub volumes: Volumes<'a>,
}

/// When this virt-handler last sent a command that the launcher accepted; lost when virt-handler restarts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sent {
    pub sync: Option<Timestamp>,
    /// When disks were to grow, and to which size together.
    pub growth: Option<(Timestamp, u64)>,
    pub shutdown: Option<Timestamp>,
    pub kill: Option<Timestamp>,
    pub delete: Option<Timestamp>,
    pub settle: Option<Timestamp>,
}

/// The VMI this launcher was started for, matched by UID.
#[derive(Debug, Clone, Copy)]
pub enum Vmi<'a> {
    Present(&'a VirtualMachineInstance),
    /// Confirmed by a live read; absence from the cache is not enough to stop a guest.
    Absent,
    /// Not in the cache, and a live read was not possible.
    Unconfirmed,
}

/// Phase 1 of the network, as recorded on disk.
#[derive(Debug, Clone, Copy)]
pub enum Network<'a> {
    Pending,
    /// Started and not finished: virt-handler died or failed. Never repaired.
    Interrupted,
    /// Done; the Pod's addresses per network.
    Finished(&'a [PodAddresses]),
}

/// Addresses under which a network of the VMI is reachable in the cluster.
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
    /// Retries cannot help: the VMI fails.
    pub critical: bool,
    pub count: u32,
    pub at: Timestamp,
}

/// The last report of the launcher, as far as it decides: without its number and its last error, which the failed command
/// has already reported, and with the migration in the API's terms.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LauncherState {
    pub domain: Option<DomainState>,
    pub guest_agent: Option<GuestAgent>,
    /// The Pod is being stopped.
    pub marked_for_graceful_shutdown: bool,
    /// When the guest was first asked to power off.
    pub shutdown_requested_at: Option<Timestamp>,
    /// The current or last migration it takes part in.
    pub migration: Option<Migration>,
    /// Sentences about disk images that are smaller than their claims.
    pub small_volumes: Vec<String>,
    /// The current or last dump of the guest's memory.
    pub memory_dump: Option<MemoryDump>,
}
