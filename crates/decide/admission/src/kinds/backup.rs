//! Backups and their trackers. Their schemas make their specs immutable.

use api::backup::{self, VirtualMachineBackup, VirtualMachineBackupTracker};
use k8s_openapi::Resource;
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

use super::{Case, Found, namespace, text};
use crate::{Refusal, Wanted};

const GATE: &str = "IncrementalBackup";
/// The conditions of a finished backup.
const ENDED: [&str; 2] = ["Complete", "Failed"];

/// The other backups.
pub(super) fn wanted(object: &Value) -> Vec<Wanted> {
    vec![Wanted::all(backup::GROUP, VirtualMachineBackup::KIND, text(object, "/metadata/namespace"))]
}

pub(super) fn rules(
    case: &Case<'_>,
    backup: &mut VirtualMachineBackup,
    old: Option<&VirtualMachineBackup>,
) -> Result<Found, Refusal> {
    case.gate(GATE)?;
    if old.is_some() {
        return Ok(Found::default());
    }
    let others = case.world.all::<VirtualMachineBackup>(VirtualMachineBackup::KIND, namespace(&backup.metadata));
    let conflict = others.iter().find_map(|other| conflict(backup, other));
    Ok(conflict.into_iter().collect::<Vec<_>>().into())
}

pub(super) fn tracker_rules(
    case: &Case<'_>,
    _tracker: &mut VirtualMachineBackupTracker,
    _old: Option<&VirtualMachineBackupTracker>,
) -> Result<Found, Refusal> {
    case.gate(GATE)?;
    Ok(Found::default())
}

fn conflict(backup: &VirtualMachineBackup, other: &VirtualMachineBackup) -> Option<FieldError> {
    let name = other.metadata.name.as_deref().unwrap_or_default();
    if backup.metadata.name == other.metadata.name {
        let message = format!("VirtualMachineBackup {name:?} already exists");
        return Some(FieldError::new(Cause::Invalid, FieldPath::new("metadata.name"), message));
    }
    let message = format!("VirtualMachineBackup {name:?} in progress for source");
    let both = backup.spec.source == other.spec.source && !has_ended(other);
    both.then(|| FieldError::new(Cause::Invalid, FieldPath::new("spec.source"), message))
}

fn has_ended(backup: &VirtualMachineBackup) -> bool {
    let conditions = backup.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.status == "True" && ENDED.contains(&condition.type_.as_str()))
}
