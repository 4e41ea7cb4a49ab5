//! The node's side of one VM: decides what to do next with a launcher Pod, given everything known about it.
//!
//! [`decide`] holds all the decisions of virt-handler. It is pure: virt-handler gathers a [`World`], executes the
//! [`Action`]s in order, stops at the first failure, and decides again from what it then observes. There is one such
//! state machine per launcher, keyed by the UID of its Pod; a VMI that was deleted and recreated under the same name
//! has another one.
//!
//! ```text
//!             controller hands over
//!                      │ phase Scheduled
//!                      ▼
//!  launcher not ready ──► ConfigureNetwork ──► SyncDomain ──► domain runs ──► phase Running
//!        │ 3 min                  │ fails           │ impossible      │
//!        │                        │                 │                 ├─ paused on an IO error: SyncDomain resumes it
//!        │                        │                 │                 ├─ a claim has grown: GrowDisks
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
//! Three rules:
//!
//! - **The phase is written before the evidence is removed.** While the domain's state requires another phase, writing
//!   it is the only action. A domain is deleted only after the phase it explains is stored, so a restarted virt-handler
//!   never has to guess how a guest ended. A launcher that could not wait for virt-handler leaves its last state in a
//!   file.
//! - **Silence is not death.** A launcher that stops responding is left alone until it has been silent for half a
//!   minute or its process is known to be gone. While a state is not understood, nothing is done.
//! - **Nothing starts once a shutdown has begun.**
//!
//! Live migration adds a second launcher on another node; [`migration`] defines which one may run the guest at any
//! time.
//!
//! `volumes` makes a running guest follow the volumes of its VMI. SR-IOV is not part of the state machine yet.

mod action;
pub mod claim;
mod conditions;
mod decide;
mod growth;
mod interfaces;
mod io_retry;
mod launcher;
pub mod migration;
mod phase;
pub mod selinux;
mod shutdown;
mod status;
mod volumes;
mod world;

pub use action::{Action, ActionKind, EventType};
pub use decide::decide;
pub use io_retry::IoRetry;
pub use launcher::{LauncherView, Verdict};
pub use launcher_contract::migration::MigrationPhase;
pub use launcher_contract::types::{
    DiskError, DomainDisk, DomainInterface, DomainReason, DomainState, DomainStatus, DomainType, GuestAgent,
    GuestInterface, MemoryDump,
};
pub use migration::{Endpoint, Migration, Proxy};
pub use volumes::{Mount, Mounted, Shape, Told, Trouble, Volumes, plugged};
pub use world::{Failure, LauncherState, Network, PodAddresses, Sent, Vmi, World};
