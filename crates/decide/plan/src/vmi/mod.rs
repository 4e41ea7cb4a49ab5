//! The VirtualMachineInstance controller: from an accepted instance to a launcher Pod that a node agent can take over,
//! and the clean end.

mod action;
mod backend;
mod conditions;
mod decide;
mod follow;
mod hotplug;
mod network;
mod phase;
mod pod;
mod status;
mod strays;
mod topology;
mod volume_status;
mod volumes;
mod vsock;
mod world;

#[cfg(test)]
mod tests;

pub use action::{Action, Look, Sort};
pub use decide::decide;
pub(crate) use network::annotations as network_annotations;
/// Whether the guest has state of its own that a claim must keep.
pub use render::needs_backend_claim as keeps_state;
pub use topology::awaits_hints;
pub use vsock::vsock_cid;
pub use world::{Owner, Settings, Storage, World};
