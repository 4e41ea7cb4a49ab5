//! 22: a pass never both creates and deletes a VMI.

use std::collections::BTreeMap;

use super::{Invariant, Scene, Verdict};
use crate::engine::PassInfo;
use crate::hub::{Op, Request};
use crate::kinds::Kind;

#[derive(Default)]
pub(crate) struct Rule {
    /// By pass: created, deleted.
    steps: BTreeMap<u64, (bool, bool)>,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "one_vmi_step"
    }

    fn request(&mut self, _: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        if request.kind != Some(Kind::Vmi) {
            return Ok(());
        }
        let step = self.steps.entry(pass.id).or_default();
        match request.op {
            Op::Create => step.0 = true,
            Op::Delete { .. } => step.1 = true,
            _ => {}
        }
        if *step == (true, true) { Err(format!("{} was created and deleted in one pass", request.key)) } else { Ok(()) }
    }

    fn pass_ends(&mut self, _: &Scene<'_>, pass: &PassInfo, _: bool) -> Verdict {
        self.steps.remove(&pass.id);
        Ok(())
    }
}
