//! 74: on a conflict the pass is aborted and starts again from the cache: it ends with an error, and nothing is resent
//! unchanged.

use std::collections::BTreeMap;

use super::{Invariant, Scene, Verdict};
use crate::engine::PassInfo;
use crate::hub::Request;

#[derive(Default)]
pub(crate) struct Rule {
    /// The request of a pass that failed with a conflict.
    refused: BTreeMap<u64, String>,
}

fn payload(request: &Request) -> String {
    format!("{:?} {} {:?}", request.kind, request.key, request.op)
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "conflicts"
    }

    fn request(&mut self, _: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        match self.refused.get(&pass.id) {
            Some(refused) if *refused == payload(request) => Err(format!("{} is sent again after a conflict", request.key)),
            _ => Ok(()),
        }
    }

    fn answer(&mut self, _: &Scene<'_>, pass: &PassInfo, request: &Request, answer: Result<(), u16>) -> Verdict {
        if request.is_guarded() && matches!(answer, Err(409 | 422)) {
            self.refused.insert(pass.id, payload(request));
        }
        Ok(())
    }

    fn pass_ends(&mut self, _: &Scene<'_>, pass: &PassInfo, ok: bool) -> Verdict {
        match self.refused.remove(&pass.id) {
            Some(_) if ok => Err(format!("the pass over {} met a conflict and took it for success", pass.key)),
            _ => Ok(()),
        }
    }
}
