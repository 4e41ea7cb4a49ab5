//! The documents of the protocol. Fields are only ever added; unknown fields are ignored.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use api::v1::{SMBiosConfiguration, VirtualMachineInstance, VirtualMachineInstanceGuestOSInfo};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::VmiUid;
use crate::migration::MigrationState;

/// The version of this protocol.
pub const PROTOCOL: u32 = 1;

/// Identifies the launcher behind the socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Info {
    pub protocol: u32,
    /// The launcher's version.
    pub version: String,
    /// UID of the VMI this launcher was started for.
    pub launcher_uid: String,
    pub pod_name: String,
}

/// The complete state of a launcher at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LauncherState {
    /// Increases with every change. Restarts with a new launcher, so compare for equality, not for order.
    pub seq: u64,
    /// Absent until the domain is defined, and again after it was undefined.
    pub domain: Option<DomainState>,
    /// Absent until the guest agent has responded.
    pub guest_agent: Option<GuestAgent>,
    /// The Pod is being stopped; virt-handler should shut the guest down gracefully.
    pub marked_for_graceful_shutdown: bool,
    /// When the guest was first asked to power off.
    pub shutdown_requested_at: Option<Timestamp>,
    /// The last error, until it is resolved.
    pub last_error: Option<String>,
    /// The current or last migration of this launcher.
    pub migration: Option<MigrationState>,
    /// Sentences about disk images that are smaller than their claims, because the claims' file systems are.
    pub small_volumes: Vec<String>,
    /// The current or last dump of the guest's memory.
    pub memory_dump: Option<MemoryDump>,
}

/// A dump of the guest's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryDump {
    /// The plugged volume that it goes to.
    pub volume: String,
    /// The file on it.
    pub file: String,
    pub started_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Why there is none, for users.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainState {
    /// libvirt's name: namespace and name of the VMI, joined by `_`.
    pub name: String,
    /// UID of the VMI.
    pub uid: String,
    pub status: DomainStatus,
    pub reason: DomainReason,
    /// The machine type libvirt chose, for instance `pc-q35-7.2`.
    pub os_machine: String,
    pub domain_type: DomainType,
    /// Whether the guest can be asked to power off over ACPI.
    pub acpi: bool,
    pub interfaces: Vec<DomainInterface>,
    pub disks: Vec<DomainDisk>,
    pub memory_bytes: u64,
    pub agent_connected: bool,
    /// When the domain entered `Running` for the first time in this launcher.
    pub started_at: Option<Timestamp>,
}

impl DomainState {
    /// Whether QEMU is gone, or about to exit by itself.
    pub fn is_down(&self) -> bool {
        self.status.is_down()
    }
}

/// `virDomainState` in KubeVirt's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DomainStatus {
    #[default]
    NoState,
    Running,
    Blocked,
    Paused,
    Shutdown,
    Shutoff,
    Crashed,
    PMSuspended,
    #[serde(other)]
    Unknown,
}

impl DomainStatus {
    /// Whether QEMU is gone, or about to exit by itself.
    pub fn is_down(self) -> bool {
        matches!(self, DomainStatus::Shutoff | DomainStatus::Crashed)
    }
}

/// The reason of a domain's state, in KubeVirt's terms; those of the paused state carry its prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum DomainReason {
    Booted,
    Migrated,
    Restored,
    FromSnapshot,
    Unpaused,
    MigrationCanceled,
    SaveCanceled,
    Wakeup,
    Postcopy,
    PostcopyFailed,
    User,
    Shutdown,
    Destroyed,
    Crashed,
    Saved,
    Failed,
    Daemon,
    Panicked,
    PausedUser,
    PausedMigration,
    PausedSave,
    PausedDump,
    PausedIOError,
    PausedWatchdog,
    PausedFromSnapshot,
    PausedShuttingDown,
    PausedSnapshot,
    PausedCrashed,
    PausedStartingUp,
    PausedPostcopy,
    PausedPostcopyFailed,
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DomainType {
    #[default]
    Kvm,
    /// Software emulation.
    Qemu,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainInterface {
    /// The interface's name in the VMI.
    pub alias: String,
    pub mac: String,
    pub tap: String,
    pub queues: u32,
    /// `up` or `down`.
    pub link_state: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DomainDisk {
    /// The disk's name in the VMI.
    pub alias: String,
    /// The device name libvirt shows, for instance `vda`.
    pub target: String,
    /// The file or the device behind it; of an image with backing images, the one on top.
    pub source: String,
    /// Bytes that the guest sees; 0 if that is not known yet.
    pub capacity: u64,
    /// Why the guest's last request failed, if it stands still because of that.
    pub error: Option<DiskError>,
}

/// Why a request of the guest to a disk failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskError {
    /// The storage is full.
    NoSpace,
    #[default]
    #[serde(other)]
    Other,
}

/// The last data from the guest agent. All of it is controlled by the guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestAgent {
    pub version: Option<String>,
    pub hostname: Option<String>,
    pub os: Option<VirtualMachineInstanceGuestOSInfo>,
    pub interfaces: Vec<GuestInterface>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GuestInterface {
    pub name: String,
    pub mac: String,
    /// Without prefix lengths, in the guest's order.
    pub ips: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SyncRequest {
    pub vmi: VirtualMachineInstance,
    pub options: SyncOptions,
}

/// What the launcher cannot know by itself: cluster configuration and facts about the node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SyncOptions {
    pub smbios: SMBiosConfiguration,
    /// Seconds; 0 disables balloon statistics.
    pub mem_balloon_stats_period: u32,
    pub serial_console_log_disabled: bool,
    pub free_page_reporting_disabled: bool,
    pub allow_emulation: bool,
    /// KVM can actually run a vCPU on this node.
    pub kvm_usable: bool,
    /// Of the bridged networks on which the Pod has an IPv4 address.
    pub leases: Vec<Lease>,
    /// By how many percent a file system may be too small for the disk image that is to be made on it.
    pub tolerated_shortage_percent: u8,
    /// Bytes of a file system that stay free when a disk image is made on it.
    pub reserved_bytes: u64,
    /// Disks grow with their claims.
    pub expand_disks: bool,
    /// Volumes that are mounted for the guest beside those of the Pod: it is to have these plugged in, and no others.
    pub plugged_volumes: BTreeSet<String>,
}

/// What a network plugin has given the Pod on a bridged network, for the guest to have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Lease {
    /// The network's name in the VMI.
    pub network: String,
    pub address: Ipv4Addr,
    pub prefix_len: u8,
    /// Without the one to the network of the address.
    pub routes: Vec<LeaseRoute>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseRoute {
    pub destination: Ipv4Addr,
    pub prefix_len: u8,
    /// `None` for what is reached without a router.
    pub gateway: Option<Ipv4Addr>,
}

/// A command for the launcher of one VMI.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CommandRequest {
    pub vmi_uid: VmiUid,
}

/// A command to dump the guest's memory to a file on a plugged volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemoryDumpRequest {
    pub vmi_uid: VmiUid,
    pub volume: String,
    pub file: String,
}

/// Commands without arguments besides the VMI's UID.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Pause,
    Unpause,
    /// Hard-resets the guest.
    Reset,
    /// Asks the guest to reboot: through the guest agent if it is connected, through ACPI otherwise.
    SoftReboot,
    /// Asks the guest to power off. May be repeated: a booting guest misses the first request.
    Shutdown,
    /// Kills QEMU.
    Kill,
    /// Undefines the stopped domain; the launcher then exits.
    Delete,
}

impl Command {
    pub const ALL: [Command; 7] = [
        Command::Pause,
        Command::Unpause,
        Command::Reset,
        Command::SoftReboot,
        Command::Shutdown,
        Command::Kill,
        Command::Delete,
    ];

    pub fn path(self) -> &'static str {
        match self {
            Command::Pause => "/v1/pause",
            Command::Unpause => "/v1/unpause",
            Command::Reset => "/v1/reset",
            Command::SoftReboot => "/v1/softreboot",
            Command::Shutdown => "/v1/shutdown",
            Command::Kill => "/v1/kill",
            Command::Delete => "/v1/delete",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentRequest {
    pub vmi_uid: VmiUid,
    /// In the QEMU guest agent's format: `{"execute": …, "arguments": …}`.
    pub command: serde_json::Value,
    pub timeout_seconds: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AgentReply {
    /// The agent's result. Untrusted.
    #[serde(rename = "return")]
    pub result: serde_json::Value,
}

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    pub code: RefusalCode,
    /// A message for users, with its causes.
    pub message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RefusalCode {
    /// The request is invalid.
    BadRequest,
    /// It is for another VMI.
    WrongVmi,
    /// There is no domain to act on.
    NoDomain,
    /// The domain's state does not allow it.
    WrongState,
    /// The VMI requests something this node or build does not support; retries cannot help.
    Impossible,
    /// A prerequisite is missing, for instance the network; retry.
    NotReady,
    /// libvirt returned an error.
    Libvirt,
    /// The guest agent is not connected or returned an error.
    Agent,
    #[serde(other)]
    Internal,
}

impl RefusalCode {
    pub fn http_status(self) -> u16 {
        match self {
            RefusalCode::BadRequest => 400,
            RefusalCode::WrongVmi => 403,
            RefusalCode::NoDomain => 404,
            RefusalCode::WrongState => 409,
            RefusalCode::Impossible => 422,
            RefusalCode::NotReady => 503,
            RefusalCode::Agent => 502,
            RefusalCode::Libvirt | RefusalCode::Internal => 500,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_from_a_newer_launcher_are_unknown_and_not_an_error() {
        let state: LauncherState = serde_json::from_str(
            r#"{"seq":4,"domain":{"name":"a_b","status":"Levitating","reason":"Bored","new_field":1},"also_new":{}}"#,
        )
        .unwrap();
        let domain = state.domain.unwrap();
        assert_eq!((domain.status, domain.reason), (DomainStatus::Unknown, DomainReason::Unknown));
        let refusal: Refusal = serde_json::from_str(r#"{"code":"NeverHeard","message":"x"}"#).unwrap();
        assert_eq!(refusal.code, RefusalCode::Internal);
    }

    #[test]
    fn a_full_state_survives_the_round_trip() {
        let state = LauncherState {
            seq: 7,
            domain: Some(DomainState {
                name: "default_vm".into(),
                uid: "u".into(),
                status: DomainStatus::PMSuspended,
                reason: DomainReason::PausedIOError,
                domain_type: DomainType::Qemu,
                started_at: Some("2026-11-15T10:00:00.5Z".parse().unwrap()),
                interfaces: vec![DomainInterface { alias: "default".into(), ..Default::default() }],
                disks: vec![DomainDisk { alias: "root".into(), ..Default::default() }],
                ..Default::default()
            }),
            guest_agent: Some(GuestAgent { hostname: Some("guest".into()), ..Default::default() }),
            marked_for_graceful_shutdown: true,
            shutdown_requested_at: Some("2026-11-15T11:00:00Z".parse().unwrap()),
            last_error: Some("no".into()),
            migration: Some(MigrationState { uid: "m".into(), ..Default::default() }),
            memory_dump: Some(MemoryDump {
                volume: "dump".into(),
                file: "memory.dump".into(),
                started_at: Timestamp::UNIX_EPOCH,
                ended_at: None,
                failure: Some("full".into()),
            }),
            small_volumes: vec!["small".into()],
        };
        let text = serde_json::to_string(&state).unwrap();
        assert_eq!(serde_json::from_str::<LauncherState>(&text).unwrap(), state);
    }
}
