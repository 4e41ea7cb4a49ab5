//! The guest's memory.
//!
//! `maxGuest`, set by admission, limits memory hotplug. Memory hotplug is not implemented yet, so the guest gets plain
//! memory, without slots and without the NUMA node that slots would need.

use api::v1::VirtualMachineInstance;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::error::Error;

/// The guest's memory in bytes.
pub(super) fn memory(vmi: &VirtualMachineInstance) -> Result<u64, Error> {
    let memory = vmi.spec.domain.memory.as_ref();
    let resources = vmi.spec.domain.resources.as_ref();
    let guest = memory.and_then(|memory| memory.guest.as_ref()).map(|guest| (guest, "spec.domain.memory.guest"));
    let request = || resources.and_then(|r| r.requests.get("memory")).map(|q| (q, "spec.domain.resources.requests"));
    let limit = || resources.and_then(|r| r.limits.get("memory")).map(|q| (q, "spec.domain.resources.limits"));
    let Some((amount, field)) = guest.or_else(request).or_else(limit) else {
        return Err(Error::invalid("spec.domain.memory.guest", "the guest needs an amount of memory"));
    };
    let guest = quantity(amount, field)?;
    if guest < 1 << 20 {
        return Err(Error::invalid(field, format!("{} is less than 1Mi; a unit may be missing", amount.0)));
    }
    Ok(guest)
}

/// The quantity in whole units, rounded up.
pub(super) fn quantity(quantity: &Quantity, field: &str) -> Result<u64, Error> {
    let parsed =
        machinery::quantity::Quantity::try_from(quantity).map_err(|error| Error::invalid(field, error.to_string()))?;
    u64::try_from(parsed.value()).map_err(|_| Error::invalid(field, "a negative amount makes no sense"))
}
