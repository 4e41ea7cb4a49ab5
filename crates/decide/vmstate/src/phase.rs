//! Computes the phase of a VMI from what is known about its domain.

use std::time::Duration;

use api::v1::VirtualMachineInstance;
use api::v1::VirtualMachineInstancePhase as Phase;

use crate::launcher::{Verdict, since};
use crate::migration::source;
use crate::{DomainReason, DomainState, DomainStatus, Network, World};

/// If a launcher reports no domain for a running guest, it is believed after this long; its libvirt may have just been
/// restarted.
const DOMAIN_LOST: Duration = Duration::from_secs(10);

/// The phase, with a reason if it is unexpected.
pub(crate) fn phase(w: &World<'_>, vmi: &VirtualMachineInstance) -> (Phase, Option<String>) {
    let current = vmi.phase().cloned().unwrap_or_default();
    if let Some(why) = source::lost(w, vmi) {
        return (Phase::Failed, Some(why));
    }
    if source::is_elsewhere(w, vmi) {
        return (current, None); // the target's node has to report it
    }
    if let Some(message) = critical(w, vmi) {
        return (Phase::Failed, Some(message));
    }
    match w.launcher.verdict(w.now) {
        Verdict::NotInitialised | Verdict::Silent => (current, None),
        Verdict::Connected(state) => match &state.domain {
            Some(domain) => (from_domain(domain, vmi, w).unwrap_or(current), None),
            None => without_domain(w, current),
        },
        Verdict::Gone => {
            // Its last report explains its end better than its silence does.
            match w.launcher.outcome().and_then(|domain| from_domain(domain, vmi, w)) {
                Some(phase) => (phase, None),
                None => (Phase::Failed, Some(gone(w))),
            }
        }
    }
}

/// A failure that retries cannot fix.
fn critical(w: &World<'_>, vmi: &VirtualMachineInstance) -> Option<String> {
    if let Some(failure) = w.failure.filter(|failure| failure.critical) {
        return Some(failure.message.clone());
    }
    let has_domain = matches!(w.launcher.verdict(w.now), Verdict::Connected(state) if state.domain.is_some());
    let starting = !vmi.is_running() && !has_domain;
    (matches!(w.network, Network::Interrupted) && starting).then(|| {
        "virt-handler restarted while it set up the launcher Pod's network, which cannot be repeated".to_string()
    })
}

fn gone(w: &World<'_>) -> String {
    if !w.launcher.pod_dir {
        return "the launcher Pod is gone from its node".to_string();
    }
    if w.launcher.process_gone {
        return "virt-launcher exited without reporting a reason".to_string();
    }
    if w.launcher.connected_once {
        return "virt-launcher no longer responds".to_string();
    }
    "the launcher did not become ready in time; see the log of its Pod".to_string()
}

fn without_domain(w: &World<'_>, current: Phase) -> (Phase, Option<String>) {
    match current {
        Phase::Running => {
            let lost = w.launcher.state.is_some_and(|(_, at)| since(at, w.now) >= DOMAIN_LOST);
            let why = || "virt-launcher no longer has a domain for this guest".to_string();
            if lost { (Phase::Failed, Some(why())) } else { (current, None) }
        }
        // It was handed over, but the stored phase is not one of ours: start over.
        _ => (Phase::Scheduled, None),
    }
}

/// `None` if the domain's state does not determine the phase.
fn from_domain(domain: &DomainState, vmi: &VirtualMachineInstance, w: &World<'_>) -> Option<Phase> {
    use DomainReason as Reason;
    match domain.status {
        DomainStatus::Shutoff | DomainStatus::Crashed => match domain.reason {
            Reason::Crashed | Reason::Panicked => Some(Phase::Failed),
            // It did not power off although it could have been asked and had the time.
            Reason::Destroyed if domain.acpi && grace_seconds(w, Some(vmi)) != 0 => Some(Phase::Failed),
            Reason::Destroyed | Reason::Shutdown | Reason::Saved | Reason::FromSnapshot => Some(Phase::Succeeded),
            _ => None,
        },
        DomainStatus::Paused if domain.reason == Reason::PausedPostcopyFailed => Some(Phase::Failed),
        DomainStatus::Paused | DomainStatus::Running | DomainStatus::Blocked | DomainStatus::PMSuspended => {
            Some(Phase::Running)
        }
        DomainStatus::Shutdown | DomainStatus::NoState | DomainStatus::Unknown => None,
    }
}

/// How long the guest may take to power off.
pub(crate) fn grace_seconds(w: &World<'_>, vmi: Option<&VirtualMachineInstance>) -> i64 {
    const DEFAULT: i64 = 30;
    let asked = vmi.and_then(|vmi| vmi.spec.termination_grace_period_seconds);
    asked.or(w.recorded_grace_seconds).unwrap_or(DEFAULT).max(0)
}
