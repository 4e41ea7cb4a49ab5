//! The migration controller: takes a migration from its request to the hand-off to the nodes, and acts on the outcome.
//!
//! virt-handler does the work in between. The hand-off is one patch of the VMI; from then on virt-handler records the
//! progress of the migration there, and this controller follows it.

mod action;
mod backend;
mod confirm;
mod decentralized;
mod decide;
mod garbage;
mod handoff;
mod kinds;
mod phase;
pub mod policy;
mod queue;
mod recovery;
mod side;
mod slots;
mod start;
mod status;
mod sync;
mod target;
mod timeouts;
mod world;

#[cfg(test)]
mod tests;

pub use action::{Action, Look, Own};
pub use backend::state_claims;
pub use decentralized::{address, source_node};
pub use decide::decide;
pub use handoff::{Live, hand_off};
pub(crate) use kinds::ended;
pub use kinds::{
    Kind, RUNNING_PRIORITY, concerns, is_needless, is_running, kind, owns, priority, spec_priority, was_given_up,
};
pub use queue::next_in_line;
pub use recovery::{job_name, recover};
pub use slots::{Census, Entry, Inherited, Slots, occupants, slots};
pub use start::{needs_stored_instance, start, with_stored_instance, with_stored_migration};
pub use status::waits_for_room;
pub use world::{World, is_target};
