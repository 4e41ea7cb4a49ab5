//! Whatever is asked and whatever happens, in whatever order.

use launcher_contract::migration::{MigrationPhase, MigrationRole, MigrationState};
use launcher_contract::types::{Command, DomainReason as Reason, DomainState, DomainStatus as Status, LauncherState};
use lifecycle::{Act, Answer, Change, Facts, Guest, Receive, Sync, has_started};
use proptest::prelude::*;
use proptest::sample::select;
use transfer::Departure;

use crate::{domain, migration};

#[derive(Debug, Clone, Copy)]
enum Turn {
    /// A sync, whose start libvirt answers like this, whether or not QEMU is up then.
    Sync {
        answer: Answer,
        up: bool,
        paused: bool,
    },
    Prepare,
    Command {
        command: Command,
        works: bool,
    },
    /// The guest ends, or stands still.
    Domain(Status, Reason),
    /// A migration from here begins, stops the guest here, and ends.
    Leaves,
    StopsToLeave(Reason),
    HasLeft,
    Stays {
        resumed: bool,
    },
    /// A migration to here brings a QEMU, starts the guest, and ends. The launcher notices the start later.
    Comes(Reason),
    Runs {
        fetches: bool,
    },
    Noticed,
    HasCome,
    StaysAway,
}

fn turn() -> impl Strategy<Value = Turn> {
    let pauses = select(vec![
        Reason::PausedMigration,
        Reason::PausedPostcopy,
        Reason::PausedUser,
        Reason::PausedIOError,
        Reason::PausedStartingUp,
        Reason::Unknown,
    ]);
    let ends = select(vec![
        (Status::Shutoff, Reason::Shutdown),
        (Status::Shutoff, Reason::Crashed),
        (Status::Crashed, Reason::Panicked),
        (Status::Shutdown, Reason::User),
        (Status::Paused, Reason::PausedIOError),
        (Status::Paused, Reason::PausedUser),
        (Status::Paused, Reason::Unknown),
    ]);
    let answers = select(vec![Answer::Done, Answer::Refused, Answer::Lost]);
    prop_oneof![
        6 => (answers, any::<bool>(), any::<bool>()).prop_map(|(answer, up, paused)| Turn::Sync { answer, up, paused }),
        2 => Just(Turn::Prepare),
        6 => (select(Command::ALL.to_vec()), any::<bool>()).prop_map(|(command, works)| Turn::Command { command, works }),
        2 => ends.prop_map(|(status, reason)| Turn::Domain(status, reason)),
        2 => Just(Turn::Leaves),
        2 => pauses.clone().prop_map(Turn::StopsToLeave),
        1 => Just(Turn::HasLeft),
        1 => any::<bool>().prop_map(|resumed| Turn::Stays { resumed }),
        2 => pauses.prop_map(Turn::Comes),
        2 => any::<bool>().prop_map(|fetches| Turn::Runs { fetches }),
        2 => Just(Turn::Noticed),
        1 => Just(Turn::HasCome),
        1 => Just(Turn::StaysAway),
    ]
}

/// Where the guest runs, or may be running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Nobody has started it.
    Nowhere,
    Here,
    Elsewhere,
}

/// A launcher under observation, with its libvirt.
#[derive(Debug)]
struct Pod {
    guest: Guest,
    domain: Option<DomainState>,
    migration: Option<MigrationState>,
    sending: bool,
    place: Place,
    /// How often QEMU has started to run the guest here.
    starts: u32,
    deleted: bool,
}

impl Pod {
    fn new() -> Pod {
        let (guest, place) = (Guest::default(), Place::Nowhere);
        Pod { guest, domain: None, migration: None, sending: false, place, starts: 0, deleted: false }
    }

    fn facts(&self) -> Facts<'_> {
        Facts { domain: self.domain.as_ref(), migration: self.migration.as_ref(), sending: self.sending }
    }

    fn is_up(&self) -> bool {
        self.domain.as_ref().is_some_and(|domain| !domain.is_down())
    }

    fn shows(&mut self, status: Status, reason: Reason) {
        self.domain = Some(domain(status, reason));
    }

    fn phase(&self) -> Option<(MigrationRole, MigrationPhase)> {
        self.migration.as_ref().map(|migration| (migration.role, migration.phase))
    }

    fn turn(&mut self, turn: Turn) -> Result<(), TestCaseError> {
        use MigrationPhase::{Completed, Failed, Ready, Transferring};
        use MigrationRole::Target;
        let expected = matches!(self.phase(), Some((Target, Ready | Transferring)));
        match turn {
            Turn::Sync { answer, up, paused } => self.sync(answer, up, paused)?,
            Turn::Command { command, works } => self.command(command, works)?,
            Turn::Prepare => {
                if self.guest.receive("m", self.facts()) == Ok(Receive::Prepare) {
                    prop_assert_eq!(self.place, Place::Nowhere, "a launcher with a guest receives another one");
                    self.guest.on(Change::Expected { paused: false });
                    (self.migration, self.place) = (Some(migration(Target, Ready)), Place::Elsewhere);
                }
            }
            Turn::Domain(status, reason) if self.is_up() && self.place == Place::Here => self.shows(status, reason),
            Turn::Leaves if !self.sending && self.place == Place::Here => {
                let (domain, migration) = (self.domain.clone(), self.migration.clone());
                let state = LauncherState { domain, migration, ..LauncherState::default() };
                if transfer::may_start(&state, None, "out") == Ok(Departure::Starts) {
                    let leaving = migration_out(Transferring);
                    (self.migration, self.sending) = (Some(leaving), true);
                }
            }
            Turn::StopsToLeave(reason) if self.sending && self.is_up() => {
                self.shows(Status::Paused, reason);
                self.place = Place::Elsewhere;
            }
            Turn::HasLeft if self.sending && self.place == Place::Elsewhere => {
                self.shows(Status::Shutoff, Reason::Migrated);
                (self.migration, self.sending) = (Some(migration_out(Completed)), false);
            }
            Turn::Stays { resumed } if self.sending => {
                if resumed && self.is_up() {
                    self.shows(Status::Running, Reason::MigrationCanceled);
                }
                (self.migration, self.sending, self.place) = (Some(migration_out(Failed)), false, Place::Here);
            }
            Turn::Comes(reason) if expected && self.place == Place::Elsewhere => self.shows(Status::Paused, reason),
            Turn::Runs { fetches } if expected && self.is_up() && self.place == Place::Elsewhere => {
                self.shows(Status::Running, if fetches { Reason::Postcopy } else { Reason::Migrated });
                self.place = Place::Here;
                self.starts += 1;
            }
            Turn::Noticed if expected && self.place == Place::Here => {
                self.guest.on(Change::Arrived);
                self.migration = Some(migration(Target, Transferring));
            }
            Turn::HasCome if self.phase() == Some((Target, Transferring)) => {
                self.migration = Some(migration(Target, Completed));
            }
            Turn::StaysAway if expected && self.place == Place::Elsewhere => {
                self.migration = Some(migration(Target, Failed));
            }
            Turn::Domain(..) | Turn::Leaves | Turn::StopsToLeave(_) | Turn::HasLeft | Turn::Stays { .. } => {}
            Turn::Comes(_) | Turn::Runs { .. } | Turn::Noticed | Turn::HasCome | Turn::StaysAway => {}
        }
        prop_assert!(self.starts <= 1, "started {} times", self.starts);
        Ok(())
    }

    fn sync(&mut self, answer: Answer, up: bool, paused: bool) -> Result<(), TestCaseError> {
        match self.guest.sync(self.facts()) {
            Ok(Sync::Start) => {
                prop_assert_eq!(self.place, Place::Nowhere, "started, though it runs or has run");
                prop_assert!(!self.deleted, "started after its domain was deleted");
                let up = answer == Answer::Done || (answer == Answer::Lost && up);
                match (up, paused) {
                    (true, true) => self.shows(Status::Paused, Reason::PausedUser),
                    (true, false) => self.shows(Status::Running, Reason::Booted),
                    (false, _) => self.shows(Status::Shutoff, Reason::Unknown),
                }
                if up {
                    self.starts += 1;
                    self.place = Place::Here;
                }
                if has_started(answer, self.domain.as_ref()) {
                    self.guest.on(Change::Started { paused });
                }
            }
            Ok(Sync::Resume) => self.resumes()?,
            Ok(Sync::Adjust) => {
                prop_assert_eq!(self.place, Place::Here, "adjusted where it does not run");
            }
            Ok(Sync::Nothing(_)) | Err(_) => {}
        }
        Ok(())
    }

    fn resumes(&mut self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.place, Place::Here, "resumed, though it runs elsewhere");
        prop_assert!(!self.sending, "resumed in the middle of a migration");
        prop_assert!(self.is_up(), "resumed, though it has ended");
        self.shows(Status::Running, Reason::Unpaused);
        Ok(())
    }

    fn command(&mut self, command: Command, works: bool) -> Result<(), TestCaseError> {
        let Ok(act) = self.guest.command(command, self.facts()) else { return Ok(()) };
        if !works {
            return Ok(());
        }
        match act {
            Act::Suspend => self.shows(Status::Paused, Reason::PausedUser),
            Act::Resume => self.resumes()?,
            Act::Destroy { .. } if self.is_up() => self.shows(Status::Shutoff, Reason::Destroyed),
            Act::Undefine => {
                prop_assert!(!self.is_up(), "deleted while it runs");
                (self.domain, self.deleted) = (None, true);
            }
            Act::Keep { .. } | Act::Reset | Act::Reboot { .. } | Act::Shutdown { .. } => {}
            Act::Destroy { .. } | Act::Nothing(_) => {}
        }
        if let Some(change) = act.change() {
            self.guest.on(change);
        }
        Ok(())
    }
}

fn migration_out(phase: MigrationPhase) -> MigrationState {
    MigrationState { uid: "out".to_owned(), ..migration(MigrationRole::Source, phase) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_guest_is_started_once_and_never_started_or_resumed_while_it_runs_elsewhere(
        turns in prop::collection::vec(turn(), 0..50),
    ) {
        let mut pod = Pod::new();
        for turn in turns {
            pod.turn(turn)?;
        }
    }

    /// The same from the facts alone, even those that no history leads to.
    #[test]
    fn nothing_starts_or_resumes_at_a_waiting_target_or_in_the_middle_of_a_migration(
        status in select(vec![Status::Running, Status::Paused, Status::Shutoff, Status::Unknown]),
        reason in select(vec![Reason::PausedUser, Reason::PausedMigration, Reason::PausedIOError, Reason::Unknown]),
        exists: bool,
        phase in select(vec![MigrationPhase::Ready, MigrationPhase::Transferring, MigrationPhase::Failed]),
        held: bool,
        command in select(Command::ALL.to_vec()),
    ) {
        let domain = exists.then(|| domain(status, reason));
        let waiting = migration(MigrationRole::Target, phase);
        let guest = crate::after(&[Change::Expected { paused: held }]);
        let facts = Facts { domain: domain.as_ref(), migration: Some(&waiting), sending: false };
        prop_assert!(guest.sync(facts).is_err());
        prop_assert_ne!(guest.command(command, facts), Ok(Act::Resume));

        let guest = crate::after(&[Change::Started { paused: held }]);
        let facts = Facts { domain: domain.as_ref(), migration: None, sending: true };
        prop_assert!(!matches!(guest.sync(facts), Ok(Sync::Start | Sync::Resume)));
        prop_assert_ne!(guest.command(command, facts), Ok(Act::Resume));
    }
}
