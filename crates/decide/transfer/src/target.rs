//! The launcher that receives a guest: detects its arrival, and reports it once the source cannot resume the guest any
//! more.
//!
//! ```text
//!  Waiting ──► runs, libvirt has not answered the source yet (Starting) ──► Arrived
//!     │                     │ QEMU ends                                      ▲
//!     │                     └──────────────► Lost: the source still has it   │
//!     └──► runs on memory that is partly at the source (Fetching) ───────────┘
//! ```
//!
//! libvirt starts the guest before it answers the source. If QEMU dies in between, libvirt tells the source that the
//! guest does not run, and the source resumes its own. So a running guest does not belong to this launcher before
//! libvirt's incoming job is over. After that the answer may still get lost; then the source queries the target, and
//! learns that the guest runs here.

use launcher_contract::migration::{MigrationMode, MigrationPhase};
use launcher_contract::types::{DomainReason as Reason, DomainStatus as Status};

use crate::event::Domain;
use crate::word::ended_by_itself;

/// What the launcher observes of the domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// `None` if there is no such domain.
    pub domain: Option<Domain>,
    /// libvirt's incoming job is not over, or cannot be queried.
    pub receiving: bool,
}

/// What the launcher has to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Note {
    /// QEMU has run the guest, whatever happened to it since.
    Started,
    /// Post-copy: the guest runs here and fetches its memory.
    Fetches,
    /// All of the guest is here.
    Completed,
    /// The guest was here, or nearly, and has ended.
    Failed,
}

impl Note {
    /// The migration's phase from now on, if it changes.
    pub fn phase(self) -> Option<MigrationPhase> {
        match self {
            Note::Started => None,
            Note::Fetches => Some(MigrationPhase::Transferring),
            Note::Completed => Some(MigrationPhase::Completed),
            Note::Failed => Some(MigrationPhase::Failed),
        }
    }

    /// The migration's mode from now on, if it changes.
    pub fn mode(self) -> Option<MigrationMode> {
        (self == Note::Fetches).then_some(MigrationMode::PostCopy)
    }
}

/// See the module documentation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Target {
    /// Nothing runs here.
    #[default]
    Waiting,
    /// The guest runs here, and the source has not got its answer yet.
    Starting,
    /// Post-copy: the guest runs here while part of its memory is on the source.
    Fetching,
    /// It has arrived completely.
    Arrived,
    /// It ended before it had arrived.
    Lost,
}

/// What a domain's state means for the arrival.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// It does not run here: nothing has arrived, or memory is still being transferred.
    Away,
    /// It runs here while part of its memory is on the source.
    PostCopy,
    /// It runs here.
    Here,
    /// It was here and has ended.
    Over,
}

impl Target {
    /// Whether the state is final.
    pub fn is_over(self) -> bool {
        matches!(self, Target::Arrived | Target::Lost)
    }

    /// Whether the next state depends on libvirt's incoming job.
    pub fn asks_for_job(self, domain: Option<Domain>) -> bool {
        matches!(self, Target::Waiting | Target::Starting) && arrival(domain, false) == Arrival::Here
    }

    /// Handles one observation of the domain and returns what to report.
    pub fn on(&mut self, seen: Seen) -> Vec<Note> {
        let (next, notes): (Target, &[Note]) = match (*self, arrival(seen.domain, *self != Target::Waiting)) {
            (Target::Waiting, Arrival::PostCopy) => (Target::Fetching, &[Note::Started, Note::Fetches]),
            (Target::Waiting, Arrival::Here) if seen.receiving => (Target::Starting, &[Note::Started]),
            (Target::Waiting, Arrival::Here) => (Target::Arrived, &[Note::Started, Note::Completed]),
            (Target::Waiting, Arrival::Over) => (Target::Lost, &[Note::Started, Note::Failed]),
            (Target::Starting, Arrival::PostCopy) => (Target::Fetching, &[Note::Fetches]),
            (Target::Starting, Arrival::Here) if !seen.receiving => (Target::Arrived, &[Note::Completed]),
            (Target::Fetching, Arrival::Here) => (Target::Arrived, &[Note::Completed]),
            (Target::Starting | Target::Fetching, Arrival::Over) => (Target::Lost, &[Note::Failed]),
            (same, _) => (same, &[]),
        };
        *self = next;
        notes.to_vec()
    }
}

/// `begun`: the guest has run here.
fn arrival(domain: Option<Domain>, begun: bool) -> Arrival {
    let Some(domain) = domain else { return if begun { Arrival::Over } else { Arrival::Away } };
    match domain {
        (Status::Running | Status::Blocked, Reason::Postcopy | Reason::PostcopyFailed)
        | (Status::Paused, Reason::PausedPostcopy | Reason::PausedPostcopyFailed) => Arrival::PostCopy,
        (Status::Running | Status::Blocked, _) => Arrival::Here,
        // libvirt reports a guest that was migrated while paused as paused by its user.
        (Status::Paused, Reason::PausedUser | Reason::PausedIOError) => Arrival::Here,
        // It may have come and gone between two observations.
        (Status::Shutoff | Status::Crashed, Reason::Crashed) => Arrival::Over,
        (Status::Shutoff | Status::Crashed, _) if begun || ended_by_itself(domain) => Arrival::Over,
        _ => Arrival::Away,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_arrived_when_it_runs_and_not_before() {
        use Arrival::*;
        use Status::*;
        for (status, reason, expected) in [
            (Paused, Reason::PausedMigration, Away),
            (Paused, Reason::PausedStartingUp, Away),
            (Paused, Reason::Unknown, Away),
            (Shutoff, Reason::Unknown, Away),
            (Shutoff, Reason::Failed, Away),
            (Shutoff, Reason::Crashed, Over),
            (Running, Reason::Postcopy, PostCopy),
            (Running, Reason::PostcopyFailed, PostCopy),
            (Running, Reason::Migrated, Here),
            (Paused, Reason::PausedUser, Here),
        ] {
            assert_eq!(arrival(Some((status, reason)), false), expected, "{status:?} {reason:?}");
        }
    }

    fn seen(domain: Domain, receiving: bool) -> Seen {
        Seen { domain: Some(domain), receiving }
    }

    #[test]
    fn a_guest_is_the_targets_once_libvirt_has_answered_the_source() {
        let mut target = Target::default();
        let runs = (Status::Running, Reason::Migrated);
        assert_eq!(target.on(seen((Status::Paused, Reason::PausedMigration), true)), []);
        assert_eq!(target.on(seen(runs, true)), [Note::Started]);
        assert_eq!(target.on(seen(runs, true)), []);
        assert_eq!(target.on(seen(runs, false)), [Note::Completed]);
        assert_eq!((target.on(seen(runs, false)), target), (vec![], Target::Arrived));
    }

    #[test]
    fn a_guest_whose_qemu_dies_before_that_has_not_arrived() {
        for end in [None, Some((Status::Shutoff, Reason::Crashed)), Some((Status::Shutoff, Reason::Failed))] {
            let mut target = Target::default();
            target.on(seen((Status::Running, Reason::Migrated), true));
            assert_eq!(target.on(Seen { domain: end, receiving: false }), [Note::Failed], "{end:?}");
            assert_eq!(target, Target::Lost);
        }
    }

    #[test]
    fn only_a_note_of_the_end_ends_the_migration() {
        use MigrationPhase::{Completed, Failed, Transferring};
        for (note, phase, mode) in [
            (Note::Started, None, None),
            (Note::Fetches, Some(Transferring), Some(MigrationMode::PostCopy)),
            (Note::Completed, Some(Completed), None),
            (Note::Failed, Some(Failed), None),
        ] {
            assert_eq!((note.phase(), note.mode()), (phase, mode), "{note:?}");
        }
    }

    #[test]
    fn post_copy_does_not_wait_for_libvirt() {
        let mut target = Target::default();
        assert_eq!(target.on(seen((Status::Running, Reason::Postcopy), true)), [Note::Started, Note::Fetches]);
        assert_eq!(target.on(seen((Status::Paused, Reason::PausedPostcopyFailed), true)), []);
        assert_eq!(target.on(seen((Status::Running, Reason::Migrated), true)), [Note::Completed]);
    }
}
