//! The Node controller: handles nodes whose virt-handler is unresponsive, and labels nodes with the TSC frequencies
//! that they offer to guests.

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
