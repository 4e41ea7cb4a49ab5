//! Conditions that virt-handler maintains on a VMI.

use api::conditions::{AGENT_CONNECTED, PAUSED, SOFTWARE_EMULATION, SYNCHRONIZED, remove, set};
use api::reasons::{PAUSED_BY_USER, PAUSED_IO_ERROR};
use api::v1::{Condition, ConditionStatus};

use crate::decide::is_about_the_guest;
use crate::status::time;
use crate::volumes;
use crate::{DiskError, DomainReason, DomainState, DomainStatus, DomainType, World};

/// Scripts match this text, so it is used as the reason.
const SYNCHRONIZING_FAILED: &str = "Synchronizing with the Domain failed.";
const HARDWARE_VIRTUALIZATION_UNAVAILABLE: &str = "HardwareVirtualizationUnavailable";

pub(crate) fn from_domain(w: &World<'_>, domain: &DomainState, conditions: &mut Vec<Condition>) {
    paused(w, domain, conditions);
    if domain.agent_connected {
        set(conditions, Condition::new(AGENT_CONNECTED, ConditionStatus::True, "", "", time(w.now)));
    } else {
        remove(conditions, AGENT_CONNECTED);
    }
    software_emulation(w, domain, conditions);
}

/// The first reported reason is kept for as long as the guest is paused. Which disk failed becomes known a little later.
fn paused(w: &World<'_>, domain: &DomainState, conditions: &mut Vec<Condition>) {
    if domain.status != DomainStatus::Paused {
        remove(conditions, PAUSED);
        return;
    }
    let (reason, message) = match domain.reason {
        DomainReason::PausedUser => (PAUSED_BY_USER, "VMI was paused by user".to_owned()),
        DomainReason::PausedIOError => (PAUSED_IO_ERROR, io_error(domain)),
        _ => return,
    };
    match conditions.iter_mut().find(|condition| condition.type_ == PAUSED) {
        None => {
            set(conditions, Condition::new(PAUSED, ConditionStatus::True, reason, message, time(w.now)));
        }
        Some(known) if known.reason() == reason && domain.disks.iter().any(|disk| disk.error.is_some()) => {
            known.message = Some(message);
        }
        Some(_) => {}
    }
}

fn io_error(domain: &DomainState) -> String {
    let mut message = "VMI was paused, low-level IO error detected".to_owned();
    for disk in &domain.disks {
        let why = match disk.error {
            None => continue,
            Some(DiskError::NoSpace) => "the storage behind it is full; free some space and the guest goes on",
            Some(DiskError::Other) => "the storage behind it failed; the guest goes on when it works again",
        };
        message.push_str(&format!(": disk {}: {why}", disk.alias));
    }
    message
}

/// Guests without KVM (TCG) are slow; their owners should know why.
fn software_emulation(w: &World<'_>, domain: &DomainState, conditions: &mut Vec<Condition>) {
    match (domain.domain_type == DomainType::Qemu, w.kvm) {
        (true, Err(why)) => {
            let condition = Condition::new(
                SOFTWARE_EMULATION,
                ConditionStatus::True,
                HARDWARE_VIRTUALIZATION_UNAVAILABLE,
                why,
                time(w.now),
            );
            set(conditions, condition);
        }
        // Started when KVM was unavailable; the reason given then still applies to this guest.
        (true, Ok(())) => {}
        (false, _) => {
            remove(conditions, SOFTWARE_EMULATION);
        }
    }
}

/// False while one of our actions fails, or with the reason of an unexpected end.
pub(crate) fn failure(w: &World<'_>, why: Option<&str>, conditions: &mut Vec<Condition>) {
    let failing = w.failure.filter(|failure| is_about_the_guest(failure)).map(|failure| failure.message.as_str());
    match failing.or(why).or_else(|| volumes::trouble(w)) {
        Some(message) => {
            let condition =
                Condition::new(SYNCHRONIZED, ConditionStatus::False, SYNCHRONIZING_FAILED, message, time(w.now));
            set(conditions, condition);
        }
        None => {
            remove(conditions, SYNCHRONIZED);
        }
    }
}
