//! Snapshots of VMs.

use api::snapshot::VirtualMachineSnapshot;
use api::v1::{self, VirtualMachine};
use k8s_openapi::Resource;
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use machinery::field::{Cause, FieldError, FieldPath};

use super::{Case, Found, immutable};
use crate::Refusal;

pub(super) fn rules(
    case: &Case<'_>,
    snapshot: &mut VirtualMachineSnapshot,
    old: Option<&VirtualMachineSnapshot>,
) -> Result<Found, Refusal> {
    case.gate("Snapshot")?;
    let errors = match old {
        Some(old) => immutable(&snapshot.spec, &old.spec),
        None => is_machine(&FieldPath::new("spec.source"), &snapshot.spec.source).into_iter().collect(),
    };
    Ok(errors.into())
}

/// Validates a reference that must be to a VM.
pub(super) fn is_machine(field: &FieldPath, reference: &TypedLocalObjectReference) -> Option<FieldError> {
    match reference.api_group.as_deref() {
        None => Some(FieldError::new(Cause::NotFound, field.child("apiGroup"), "missing apiGroup: kubevirt.io")),
        Some(v1::GROUP) if reference.kind == VirtualMachine::KIND => None,
        Some(v1::GROUP) => {
            Some(FieldError::invalid(field.child("kind"), reference.kind.as_str(), "must be VirtualMachine"))
        }
        Some(other) => Some(FieldError::invalid(field.child("apiGroup"), other, "must be kubevirt.io")),
    }
}
