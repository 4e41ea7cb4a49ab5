//! The VirtualMachineInstance controller: from an accepted instance to a launcher Pod that a node agent can take over,
//! and the clean end.

mod action;
mod decide;
mod phase;
mod pod;
mod status;
mod world;

#[cfg(test)]
mod tests;

pub use action::Action;
pub use decide::decide;
pub use world::{Owner, World};
