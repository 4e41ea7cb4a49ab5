//! The decisions of the endpoints of `subresources.kubevirt.io`, given the objects: a list of patches, an address to
//! connect to, or a refusal.
//!
//! virt-api's routes fetch the objects, call these functions, and execute the result.

pub mod access;
mod instance;
mod lifecycle;
mod memory_dump;
mod migration;
pub mod options;
mod refusal;
#[cfg(test)]
mod tests;
mod volumes;

pub use instance::{
    Protocol, console, guest_agent, handler_node, instance_of, pause, port_forward, reset_failure, soft_reboot,
    unpause, vnc,
};
pub use lifecycle::{Plan, Step, restart, start, stop};
pub use memory_dump::{DumpFacts, dump_claim, dump_claim_bytes, dump_memory, remove_dump};
pub use migration::{cancel_evacuation, evacuated_node, migrate};
pub use refusal::{Kind, Refusal};
pub use volumes::VolumeChange;
