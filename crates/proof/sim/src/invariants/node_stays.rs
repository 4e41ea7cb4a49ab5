//! 9, 38: only virt-handler changes the node of a VMI, to the target of a migration that has not failed.

use super::support::{ensure, is_receiver, name, vmi_change};
use super::{Invariant, Scene, Verdict};
use crate::server::Change;

#[derive(Default)]
pub(crate) struct Rule;

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "node_stays"
    }

    fn change(&mut self, _: &Scene<'_>, change: &Change) -> Verdict {
        let Some((Some(was), is)) = vmi_change(change) else { return Ok(()) };
        let node = |vmi: &api::v1::VirtualMachineInstance| vmi.status.as_ref().and_then(|status| status.node_name.clone());
        let state = is.status.as_ref().and_then(|status| status.migration_state.as_ref());
        let moved = state.is_some_and(|state| {
            state.target_node == node(is) && state.source_node == node(was) && state.failed != Some(true)
        });
        // A VMI that waits for a guest has no node yet, whatever an earlier attempt left.
        let waits = is_receiver(was) && !was.is_running();
        let by_agent = change.by.name() == "agent";
        ensure(node(was).is_none_or(|node| node.is_empty()) || node(was) == node(is) || (moved && by_agent) || waits, || {
            format!("instance {} went from {:?} to {:?}", name(is), node(was), node(is))
        })
    }
}
