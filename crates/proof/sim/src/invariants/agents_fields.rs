//! 7: once virt-handler owns a VMI, the VMI controller does not touch fields that are virt-handler's or frozen: spec,
//! node, topology hints, QoS class, phase transition timestamps, the condition `Synchronized`.

use api::conditions;

use super::support::{is_handed_over, name, pass_of, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::controllers;
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "agents_fields"
    }

    fn change(&mut self, scene: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        if !is_handed_over(was) || pass_of(scene, change, controllers::VMI).is_none() {
            return Ok(());
        }
        let (old, new) = (was.status.clone().unwrap_or_default(), is.status.clone().unwrap_or_default());
        let synchronized = |vmi: &api::v1::VirtualMachineInstance| vmi.condition(conditions::SYNCHRONIZED).cloned();
        let touched = [
            ("spec", was.spec != is.spec),
            ("status.nodeName", old.node_name != new.node_name),
            ("status.topologyHints", old.topology_hints != new.topology_hints),
            ("status.qosClass", old.qos_class != new.qos_class),
            ("status.phaseTransitionTimestamps", old.phase_transition_timestamps != new.phase_transition_timestamps),
            ("condition Synchronized", synchronized(was) != synchronized(is)),
        ];
        match touched.iter().find(|(_, touched)| *touched) {
            Some((field, _)) => Err(format!("{field} of instance {} was changed behind the node agent's back", name(is))),
            None => Ok(()),
        }
    }
}
