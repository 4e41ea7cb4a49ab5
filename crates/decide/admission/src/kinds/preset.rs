//! Presets.

use api::v1::VirtualMachineInstancePreset;
use machinery::field::{FieldError, FieldPath};

use super::{Case, Found};
use crate::{Refusal, validate};

/// In an incomplete domain only disks and firmware can be validated.
pub(super) fn rules(
    _case: &Case<'_>,
    preset: &mut VirtualMachineInstancePreset,
    _old: Option<&VirtualMachineInstancePreset>,
) -> Result<Found, Refusal> {
    let field = FieldPath::new("spec.domain");
    let Some(domain) = &preset.spec.domain else {
        return Ok(vec![FieldError::required(field, "a preset without a domain does nothing")].into());
    };
    let mut errors = validate::disks(&field.child("devices").child("disks"), &domain.devices.disks);
    if let Some(firmware) = &domain.firmware {
        errors.extend(validate::firmware(&field.child("firmware"), firmware));
    }
    Ok(errors.into())
}
