//! The VirtualMachine controller: decides when a VMI should exist and from which template, and records its outcome.

mod action;
mod backoff;
mod changed_blocks;
mod clone_source;
mod data_volumes;
mod decide;
mod expand;
mod instancetype;
mod memory_dump;
mod printable;
mod restart_required;
mod revision;
mod start;
mod status;
mod strategy;
mod update;
mod volume_migration;
mod wanted;
mod world;

#[cfg(test)]
mod tests;

pub use ::instancetype::Live;
pub use action::{Action, Look, Own};
pub use clone_source::{Access, access};
pub use data_volumes::is_populated_already;
pub use decide::decide;
pub use wanted::{Object, Wanted, wanted};
pub use world::{Place, World};
