//! The VirtualMachineInstance controller: takes an admitted VMI to a launcher Pod that virt-handler can take over, and
//! cleans up after its end.

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
/// Whether the guest has persistent state that needs a claim.
pub use render::needs_backend_claim as keeps_state;
pub use topology::awaits_hints;
pub use vsock::vsock_cid;
pub use world::{Owner, Settings, Storage, World};
