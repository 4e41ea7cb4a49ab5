//! Memory: requests, the guest's memory, and its backing.

use api::config::ClusterConfig;
use api::v1::{DomainSpec, VirtualMachineInstanceSpec};
use machinery::field::{Cause, Path};
use machinery::quantity::Quantity;

use super::findings::{Findings, text};
use super::{amount, parsed};

const MEMORY: &str = "memory";

/// Below this a unit was probably forgotten.
const LEAST_REQUEST: i64 = 1_000_000;

/// Requests and limits.
pub(super) fn resources(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec) {
    let Some(resources) = &given.resources else { return };
    let requests = domain.child("resources.requests.memory");
    let request = amount(&resources.requests, MEMORY);
    let limit = amount(&resources.limits, MEMORY);
    if request.is_negative() {
        found.invalid(&requests, request.to_string(), "must be greater than or equal to 0");
    } else if request > Quantity::ZERO && request.value() < LEAST_REQUEST {
        found.invalid(&requests, request.to_string(), "must be at least 1M; a unit may be missing");
    }
    if limit.is_negative() {
        let limits = domain.child("resources.limits.memory");
        found.invalid(&limits, limit.to_string(), "must be greater than or equal to 0");
    }
    if limit > Quantity::ZERO && request.value() > limit.value() {
        found.invalid(&requests, request.to_string(), format_args!("must not be greater than the limit {limit}"));
    }
}

/// The guest's memory consists of whole pages.
pub(super) fn hugepages(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec) {
    let Some(memory) = &given.memory else { return };
    let Some(size) = memory.hugepages.as_ref().map(|pages| text(&pages.page_size)) else { return };
    let page = match size.parse::<Quantity>() {
        Ok(page) if page > Quantity::ZERO => page,
        Ok(_) => return found.invalid(&domain.child("memory.hugepages.pageSize"), size, "must be greater than 0"),
        Err(error) => return found.invalid(&domain.child("memory.hugepages.pageSize"), size, error),
    };
    let resources = given.resources.as_ref();
    let candidates = [
        resources.map(|resources| amount(&resources.requests, MEMORY)),
        memory.guest.as_ref().map(parsed),
        resources.map(|resources| amount(&resources.limits, MEMORY)),
    ];
    let amount = candidates.into_iter().flatten().find(|amount| !amount.is_zero()).unwrap_or_default();
    let at = domain.child("resources.requests.memory");
    if !amount.is_zero() && amount.value() < page.value() {
        found.invalid(&at, amount.to_string(), format_args!("must not be less than the page size {page}"));
    } else if amount.value() % page.value() != 0 {
        found.invalid(&at, amount.to_string(), format_args!("must be a multiple of the page size {page}"));
    }
}

/// A guest with more memory than its Pod's limit would be OOM-killed, whatever the roll-out strategy.
pub(super) fn guest(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec) {
    let Some(guest) = given.memory.as_ref().and_then(|memory| memory.guest.as_ref()).map(parsed) else { return };
    let limit = given.resources.as_ref().map(|resources| amount(&resources.limits, MEMORY)).unwrap_or_default();
    if !limit.is_zero() && guest.value() > limit.value() {
        let detail = format_args!("must not be greater than the memory limit {limit}");
        found.invalid(&domain.child("memory.guest"), guest.to_string(), detail);
    }
}

/// Reserving memory beyond the computed overhead.
pub(super) fn reserved_overhead(found: &mut Findings, domain: &Path<'_>, given: &DomainSpec, config: &ClusterConfig) {
    let reserved = given.memory.as_ref().is_some_and(|memory| memory.reserved_overhead.is_some());
    if reserved {
        super::needs_gate(found, &domain.child("memory.reservedOverhead"), "ReservedOverheadMemlock", config);
    }
}

/// A VMI must have a memory size. Templates may leave it to an instance type or a preset.
pub(super) fn mandatory(found: &mut Findings, spec: &VirtualMachineInstanceSpec) {
    let domain = &spec.domain;
    let requested = domain.resources.as_ref().is_some_and(|resources| !amount(&resources.requests, MEMORY).is_zero());
    let stated = domain.memory.as_ref().is_some_and(|memory| memory.guest.is_some() || memory.hugepages.is_some());
    if !requested && !stated {
        let message = "no memory requested, at least one of spec.domain.memory.guest, \
                       spec.domain.memory.hugepages.pageSize or spec.domain.resources.requests.memory must be set";
        // The cause has no field: it could be any of the three.
        found.refuse(Cause::Required, &Path::new(""), message);
    }
}
