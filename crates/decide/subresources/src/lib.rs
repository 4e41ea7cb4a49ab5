//! The decisions of the endpoints of `subresources.kubevirt.io`, given the objects: a list of patches, an address to
//! connect to, or a refusal.
//!
//! virt-api's routes fetch the objects, call these functions, and execute the result.

pub mod access;
mod instance;
mod lifecycle;
mod migration;
pub mod options;
mod refusal;
#[cfg(test)]
mod tests;

pub use instance::{
    Protocol, console, guest_agent, handler_node, instance_of, pause, port_forward, reset_failure, soft_reboot,
    unpause, vnc,
};
pub use lifecycle::{Plan, Step, restart, start, stop};
pub use migration::{cancel_evacuation, evacuated_node, migrate};
pub use refusal::{Kind, Refusal};
