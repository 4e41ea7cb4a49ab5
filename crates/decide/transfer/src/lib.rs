//! How a guest moves between two launchers: who runs it, and when to help a transfer or give it up.
//!
//! Pure: the launchers make the calls, tell what was answered and carry out what is decided here.
//!
//! - [`Source`] is the launcher that sends the guest. It drives libvirt's protocol at both daemons.
//! - [`Target`] is the launcher that receives it. It only watches, and says when the guest is there.
//! - [`Monitor`] judges QEMU's figures during the transfer.

mod ask;
mod event;
mod monitor;
mod perform;
mod recover;
mod source;
mod stall;
mod target;
mod word;

pub use event::{Command, Domain, Event, Failure, How, Outcome, Pass, Report};
pub use monitor::{Monitor, Order, PostCopy, Sample};
pub use source::{Setup, Source};
pub use target::{Note, Seen, Target};
pub use word::{Word, ended_by_itself, word};
