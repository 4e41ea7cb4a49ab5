//! The whole control plane in one thread on virtual time: the real controllers of virt-controller over an in-memory
//! API, with stale caches, broken watches, crashing processes and an unreliable cluster around them.
//!
//! ```text
//! seed ──► profile ──► script ──► engine ──► outcome
//!            what is     deeds      │ server   the API, with true semantics
//!            likely      and        │ replica  caches, queues, passes of the real controllers
//!                        faults     │ hub      every request stops twice on its way
//!                                   │ actors   scheduler, kubelet, virt-handler, CDI, garbage collector, user
//!                                   └ invariants   what must hold, one file each
//! ```
//!
//! [`launchers`] is a separate, smaller world: one migration, as both launchers and both virt-handlers see it.
//!
//! A seed determines the whole history. A failing history is minimized ([`shrink`](shrink::shrink)) and printed as a
//! timeline.

mod actors;
mod campaign;
mod controllers;
mod engine;
mod hub;
mod invariants;
mod kinds;
pub mod launchers;
mod plant;
mod profile;
mod rng;
pub mod scenario;
mod script;
mod server;
mod shrink;
mod timeline;

pub use campaign::{Campaign, Failure, News, Report, play_seed, run, watch};
pub use engine::{Options, Outcome, play};
pub use invariants::Violation;
pub use plant::Plant;
pub use profile::{PROFILES, Profile, SEPARATE, profile_for};
pub use script::{ClaimFate, Deed, Disk, EjectFate, Fault, GuestFate, JobFate, MountFate, PodFate, Script, VolumeFate};
pub use shrink::shrink;
