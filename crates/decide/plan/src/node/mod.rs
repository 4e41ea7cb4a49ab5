//! The Node controller: what is done about a node whose agent has fallen silent, and which time stamp counters the nodes
//! offer to guests.

mod action;
mod decide;
pub mod topology;
mod world;

#[cfg(test)]
mod tests;

pub use action::{Action, Own};
pub use decide::{decide, is_silent, judge};
pub use topology::lowest_tsc_frequency;
pub use world::{Agents, Live, World};
