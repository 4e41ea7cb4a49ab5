//! What the source's launcher is told, and what it is told to do.

use launcher_contract::migration::{MigrationMode, MigrationOptions, MigrationPhase, Progress};
use launcher_contract::types::{DomainReason, DomainStatus};

/// A domain's state, as libvirt says it.
pub type Domain = (DomainStatus, DomainReason);

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub how: How,
    /// What was done, to what, and why it failed.
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// The daemon answered: it has not done it.
    Refused,
    /// The daemon answered: QEMU may not fetch memory on demand in this Pod or the other one.
    NoPostCopy,
    /// No answer came. Whether the call took effect is not known.
    Lost,
}

/// The flags that differ between two passes through libvirt's protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pass {
    /// QEMU is to be ready for post-copy.
    pub post_copy: bool,
    /// The rest of a post-copy whose connection broke is sent.
    pub resumes: bool,
}

/// What the launcher was answered, or heard.
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
    /// [`Command::Sample`]; none if there are no figures.
    Sampled(Option<Progress>),
    /// [`Command::StartPostCopy`] or [`Command::Suspend`]
    Switched(Result<(), Failure>),
    /// [`Command::Finish`]
    Finished(Result<(), Failure>),
    /// [`Command::AskTarget`]; none if the target has no such domain.
    There(Result<Option<Domain>, Failure>),
    /// [`Command::DestroyThere`]
    DestroyedThere(Result<(), Failure>),
    /// [`Command::LeaveMark`], whether it could be left or not.
    Marked,
    /// [`Command::Confirm`]
    Confirmed(Result<(), Failure>),
    /// [`Command::Look`]; none if the domain is gone.
    Here(Result<Option<Domain>, Failure>),
    /// [`Command::Resume`] or [`Command::Destroy`]
    Done(Result<(), Failure>),
    /// Somebody asks for the end of the transfer.
    AbortAsked,
    /// The node agent says whether the guest is the target's, as the target's node has written it into the VMI.
    Settled(bool),
    /// The time of [`Source::wakes_at`](crate::Source::wakes_at) has come.
    Tick,
}

/// What the launcher does next. A call is answered by its event.
#[derive(Debug, Clone, PartialEq)]
pub enum Command {
    /// Connect to the target's libvirt.
    Reach,
    /// At the source: ask for the domain that the target has to make, and hold the guest's definition until Confirm.
    Begin(Pass),
    /// At the target: start a QEMU that waits for memory.
    Prepare(Pass),
    /// At the source: allow this much downtime, in milliseconds.
    SetDowntime(u64),
    /// At the source: send disks and memory.
    Perform(Pass),
    /// At the source: read QEMU's figures.
    Sample,
    /// At the source: have the target run the guest now and fetch what it lacks.
    StartPostCopy,
    /// At the source: stop the guest, so that nothing more changes.
    Suspend,
    /// At the source: end the transfer. Not answered; repeated until Perform fails.
    AbortJob,
    /// At the target: run the guest, or, if `cancelled`, end QEMU.
    Finish { pass: Pass, cancelled: bool },
    /// At the target, over a new connection: read the domain's state.
    AskTarget,
    /// At the target: end a domain that never got to run.
    DestroyThere,
    /// Note in the guest's own storage that it has left.
    LeaveMark,
    /// At the source: end the guest that has moved, or, if `cancelled`, let it go on.
    Confirm { pass: Pass, cancelled: bool },
    /// At the source, over a new connection if need be: read the domain's state.
    Look,
    /// At the source: run the guest again, whatever state libvirt is in.
    Resume,
    /// At the source: end QEMU, whatever state libvirt is in.
    Destroy,
    /// Show how it goes.
    Report(Report),
    /// Write to the log what is worth a human's attention.
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
    /// The guest is at the target; nothing of it runs here.
    Moved,
    /// The guest is here, or has ended here by itself, or is lost in post-copy; and why.
    Stayed(String),
}

/// The options without post-copy, for another pass.
pub(crate) fn without_post_copy(options: &MigrationOptions) -> MigrationOptions {
    MigrationOptions { allow_post_copy: false, ..options.clone() }
}
