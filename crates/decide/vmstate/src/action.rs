use std::collections::BTreeSet;
use std::time::Duration;

use api::v1::{VirtualMachineInstance, VirtualMachineInstanceStatus};

use crate::{Endpoint, IoRetry, Mount};

/// Every effect of the state machine. Executed in order; the first failure ends the pass.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Prepare the Pod's network namespace, once.
    ConfigureNetwork,
    /// Have the launcher define and start the domain, or resume it.
    SyncDomain {
        because: &'static str,
    },
    /// Have the launcher grow disks that are smaller than their claims, to this size together.
    GrowDisks {
        bytes: u64,
    },
    /// Mount volumes in the launcher's Pod: each by itself, so this does not fail as a whole.
    MountVolumes(Vec<Mount>),
    /// The opposite, by the volumes' names.
    UnmountVolumes(Vec<String>),
    /// Have the launcher plug and unplug disks, until the guest has those of these volumes. What it answers is noted.
    SyncVolumes {
        volumes: BTreeSet<String>,
    },
    /// Have the launcher write the guest's memory to a file on a mounted volume.
    DumpMemory {
        volume: String,
        file: String,
    },
    /// Ask the guest to power off.
    Shutdown,
    /// Kill QEMU.
    Kill {
        because: &'static str,
    },
    /// Have the launcher undefine the domain and exit.
    Delete {
        because: &'static str,
    },
    /// Remove this launcher's state on the node, the ghost record last.
    CleanUp,
    /// Write the whole status, guarded by the version that was read.
    UpdateStatus(Box<VirtualMachineInstanceStatus>),
    /// Write labels, annotations and status, guarded by the version that was read.
    UpdateVmi(Box<VirtualMachineInstance>),
    /// Have the launcher prepare to receive the guest.
    PrepareTarget {
        uid: String,
    },
    /// Listen for connections from the source node.
    OpenTargetProxy,
    /// Connect the launcher's sockets to the target.
    OpenSourceProxy(Endpoint),
    /// Close the migration proxies.
    CloseProxies,
    /// Have the launcher start the live migration.
    Migrate {
        uid: String,
    },
    /// Have the launcher abort the migration.
    AbortMigration {
        uid: String,
        because: &'static str,
    },
    /// Tell a launcher that could not find out whether the guest runs on the target.
    SettleMigration {
        uid: String,
        target_runs: bool,
        because: &'static str,
    },
    /// Have the launcher do the remaining work for a guest that has arrived.
    FinalizeTarget {
        uid: String,
    },
    EmitEvent {
        type_: EventType,
        reason: &'static str,
        message: String,
    },
    /// Keep this for the next pass.
    RememberIoRetry(IoRetry),
    /// Requeue after this time even if nothing changes.
    RequeueAfter {
        delay: Duration,
        because: &'static str,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

/// The kind of an action, to record which one failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionKind {
    ConfigureNetwork,
    SyncDomain,
    MountVolumes,
    UnmountVolumes,
    SyncVolumes,
    DumpMemory,
    Shutdown,
    Kill,
    Delete,
    CleanUp,
    UpdateStatus,
    UpdateVmi,
    PrepareTarget,
    OpenTargetProxy,
    OpenSourceProxy,
    CloseProxies,
    Migrate,
    AbortMigration,
    SettleMigration,
    FinalizeTarget,
}

impl Action {
    /// None for actions that cannot fail.
    pub fn kind(&self) -> Option<ActionKind> {
        match self {
            Action::ConfigureNetwork => Some(ActionKind::ConfigureNetwork),
            Action::SyncDomain { .. } | Action::GrowDisks { .. } => Some(ActionKind::SyncDomain),
            Action::MountVolumes(_) => Some(ActionKind::MountVolumes),
            Action::UnmountVolumes(_) => Some(ActionKind::UnmountVolumes),
            Action::SyncVolumes { .. } => Some(ActionKind::SyncVolumes),
            Action::DumpMemory { .. } => Some(ActionKind::DumpMemory),
            Action::Shutdown => Some(ActionKind::Shutdown),
            Action::Kill { .. } => Some(ActionKind::Kill),
            Action::Delete { .. } => Some(ActionKind::Delete),
            Action::CleanUp => Some(ActionKind::CleanUp),
            Action::UpdateStatus(_) => Some(ActionKind::UpdateStatus),
            Action::UpdateVmi(_) => Some(ActionKind::UpdateVmi),
            Action::PrepareTarget { .. } => Some(ActionKind::PrepareTarget),
            Action::OpenTargetProxy => Some(ActionKind::OpenTargetProxy),
            Action::OpenSourceProxy(_) => Some(ActionKind::OpenSourceProxy),
            Action::CloseProxies => Some(ActionKind::CloseProxies),
            Action::Migrate { .. } => Some(ActionKind::Migrate),
            Action::AbortMigration { .. } => Some(ActionKind::AbortMigration),
            Action::SettleMigration { .. } => Some(ActionKind::SettleMigration),
            Action::FinalizeTarget { .. } => Some(ActionKind::FinalizeTarget),
            Action::EmitEvent { .. } | Action::RememberIoRetry(_) | Action::RequeueAfter { .. } => None,
        }
    }
}

pub(crate) fn normal(reason: &'static str, message: impl Into<String>) -> Action {
    Action::EmitEvent { type_: EventType::Normal, reason, message: message.into() }
}

pub(crate) fn warning(reason: &'static str, message: impl Into<String>) -> Action {
    Action::EmitEvent { type_: EventType::Warning, reason, message: message.into() }
}

pub(crate) fn requeue(seconds: u64, because: &'static str) -> Action {
    Action::RequeueAfter { delay: Duration::from_secs(seconds), because }
}
