//! The migration controller: from the wish to move a guest to the moment the nodes have all they need, and what is made
//! of the outcome.
//!
//! What the nodes do in between is theirs. The hand-off is one patch of the instance; from then on they write the course
//! of the migration there, and this controller follows.

mod action;
mod backend;
mod decentralized;
mod decide;
mod garbage;
mod handoff;
mod kinds;
mod phase;
pub mod policy;
mod recovery;
mod status;
mod sync;
mod target;
mod timeouts;
mod world;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use backend::state_claims;
pub use decentralized::{address, source_node};
pub use decide::decide;
pub use handoff::{Live, hand_off};
pub(crate) use kinds::ended;
pub use kinds::{
    Kind, RUNNING_PRIORITY, concerns, is_final, is_needless, is_running, kind, owns, phase, priority, spec_priority,
};
pub use recovery::{job_name, recover};
pub use status::{waits_for_its_node, waits_for_room};
pub use target::start;
pub use world::{Slots, World, is_target};
