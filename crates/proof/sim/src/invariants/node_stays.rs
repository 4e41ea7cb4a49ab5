//! 9: without a migration an instance never changes its node.

use super::support::{ensure, name, vmi_change};
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
        ensure(node(was).is_none_or(|node| node.is_empty()) || node(was) == node(is), || {
            format!("instance {} went from {:?} to {:?}", name(is), node(was), node(is))
        })
    }
}
