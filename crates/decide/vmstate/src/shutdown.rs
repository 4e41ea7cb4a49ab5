//! Powers the guest off: requests a shutdown, repeats the request, and kills it when the grace period is over.

use std::time::Duration;

use jiff::Timestamp;

use crate::action::normal;
use crate::launcher::since;
use crate::phase::grace_seconds;
use crate::{Action, DomainState, DomainStatus, LauncherState, Vmi, World};

/// A guest that is still booting misses the request, so it is repeated. So are other commands without a visible effect.
const RESEND: Duration = Duration::from_secs(5);

pub(crate) fn shutdown(w: &World<'_>, state: &LauncherState, domain: &DomainState) -> Vec<Action> {
    let vmi = if let Vmi::Present(vmi) = w.vmi { Some(vmi) } else { None };
    let grace = Duration::from_secs(grace_seconds(w, vmi).unsigned_abs());
    let begun = state.shutdown_requested_at;
    let left = begun.map_or(Some(grace), |begun| grace.checked_sub(since(begun, w.now))).filter(|left| !left.is_zero());
    let Some(left) = left else {
        let because = "the grace period is over";
        return kill(w, because);
    };
    let mut actions = Vec::new();
    let resend = resend_in(w.sent.shutdown, w.now);
    if domain.status != DomainStatus::Shutdown && resend.is_none() {
        actions.push(Action::Shutdown);
        if begun.is_none() && vmi.is_some() {
            actions.push(normal("ShuttingDown", "Signaled Graceful Shutdown"));
        }
    }
    let next = resend.unwrap_or(RESEND).min(left);
    actions.push(Action::RequeueAfter { delay: next, because: "the guest has time left to power off" });
    actions
}

/// Kills QEMU; repeated if it still runs a while later.
pub(crate) fn kill(w: &World<'_>, because: &'static str) -> Vec<Action> {
    if let Some(left) = resend_in(w.sent.kill, w.now) {
        return vec![Action::RequeueAfter { delay: left, because: "QEMU is being ended" }];
    }
    let mut actions = vec![Action::Kill { because }];
    if matches!(w.vmi, Vmi::Present(_)) {
        actions.push(normal("Deleted", "VirtualMachineInstance stopping"));
    }
    actions.push(Action::RequeueAfter { delay: RESEND, because: "QEMU is being ended" });
    actions
}

/// The time until a command may be repeated; `None` if it may be sent now.
pub(crate) fn resend_in(last: Option<Timestamp>, now: Timestamp) -> Option<Duration> {
    RESEND.checked_sub(since(last?, now)).filter(|left| !left.is_zero())
}
