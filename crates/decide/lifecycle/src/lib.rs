//! One launcher and its guest, from the launcher's start to its exit.
//!
//! Pure: virt-launcher reads the domain from libvirt, makes the calls, and executes what is decided here.
//!
//! - [`Guest`] answers virt-handler's requests: whether the guest is started, resumed, paused, shut down, ended or
//!   deleted, or why not.
//! - [`Life`] is the launcher's own way: it waits for a guest, guards it, ends it if the Pod is stopped, and exits.
//!
//! Two rules, whatever is asked in whatever order:
//!
//! - **A launcher starts its guest once.** After the guest has ended, a late sync does not start it again.
//! - **A guest that runs elsewhere is neither started nor resumed here.** The target of a migration receives its guest
//!   and does not start it; the source leaves it to the migration. Which of the two runs it, and when, is decided in
//!   [`transfer`].

mod guest;
mod life;

pub use guest::{
    Act, Answer, Change, Facts, Guest, Receive, Sync, arrives_paused, has_started, not_moving, starts_paused,
};
pub use life::{Event, Exit, Life, Limits, Order, Seen, has_ended};
