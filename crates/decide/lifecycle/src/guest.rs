//! What a launcher does with its guest when virt-handler asks for something.
//!
//! ```text
//!             sync                  guest or kill                delete
//!   nothing ───────► Running/Paused ───────────────► Shutoff ───────────► gone
//!                       ▲  │ pause, unpause, IO error
//!                       └──┘ sync resumes what no user paused
//! ```

use api::conditions::PAUSED;
use api::reasons::PAUSED_BY_USER;
use api::v1::VirtualMachineInstance;
use launcher_contract::migration::MigrationState;
use launcher_contract::types::{Command, DomainReason, DomainState, DomainStatus, LauncherState};
use transfer::Refused;

const ELSEWHERE: &str = "virt-launcher waits for an incoming migration";

/// What the launcher remembers of its guest; libvirt knows the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Guest {
    /// QEMU has run it here, whatever happened to it since.
    started: bool,
    /// Its domain was deleted on request: nothing is to run here any more.
    deleted: bool,
    /// It is paused, or starts paused, because its user wants it.
    paused_by_user: bool,
}

/// What a decision is based on.
#[derive(Debug, Clone, Copy, Default)]
pub struct Facts<'a> {
    /// As libvirt reports it; `None` if there is no such domain.
    pub domain: Option<&'a DomainState>,
    /// The current or last migration of this launcher.
    pub migration: Option<&'a MigrationState>,
    /// The guest is being sent to another launcher. Until that is over, only the migration pauses and resumes it.
    pub sending: bool,
}

impl<'a> Facts<'a> {
    pub fn of(state: &'a LauncherState, sending: bool) -> Facts<'a> {
        Facts { domain: state.domain.as_ref(), migration: state.migration.as_ref(), sending }
    }

    fn awaits_guest(&self) -> bool {
        transfer::awaits_guest(self.migration)
    }
}

/// What a sync does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sync {
    /// Prepare disks and network, define the domain and start it.
    Start,
    /// Let the guest go on, with the disks of its VMI.
    Resume,
    /// Let the guest have the disks of its VMI, and no others.
    Adjust,
    /// The guest is not to be touched, because of this.
    Nothing(&'static str),
}

/// How a launcher becomes the target of a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Receive {
    /// Prepare disks and network, and watch for the guest.
    Prepare,
    /// Prepare what is missing; the guest is watched for already.
    Again,
}

/// What a command does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Suspend,
    Resume,
    /// The guest is paused, or runs, already. From now on it does because its user wants it.
    Keep {
        paused: bool,
    },
    Reset,
    /// Through the guest agent, or else through ACPI.
    Reboot {
        agent: bool,
    },
    /// Through ACPI, or else as libvirt can.
    Shutdown {
        acpi: bool,
    },
    /// `graceful`: give QEMU the chance to exit by itself first.
    Destroy {
        graceful: bool,
    },
    /// Forget the domain, if there is one. The launcher's work is done.
    Undefine,
    /// Because of this.
    Nothing(&'static str),
}

/// A change that the launcher remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// libvirt has started the guest for a sync.
    Started {
        paused: bool,
    },
    /// Disks and network are ready to receive it.
    Expected {
        paused: bool,
    },
    /// QEMU has run a guest that was received.
    Arrived,
    Paused,
    Resumed,
    Deleted,
}

impl Act {
    /// What has changed when the call has succeeded.
    pub fn change(self) -> Option<Change> {
        match self {
            Act::Suspend | Act::Keep { paused: true } => Some(Change::Paused),
            Act::Resume | Act::Keep { paused: false } => Some(Change::Resumed),
            Act::Undefine => Some(Change::Deleted),
            Act::Reset | Act::Reboot { .. } | Act::Shutdown { .. } | Act::Destroy { .. } | Act::Nothing(_) => None,
        }
    }
}

impl Guest {
    /// Whether QEMU has run the guest here, or nothing is to run here any more.
    pub fn has_started(self) -> bool {
        self.started || self.deleted
    }

    pub fn on(&mut self, event: Change) {
        match event {
            Change::Started { paused } => (self.started, self.paused_by_user) = (true, paused),
            Change::Expected { paused } => self.paused_by_user = paused,
            Change::Arrived => self.started = true,
            Change::Deleted => self.deleted = true,
            Change::Paused => self.paused_by_user = true,
            Change::Resumed => self.paused_by_user = false,
        }
    }

    /// Starts the guest, once; resumes it if it is paused but no user paused it; and adjusts its devices.
    pub fn sync(self, facts: Facts<'_>) -> Result<Sync, Refused> {
        if facts.awaits_guest() {
            return refuse(ELSEWHERE);
        }
        if !self.has_started() {
            return Ok(Sync::Start);
        }
        match facts.domain {
            None => refuse("virt-launcher's domain was deleted"),
            Some(domain) if domain.is_down() => refuse("virt-launcher's guest has ended"),
            // libvirt refuses to change its devices, and only the migration resumes it.
            Some(_) if facts.sending => Ok(Sync::Nothing("it is being migrated")),
            Some(domain) if stands_still(domain) && !self.paused_by_user => Ok(Sync::Resume),
            Some(domain) if takes_devices(domain) => Ok(Sync::Adjust),
            Some(_) => Ok(Sync::Nothing("it is saved, migrated or shut down")),
        }
    }

    /// Whether the guest's memory can be dumped now.
    pub fn dump(self, facts: Facts<'_>) -> Result<(), Refused> {
        not_moving(facts.sending)?;
        match facts.domain.ok_or(Refused::NoDomain)?.status {
            DomainStatus::Running | DomainStatus::Paused if self.started => Ok(()),
            status => refuse(format!("the guest is {status:?} and its memory cannot be dumped")),
        }
    }

    /// Makes the launcher the target of the migration with this UID. Idempotent until the guest arrives.
    pub fn receive(self, migration_uid: &str, facts: Facts<'_>) -> Result<Receive, Refused> {
        transfer::may_prepare(facts.migration, migration_uid)?;
        let again = facts.awaits_guest();
        if self.has_started() || (facts.domain.is_some() && !again) {
            return refuse("virt-launcher already has a guest");
        }
        Ok(if again { Receive::Again } else { Receive::Prepare })
    }

    pub fn command(self, command: Command, facts: Facts<'_>) -> Result<Act, Refused> {
        match command {
            Command::Pause => pause(facts),
            Command::Unpause => self.unpause(facts),
            // Whatever state the guest is in: libvirt refuses what it cannot reset.
            Command::Reset => Ok(Act::Reset),
            Command::SoftReboot => soft_reboot(facts.domain),
            Command::Shutdown => shutdown(facts.domain),
            // Always, even while a start hangs. In post-copy QEMU's main loop may be blocked on memory from a source
            // that is gone.
            Command::Kill => Ok(Act::Destroy { graceful: !facts.domain.is_some_and(is_in_post_copy) }),
            Command::Delete if facts.domain.is_some_and(|domain| !domain.is_down()) => {
                refuse("the guest still runs; kill it first")
            }
            Command::Delete => Ok(Act::Undefine),
        }
    }

    fn unpause(self, facts: Facts<'_>) -> Result<Act, Refused> {
        not_moving(facts.sending)?;
        match facts.domain.ok_or(Refused::NoDomain)?.status {
            // What stands here is a QEMU that waits for memory.
            DomainStatus::Paused if facts.awaits_guest() && !self.started => refuse(ELSEWHERE),
            DomainStatus::Paused => Ok(Act::Resume),
            DomainStatus::Running => Ok(Act::Keep { paused: false }),
            status => refuse(format!("the guest is {status:?} and cannot be unpaused")),
        }
    }
}

fn refuse<T>(because: impl Into<String>) -> Result<T, Refused> {
    Err(Refused::WrongState(because.into()))
}

/// A guest that is being migrated must not be paused or resumed by anybody else.
pub fn not_moving(sending: bool) -> Result<(), Refused> {
    match sending {
        true => refuse("the guest is being migrated; wait for it or abort the migration"),
        false => Ok(()),
    }
}

fn pause(facts: Facts<'_>) -> Result<Act, Refused> {
    not_moving(facts.sending)?;
    match facts.domain.ok_or(Refused::NoDomain)?.status {
        DomainStatus::Running => Ok(Act::Suspend),
        // Also after an I/O error: from now on it stays paused because the user wants it.
        DomainStatus::Paused => Ok(Act::Keep { paused: true }),
        status => refuse(format!("the guest is {status:?} and cannot be paused")),
    }
}

fn soft_reboot(domain: Option<&DomainState>) -> Result<Act, Refused> {
    let domain = domain.ok_or(Refused::NoDomain)?;
    match (domain.agent_connected, domain.acpi) {
        (true, _) => Ok(Act::Reboot { agent: true }),
        (false, true) => Ok(Act::Reboot { agent: false }),
        (false, false) => refuse("guest has neither guest agent nor ACPI; use reset"),
    }
}

fn shutdown(domain: Option<&DomainState>) -> Result<Act, Refused> {
    let domain = domain.ok_or(Refused::NoDomain)?;
    match domain.status {
        DomainStatus::Running | DomainStatus::Paused => Ok(Act::Shutdown { acpi: domain.acpi }),
        _ => Ok(Act::Nothing("guest is already shutting down or shut down")),
    }
}

fn is_in_post_copy(domain: &DomainState) -> bool {
    use DomainReason::{PausedPostcopy, PausedPostcopyFailed, Postcopy, PostcopyFailed};
    matches!(domain.reason, Postcopy | PostcopyFailed | PausedPostcopy | PausedPostcopyFailed)
}

/// Whether resuming the guest would help. A guest that is being saved or migrated belongs to that job.
fn stands_still(domain: &DomainState) -> bool {
    domain.status == DomainStatus::Paused
        && matches!(
            domain.reason,
            DomainReason::PausedUser
                | DomainReason::PausedIOError
                | DomainReason::PausedWatchdog
                | DomainReason::PausedStartingUp
                | DomainReason::Unknown
        )
}

/// Whether devices can be plugged into the guest. One that is paused sees them when it goes on.
fn takes_devices(domain: &DomainState) -> bool {
    match domain.status {
        DomainStatus::Running | DomainStatus::Blocked | DomainStatus::PMSuspended => !is_in_post_copy(domain),
        DomainStatus::Paused => stands_still(domain),
        DomainStatus::Shutdown
        | DomainStatus::Shutoff
        | DomainStatus::Crashed
        | DomainStatus::NoState
        | DomainStatus::Unknown => false,
    }
}

/// libvirt's answer to the call that starts a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    Done,
    /// The call had no effect.
    Refused,
    /// No answer came: the daemon may have died after QEMU was up.
    Lost,
}

/// Whether the guest has been started. `domain` was read after the answer.
pub fn has_started(answer: Answer, domain: Option<&DomainState>) -> bool {
    match answer {
        Answer::Done => true,
        Answer::Refused => false,
        Answer::Lost => domain.is_some_and(|domain| !domain.is_down()),
    }
}

/// Whether a guest that is started for this VMI starts paused.
pub fn starts_paused(vmi: &VirtualMachineInstance) -> bool {
    vmi.spec.start_strategy.as_deref() == Some("Paused")
}

/// Whether a guest that arrives for this VMI stays paused.
pub fn arrives_paused(vmi: &VirtualMachineInstance) -> bool {
    vmi.condition(PAUSED).is_some_and(|paused| paused.reason.as_deref() == Some(PAUSED_BY_USER))
}
