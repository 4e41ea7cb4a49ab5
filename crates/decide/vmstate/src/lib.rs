//! The node's side of one virtual machine: what to do next with a launcher Pod, given everything known about it.
//!
//! [`decide`] is the whole judgement of the node agent. It is pure: the agent gathers a [`World`], carries out the
//! [`Action`]s in order, stops at the first that fails, and asks again with what it then sees. There is one such
//! machine per launcher, keyed by the UID of its Pod; a VMI that was deleted and made anew under the same name is
//! another machine.
//!
//! ```text
//!             controller hands over
//!                      │ phase Scheduled
//!                      ▼
//!  launcher not ready ──► ConfigureNetwork ──► SyncDomain ──► domain runs ──► phase Running
//!        │ 3 min                  │ fails           │ impossible      │
//!        │                        │                 │                 ├─ paused on an IO error: SyncDomain resumes it
//!        │                        │                 │                 ├─ VMI deleted or gone, Pod stopping: Shutdown
//!        │                        │                 │                 │     every 5 s until the grace period is over,
//!        │                        │                 │                 │     then Kill
//!        ▼                        ▼                 ▼                 ▼
//!   phase Failed ◄────────────────┴─────────────────┘        domain is down
//!        │                                                            │ phase Succeeded or Failed, by why it is down
//!        ▼                                                            ▼
//!     Delete ◄────────────────────────────────────────────────────────┘
//!        │ the launcher ends
//!        ▼
//!     CleanUp: nothing of this launcher is left on the node
//! ```
//!
//! Three rules hold the machine together:
//!
//! - **The phase is written before the evidence goes.** While the domain's state calls for another phase, writing it is
//!   all that happens. A domain is deleted only after the phase it explains is stored, so a restarted agent never has
//!   to guess how a guest ended. A launcher that could not wait for an agent leaves its last state in writing.
//! - **Silence is not death.** A launcher that stops answering is left alone until it has been silent for half a minute
//!   or its process is known to be gone. A state that is not understood freezes everything.
//! - **Nothing starts after a shutdown began.**
//!
//! Live migration adds a second launcher on another node; [`migration`] tells who may run the guest when.
//!
//! Hotplug and SR-IOV are not part of the machine yet.

mod action;
mod conditions;
mod decide;
mod interfaces;
mod io_retry;
mod launcher;
pub mod migration;
mod phase;
mod shutdown;
mod status;
mod world;

pub use action::{Action, ActionKind, EventType};
pub use decide::decide;
pub use io_retry::IoRetry;
pub use launcher::{LauncherView, Verdict};
pub use launcher_contract::migration::MigrationPhase;
pub use launcher_contract::types::{DomainReason, DomainStatus};
pub use migration::{Endpoint, Migration, Proxy};
pub use world::{
    Disk, Domain, Failure, GuestAgent, GuestInterface, Interface, LauncherState, Network, PodAddresses, Sent, Vmi,
    World,
};
