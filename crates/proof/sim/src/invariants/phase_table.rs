//! 5: phases of an instance move along the table, each step by the one who may make it; Succeeded and Failed are the end.

use api::v1::VirtualMachineInstancePhase as Phase;

use super::support::{name, phase, vmi_change};
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
        let known = TABLE.iter().find(|(from, to, _)| was.phase() == Some(from) && is.phase() == Some(to));
        match known {
            Some((_, _, movers)) if movers.contains(&change.by.name()) => Ok(()),
            _ => Err(format!("{} moved instance {} from {} to {}", change.by.name(), name(is), phase(was), phase(is))),
        }
    }
}
