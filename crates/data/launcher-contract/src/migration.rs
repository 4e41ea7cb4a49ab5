//! Messages between virt-handler and launcher about a live migration.
//!
//! A migration has a UID of its own, and every request names it: a launcher rejects requests for another one, and never
//! resumes a finished one.

use api::v1::VirtualMachineInstance;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::types::SyncOptions;
use crate::{MigrationUid, VmiUid};

/// `PUT /v1/prepare-target`: prepare to receive the guest.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PrepareTargetRequest {
    pub vmi: VirtualMachineInstance,
    pub migration_uid: MigrationUid,
    pub options: SyncOptions,
}

/// `PUT /v1/migrate`: start sending the guest. Answered when the transfer has started; the state reports progress.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MigrateRequest {
    pub vmi_uid: VmiUid,
    pub migration_uid: MigrationUid,
    pub options: MigrationOptions,
    /// The VMI that receives the guest, if it is not this one.
    #[serde(default)]
    pub destination: Option<Destination>,
}

/// A VMI that a guest is sent to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Destination {
    pub namespace: String,
    pub name: String,
    pub uid: String,
}

/// `PUT /v1/abort-migration` and `PUT /v1/finalize-target`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MigrationRequest {
    pub vmi_uid: VmiUid,
    pub migration_uid: MigrationUid,
}

/// `PUT /v1/settle-migration`: the outcome of a switch-over, reported by the target node, if the source could not learn
/// it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SettleRequest {
    pub vmi_uid: VmiUid,
    pub migration_uid: MigrationUid,
    /// The guest runs on the target: it must not run on the source. Otherwise the target has ended it for good.
    pub target_runs: bool,
}

/// The fully resolved options of a migration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigrationOptions {
    /// Bandwidth limit of the transfer; 0 for none.
    pub bandwidth_mib: u64,
    /// Abort after this long without progress; 0 for never.
    pub progress_timeout_seconds: u64,
    /// Abort, or switch over, after this long per gigabyte of data; 0 for never.
    pub completion_timeout_per_gib_seconds: u64,
    pub allow_auto_converge: bool,
    pub allow_post_copy: bool,
    /// The guest may be paused or switched to post-copy if the transfer does not converge.
    pub allow_workload_disruption: bool,
    /// Skip libvirt's check that disks are either copied or shared safely.
    pub allow_unsafe: bool,
    /// The maximum downtime for a switch-over; 0 for QEMU's default.
    pub max_downtime_ms: u64,
    /// The number of multifd connections; 0 disables multifd.
    pub parallel_connections: u32,
    /// Detect stalls by QEMU's iterations instead of by timeouts alone.
    pub stall_detector: Option<StallOptions>,
    /// Increase the maximum downtime step by step.
    pub downtime_tuning: Option<DowntimeTuning>,
    /// Compression of memory; needs several connections.
    pub compression: Option<String>,
    /// Volumes that both Pods see: their disks are not copied.
    pub shared_volumes: Vec<String>,
    /// Volumes that are on other claims at the target.
    pub moved_volumes: Vec<MovedVolume>,
}

/// A volume that has another claim at the target of a migration.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct MovedVolume {
    pub volume: String,
    /// The claim is a block device.
    pub block: bool,
    /// The volume comes through an attachment Pod.
    pub plugged: bool,
}

impl Default for MigrationOptions {
    fn default() -> Self {
        MigrationOptions {
            bandwidth_mib: 0,
            progress_timeout_seconds: 150,
            completion_timeout_per_gib_seconds: 150,
            allow_auto_converge: false,
            allow_post_copy: false,
            allow_workload_disruption: false,
            allow_unsafe: false,
            max_downtime_ms: 0,
            parallel_connections: 0,
            stall_detector: None,
            downtime_tuning: None,
            compression: None,
            shared_volumes: Vec::new(),
            moved_volumes: Vec::new(),
        }
    }
}

/// When iterations without progress count as a stall.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StallOptions {
    /// The percentage by which an iteration must improve on those before it.
    pub margin_percent: u64,
    pub window_seconds: u64,
    pub switchover_seconds: u64,
    /// Weight of a new sample in the moving average of the bandwidth.
    pub ewma_alpha: f64,
    pub precopy_factor: f64,
    pub patience_decay: f64,
    pub completion_factor: f64,
    pub search_minima: bool,
}

impl Default for StallOptions {
    fn default() -> Self {
        StallOptions {
            margin_percent: 4,
            window_seconds: 40,
            switchover_seconds: 60,
            ewma_alpha: 0.4,
            precopy_factor: 1.5,
            patience_decay: 0.5,
            completion_factor: 2.0,
            search_minima: true,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DowntimeTuning {
    pub initial_ms: u64,
    pub steps: u32,
    pub start_after_iteration: u64,
    pub cooldown_seconds: u64,
}

impl Default for DowntimeTuning {
    fn default() -> Self {
        DowntimeTuning { initial_ms: 150, steps: 7, start_after_iteration: 3, cooldown_seconds: 10 }
    }
}

/// A migration as seen by one of its two launchers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct MigrationState {
    pub uid: String,
    pub role: MigrationRole,
    pub phase: MigrationPhase,
    pub mode: MigrationMode,
    pub started_at: Option<Timestamp>,
    pub ended_at: Option<Timestamp>,
    pub progress: Progress,
    /// Why it failed.
    pub failure: Option<String>,
    pub abort: AbortState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationRole {
    Source,
    Target,
    /// An unknown value from a newer launcher.
    #[default]
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationPhase {
    /// Target: disks, network and sockets are ready to receive the guest.
    Ready,
    /// Source: memory and disks are being transferred; the guest runs here.
    Transferring,
    /// Source: everything is sent; the guest is paused here and is being started on the target.
    SwitchingOver,
    /// Source: it is unknown whether the target has started the guest, which stays paused here until that is resolved.
    Undecided,
    /// Source: the guest is on the target, and QEMU here has ended. Target: the guest is here.
    Completed,
    /// Source: the guest resumes here. Target: it does not run here.
    Failed,
    #[default]
    #[serde(other)]
    Unknown,
}

impl MigrationPhase {
    pub fn is_final(self) -> bool {
        matches!(self, MigrationPhase::Completed | MigrationPhase::Failed)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum MigrationMode {
    #[default]
    PreCopy,
    /// The guest runs on the target and fetches missing memory on demand.
    PostCopy,
    /// The guest is paused so that the rest can be sent.
    Paused,
    #[serde(other)]
    Unknown,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AbortState {
    #[default]
    None,
    Aborting,
    Succeeded,
    Failed,
    #[serde(other)]
    Unknown,
}

/// Progress of the transfer, memory and disks together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Progress {
    pub data_total: u64,
    pub data_processed: u64,
    pub data_remaining: u64,
    /// Bytes of memory that the guest dirties per second.
    pub dirty_rate: u64,
    /// Bytes of memory sent per second.
    pub bandwidth: u64,
    /// QEMU's iterations over the guest's memory.
    pub iterations: u64,
    /// Expected while it runs, measured when it is over.
    pub downtime_ms: u64,
    /// The percentage by which the guest is throttled (auto-converge).
    pub throttle_percent: u64,
    pub elapsed_ms: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_from_a_newer_launcher_are_unknown_and_end_nothing() {
        let text =
            r#"{"uid":"m","role":"Relay","phase":"Teleporting","mode":"Warp","abort":"Maybe","progress":{"x":1}}"#;
        let state: MigrationState = serde_json::from_str(text).unwrap();
        assert_eq!((state.role, state.phase), (MigrationRole::Unknown, MigrationPhase::Unknown));
        assert_eq!((state.mode, state.abort), (MigrationMode::Unknown, AbortState::Unknown));
        assert!(!state.phase.is_final());
    }

    #[test]
    fn uids_are_plain_texts_on_the_wire_and_anything_else_is_refused() {
        let request = MigrationRequest {
            vmi_uid: VmiUid::new("vmi-1").unwrap(),
            migration_uid: MigrationUid::new("migration-1").unwrap(),
        };
        let text = r#"{"vmi_uid":"vmi-1","migration_uid":"migration-1"}"#;
        assert_eq!(serde_json::to_string(&request).unwrap(), text);
        assert!(serde_json::from_str::<MigrationRequest>(text).is_ok());
        assert!(serde_json::from_str::<MigrationRequest>(r#"{"vmi_uid":"../vmi","migration_uid":"m"}"#).is_err());
    }

    #[test]
    fn options_that_an_older_handler_does_not_send_have_the_clusters_defaults() {
        let options: MigrationOptions = serde_json::from_str(r#"{"allow_post_copy":true}"#).unwrap();
        assert_eq!(options, MigrationOptions { allow_post_copy: true, ..Default::default() });
        assert_eq!((options.progress_timeout_seconds, options.completion_timeout_per_gib_seconds), (150, 150));
    }
}
