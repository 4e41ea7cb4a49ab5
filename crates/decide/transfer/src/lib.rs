//! Live migration of a guest between two launchers: who may run it, and when to adjust or abort a transfer.
//!
//! Pure: the launchers make the calls, report the answers and execute what is decided here.
//!
//! - [`Source`] is the launcher that sends the guest. It drives libvirt's protocol at both daemons.
//! - [`Target`] is the launcher that receives it. It only watches, and reports when the guest has arrived.
//! - [`Monitor`] evaluates QEMU's statistics during the transfer.
//! - [`may_start`] and [`may_prepare`] say whether a launcher does what it is told about a migration, and [`conclude`]
//!   what it reports at the end.

mod ask;
mod conclude;
mod event;
mod monitor;
mod perform;
mod recover;
mod source;
mod stall;
mod start;
mod target;
mod word;

pub use conclude::{ABORTED, Conclusion, abort_asked, conclude, final_progress};
pub use event::{Command, Domain, Event, Failure, How, Outcome, Pass, Report};
pub use monitor::{Monitor, Order, PostCopy, Sample};
pub use source::{Setup, Source};
pub use start::{Departure, Refused, arrived, awaits_guest, may_prepare, may_start};
pub use target::{Note, Seen, Target};
pub use word::{Word, ended_by_itself, word};
