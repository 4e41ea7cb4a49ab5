//! The events and commands of the source's launcher.

use launcher_contract::migration::{MigrationMode, MigrationOptions, MigrationPhase, Progress};
use launcher_contract::types::{DomainReason, DomainStatus};

/// A domain's state, as reported by libvirt.
pub type Domain = (DomainStatus, DomainReason);

/// A failed call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub how: How,
    /// What was done, to what, and why it failed.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The daemon answered: the call had no effect.
    Refused,
    /// The daemon answered: post-copy is not permitted for QEMU in this Pod or the other one.
    NoPostCopy,
    /// No answer came. Whether the call took effect is not known.
    Lost,
}

/// The flags that differ between two passes through libvirt's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// Enable post-copy in QEMU.
    pub post_copy: bool,
    /// Resume a post-copy whose connection broke.
    pub resumes: bool,
}

/// A result of a command, or an external event.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// [`Command::Reach`]
    Reached(Result<(), Failure>),
    /// [`Command::Begin`]
    Begun(Result<(), Failure>),
    /// [`Command::Prepare`]
    Prepared(Result<(), Failure>),
    /// [`Command::SetDowntime`]
    Allowed(Result<(), Failure>),
    /// [`Command::Perform`]
    Performed(Result<(), Failure>),
    /// [`Command::Sample`]; `None` if there are no statistics.
    Sampled(Option<Progress>),
    /// [`Command::StartPostCopy`] or [`Command::Suspend`]
    Switched(Result<(), Failure>),
    /// [`Command::Finish`]
    Finished(Result<(), Failure>),
    /// [`Command::AskTarget`]; `None` if the target has no such domain.
    There(Result<Option<Domain>, Failure>),
    /// [`Command::DestroyThere`]
    DestroyedThere(Result<(), Failure>),
    /// [`Command::LeaveMark`], whether it succeeded or not.
    Marked,
    /// [`Command::Confirm`]
    Confirmed(Result<(), Failure>),
    /// [`Command::Look`]; `None` if the domain is gone.
    Here(Result<Option<Domain>, Failure>),
    /// [`Command::Resume`] or [`Command::Destroy`]
    Done(Result<(), Failure>),
    /// An abort was requested.
    AbortAsked,
    /// virt-handler reports whether the guest is the target's, as the target node has recorded it in the VMI.
    Settled(bool),
    /// The time of [`Source::wakes_at`](crate::Source::wakes_at) has come.
    Tick,
}

/// The next command for the launcher. A call is answered by its event.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Connect to the target's libvirt.
    Reach,
    /// On the source: get the domain definition for the target, and lock the guest's definition until Confirm.
    Begin(Pass),
    /// On the target: start a QEMU that waits for incoming memory.
    Prepare(Pass),
    /// On the source: set the maximum downtime, in milliseconds.
    SetDowntime(u64),
    /// On the source: send disks and memory.
    Perform(Pass),
    /// On the source: read QEMU's statistics.
    Sample,
    /// On the source: switch to post-copy.
    StartPostCopy,
    /// On the source: pause the guest, so that nothing more changes.
    Suspend,
    /// On the source: abort the transfer. Not answered; repeated until Perform fails.
    AbortJob,
    /// On the target: run the guest, or, if `cancelled`, end QEMU.
    Finish { pass: Pass, cancelled: bool },
    /// On the target, over a new connection: read the domain's state.
    AskTarget,
    /// On the target: destroy a domain that never ran.
    DestroyThere,
    /// Leave a marker in the guest's own storage that it has left.
    LeaveMark,
    /// On the source: end the guest that has moved, or, if `cancelled`, resume it.
    Confirm { pass: Pass, cancelled: bool },
    /// On the source, over a new connection if necessary: read the domain's state.
    Look,
    /// On the source: resume the guest, whatever state libvirt is in.
    Resume,
    /// On the source: kill QEMU, whatever state libvirt is in.
    Destroy,
    /// Report progress.
    Report(Report),
    /// Log a warning.
    Warn(String),
    /// Nothing is left to do.
    End(Outcome),
}

#[derive(Debug, Clone, PartialEq)]
pub enum Report {
    Phase(MigrationPhase),
    Mode(MigrationMode),
    Progress(Progress),
}

/// How a migration ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The guest is on the target; nothing of it runs here.
    Moved,
    /// The guest is here, or has ended here by itself, or is lost in post-copy; with the reason.
    Stayed(String),
}

/// The options without post-copy, for another attempt.
pub(crate) fn without_post_copy(options: &MigrationOptions) -> MigrationOptions {
    MigrationOptions { allow_post_copy: false, ..options.clone() }
}
