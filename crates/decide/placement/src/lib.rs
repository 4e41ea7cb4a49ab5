//! The decisions of Kubernetes' own control plane about Pods, for clusters without one: on which node a Pod runs
//! ([`place`], which also looks at its claims) and which one comes first ([`queue`]), whether it fits its namespace's quota ([`quota`]), and whether it
//! may be evicted now ([`disruption`]). And about any object: whether it outlives its owners ([`ownership`]).

pub mod disruption;
pub mod ownership;
mod place;
mod queue;
pub mod quota;
mod resources;
mod rules;
mod scheduled;
#[cfg(test)]
mod tests;
mod volumes;

pub use place::{NodeView, Placed, Unschedulable, place};
pub use queue::{Assumed, forget_bound, queue, views};
pub use scheduled::unscheduled;
pub use volumes::Storage;
