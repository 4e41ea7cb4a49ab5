//! Restores of snapshots.

use api::snapshot::{
    self, VirtualMachineRestore, VirtualMachineRestoreSpec, VirtualMachineSnapshot, VirtualMachineSnapshotContent,
    VolumeOwnershipPolicy, VolumeRestorePolicy,
};
use api::v1::{self, VirtualMachine, VirtualMachineSpec};
use k8s_openapi::Resource;
use machinery::field::{Cause, FieldError, FieldPath};
use serde_json::Value;

use super::snapshot::is_machine;
use super::{Case, Found, immutable, namespace, text};
use crate::{Refusal, Wanted, World};

/// The paths of the restored VM that a patch may change.
const PATCHABLE: [&str; 3] = ["\"/spec/", "\"/metadata/labels/", "\"/metadata/annotations/"];

/// The other restores, the snapshot and the target; and once the snapshot is known, its content.
pub(super) fn wanted(object: &Value, world: &World) -> Vec<Wanted> {
    let namespace = text(object, "/metadata/namespace");
    let (source, target) = (text(object, "/spec/virtualMachineSnapshotName"), text(object, "/spec/target/name"));
    let mut wanted = vec![
        Wanted::all(snapshot::GROUP, VirtualMachineRestore::KIND, namespace),
        wanted_snapshot(namespace, source),
        Wanted::one(v1::GROUP, VirtualMachine::KIND, namespace, target),
    ];
    let snapshot = world.get::<VirtualMachineSnapshot>(VirtualMachineSnapshot::KIND, namespace, source);
    let content = snapshot.and_then(|snapshot| snapshot.status?.virtual_machine_snapshot_content_name);
    wanted.extend(content.map(|content| wanted_content(namespace, &content)));
    wanted
}

fn wanted_snapshot(namespace: &str, name: &str) -> Wanted {
    Wanted::one(snapshot::GROUP, VirtualMachineSnapshot::KIND, namespace, name)
}

fn wanted_content(namespace: &str, name: &str) -> Wanted {
    Wanted::one(snapshot::GROUP, VirtualMachineSnapshotContent::KIND, namespace, name)
}

pub(super) fn rules(
    case: &Case<'_>,
    restore: &mut VirtualMachineRestore,
    old: Option<&VirtualMachineRestore>,
) -> Result<Found, Refusal> {
    case.gate("Snapshot")?;
    if let Some(old) = old {
        return Ok(immutable(&restore.spec, &old.spec).into());
    }
    let spec = FieldPath::new("spec");
    let target = spec.child("target");
    let mut errors = match is_machine(&target, &restore.spec.target) {
        Some(error) => vec![error],
        None => into_machine(case, &spec, restore)?,
    };
    errors.extend(under_way(case, &target, restore));
    Ok(errors.into())
}

fn into_machine(
    case: &Case<'_>,
    field: &FieldPath,
    restore: &VirtualMachineRestore,
) -> Result<Vec<FieldError>, Refusal> {
    let mut errors = patches(&field.child("patches"), &restore.spec.patches);
    errors.extend(backend_storage(case, field, restore)?);
    errors.extend(overrides(&field.child("volumeRestoreOverrides"), &restore.spec));
    errors.extend(policies(field, &restore.spec));
    Ok(errors)
}

/// Patches may change the restored VM's spec, labels and annotations.
///
/// They are checked as text, like in KubeVirt: split at commas, each piece must have exactly one colon, so a value that
/// contains either is rejected. A laxer rule would accept what other clusters reject.
fn patches(field: &FieldPath, patches: &[String]) -> Vec<FieldError> {
    let pieces = patches.iter().flat_map(|patch| patch.trim_matches(['{', '}']).split(','));
    let refused = pieces.filter_map(|piece| match piece.split(':').collect::<Vec<_>>()[..] {
        [key, path] if key.trim() == "\"path\"" => {
            let allowed = PATCHABLE.iter().any(|prefix| path.trim().starts_with(prefix));
            (!allowed).then_some((piece, "only /spec/, /metadata/labels/ and /metadata/annotations/ can be patched"))
        }
        [_, _] => None,
        _ => Some((piece, "one \":\" is expected between a key and a value of a patch")),
    });
    refused.map(|(piece, problem)| FieldError::invalid(field.clone(), piece, problem)).collect()
}

/// The state of a persistent TPM or EFI is in a volume that belongs to one VM and cannot be transferred to another.
fn backend_storage(
    case: &Case<'_>,
    field: &FieldPath,
    restore: &VirtualMachineRestore,
) -> Result<Option<FieldError>, Refusal> {
    let namespace = namespace(&restore.metadata);
    let name = &restore.spec.virtual_machine_snapshot_name;
    // A missing snapshot may be about to be created; the restore waits for it.
    let Some(snapshot) = case.world.get::<VirtualMachineSnapshot>(VirtualMachineSnapshot::KIND, namespace, name) else {
        return Ok(None);
    };
    let status = snapshot.status.unwrap_or_default();
    let target = &restore.spec.target.name;
    let target = case.world.get::<VirtualMachine>(VirtualMachine::KIND, namespace, target);
    let same = target.is_some_and(|target| status.source_uid.is_none() || status.source_uid == target.metadata.uid);
    if same {
        return Ok(None);
    }
    let Some(content) = status.virtual_machine_snapshot_content_name else {
        return Err(Refusal::BadRequest(format!("the snapshot {name} has no content yet: wait until it is ready")));
    };
    if !case.world.knows(&wanted_content(namespace, &content)) {
        return Ok(None);
    }
    let kept =
        case.world.get::<VirtualMachineSnapshotContent>(VirtualMachineSnapshotContent::KIND, namespace, &content);
    let Some(machine) = kept.and_then(|content| content.spec.source.virtual_machine) else {
        return Err(Refusal::BadRequest(format!("the content {content} of the snapshot {name} has no machine")));
    };
    let message = "Restore to a different VM is not supported when snapshotted VM has backend storage \
                   (persistent TPM or EFI)";
    let refused = machine.spec.as_ref().is_some_and(keeps_state);
    Ok(refused.then(|| FieldError::new(Cause::Invalid, field.clone(), message)))
}

/// Whether a VM has persistent state besides its disks.
fn keeps_state(machine: &VirtualMachineSpec) -> bool {
    let domain = &machine.template.spec.domain;
    let tpm = domain.devices.tpm.as_ref().filter(|tpm| tpm.enabled != Some(false)).and_then(|tpm| tpm.persistent);
    let firmware = domain.firmware.as_ref();
    let efi = firmware.and_then(|firmware| firmware.bootloader.as_ref()?.efi.as_ref()?.persistent);
    tpm == Some(true) || efi == Some(true)
}

fn overrides(field: &FieldPath, spec: &VirtualMachineRestoreSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    for (index, one) in spec.volume_restore_overrides.iter().enumerate() {
        let field = field.index(index);
        let named = |name: &Option<String>| name.as_deref().is_some_and(|name| !name.is_empty());
        if !named(&one.volume_name) {
            errors.push(FieldError::required(field.child("volumeName"), "the volume has to be named"));
        }
        if !named(&one.restore_name) && one.labels.is_empty() && one.annotations.is_empty() {
            let detail = "at least one of restoreName, labels and annotations has to be set";
            errors.push(FieldError::required(field, detail));
        }
    }
    errors
}

fn policies(field: &FieldPath, spec: &VirtualMachineRestoreSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if let Some(VolumeRestorePolicy::Other(unknown)) = &spec.volume_restore_policy {
        let detail = "must be RandomizeNames, InPlace or PrefixTargetName";
        errors.push(FieldError::invalid(field.child("volumeRestorePolicy"), unknown.as_str(), detail));
    }
    if let Some(VolumeOwnershipPolicy::Other(unknown)) = &spec.volume_ownership_policy {
        let detail = "must be Vm or None";
        errors.push(FieldError::invalid(field.child("volumeOwnershipPolicy"), unknown.as_str(), detail));
    }
    errors
}

/// Two restores of one VM would undo each other.
fn under_way(case: &Case<'_>, field: &FieldPath, restore: &VirtualMachineRestore) -> Vec<FieldError> {
    let others =
        case.world.all::<VirtualMachineRestore>(VirtualMachineRestore::KIND, namespace(&restore.metadata)).into_iter();
    let complete =
        |other: &VirtualMachineRestore| other.status.as_ref().is_some_and(|status| status.complete == Some(true));
    let unfinished = others.filter(|other| other.spec.target == restore.spec.target && !complete(other));
    let errors = unfinished.map(|other| {
        let name = other.metadata.name.unwrap_or_default();
        FieldError::new(Cause::Invalid, field.clone(), format!("VirtualMachineRestore {name:?} in progress"))
    });
    errors.collect()
}
