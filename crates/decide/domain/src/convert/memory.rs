//! Memory at boot, and the limit it may grow to.

use api::v1::VirtualMachineInstance;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::error::Error;
use crate::xml::{MaxMemory, Numa, NumaCell};

pub(super) struct Memory {
    pub(super) guest: u64,
    max: u64,
}

pub(super) fn memory(vmi: &VirtualMachineInstance) -> Result<Memory, Error> {
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
    let max = match memory.and_then(|memory| memory.max_guest.as_ref()) {
        Some(max) => quantity(max, "spec.domain.memory.maxGuest")?,
        None => guest,
    };
    Ok(Memory { guest, max })
}

impl Memory {
    fn grows(&self) -> bool {
        self.max > self.guest
    }

    pub(super) fn max(&self) -> Option<MaxMemory> {
        self.grows().then_some(MaxMemory { slots: 1, unit: "b", value: self.max })
    }

    /// libvirt plugs memory only into a guest that has a NUMA node to plug it into.
    pub(super) fn cell(&self, cpus: u32) -> Option<Numa> {
        let cpus = format!("0-{}", cpus.saturating_sub(1));
        let cell = NumaCell { id: 0, cpus, memory: self.guest >> 10, unit: "KiB" };
        self.grows().then_some(Numa { cell })
    }
}

/// The quantity in whole units, rounded up.
pub(super) fn quantity(quantity: &Quantity, field: &str) -> Result<u64, Error> {
    let parsed =
        machinery::quantity::Quantity::try_from(quantity).map_err(|error| Error::invalid(field, error.to_string()))?;
    u64::try_from(parsed.value()).map_err(|_| Error::invalid(field, "a negative amount makes no sense"))
}
