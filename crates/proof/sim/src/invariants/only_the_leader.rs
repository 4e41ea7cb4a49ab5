//! 73: only the leader sends requests. (Those sent before it lost the lease may still arrive.)

use super::{Invariant, Scene, Verdict};
use crate::engine::PassInfo;
use crate::hub::Request;

#[derive(Default)]
pub(crate) struct Rule {
    newest: u32,
}

impl Invariant for Rule {
    fn name(&self) -> &'static str {
        "only_the_leader"
    }

    fn request(&mut self, _: &Scene<'_>, pass: &PassInfo, request: &Request) -> Verdict {
        if pass.replica < self.newest {
            return Err(format!("process {} leads no more, yet asks for {}", pass.replica, request.key));
        }
        self.newest = pass.replica;
        Ok(())
    }
}
