//! 5: the phases of a VMI follow the table, each step made by a permitted writer; Succeeded and Failed are final.

use api::v1::VirtualMachineInstancePhase as Phase;

use super::support::{has_sent, is_receiver, name, phase, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

const VMI: &str = "vmi-controller";
const NODE: &str = "node-controller";
const AGENT: &str = "agent";

/// From, to, and who may do it.
const TABLE: &[(Phase, Phase, &[&str])] = &[
    (Phase::Pending, Phase::Scheduling, &[VMI]),
    (Phase::Pending, Phase::Failed, &[VMI]),
    (Phase::Scheduling, Phase::Scheduled, &[VMI]),
    (Phase::Scheduling, Phase::Failed, &[VMI]),
    (Phase::Pending, Phase::WaitingForSync, &[VMI]),
    (Phase::WaitingForSync, Phase::Scheduling, &[VMI]),
    (Phase::Scheduling, Phase::WaitingForSync, &[VMI]),
    (Phase::Scheduled, Phase::WaitingForSync, &[VMI]),
    (Phase::Scheduled, Phase::Running, &[AGENT]),
    (Phase::Scheduled, Phase::Failed, &[VMI, NODE, AGENT]),
    (Phase::Running, Phase::Succeeded, &[AGENT]),
    (Phase::Running, Phase::Failed, &[VMI, NODE, AGENT]),
];

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "phase_table"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        if was.phase() == is.phase() {
            return Ok(());
        }
        let waits = [was.phase(), is.phase()].contains(&Some(&Phase::WaitingForSync));
        if waits && !is_receiver(was) {
            return Err(format!("instance {} waits for no guest, and went from {} to {}", name(is), phase(was), phase(is)));
        }
        // Its launcher exited without a guest: `between.rs` checks that the guest was sent.
        let sent = was.is_running() && is.phase() == Some(&Phase::Succeeded) && has_sent(is);
        let known = TABLE.iter().find(|(from, to, _)| was.phase() == Some(from) && is.phase() == Some(to));
        match known {
            Some((_, _, movers)) if movers.contains(&change.by.name()) || (sent && change.by.name() == VMI) => Ok(()),
            _ => Err(format!("{} moved instance {} from {} to {}", change.by.name(), name(is), phase(was), phase(is))),
        }
    }
}
