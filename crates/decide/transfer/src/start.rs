//! Whether a launcher does what it is told about a migration: send its guest, get ready for one, finish the arrival.

use launcher_contract::migration::{MigrationPhase, MigrationRole, MigrationState};
use launcher_contract::types::{DomainReason, DomainState, DomainStatus, LauncherState};

/// Why a launcher refuses a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    NoDomain,
    /// What the launcher or its guest does instead.
    WrongState(String),
}

/// What becomes of a request to start a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Departure {
    Starts,
    /// It has been started before.
    UnderWay,
}

/// Whether a launcher in this state starts the migration with this UID: one at a time, each only once, and only with a
/// guest that can move. `under_way` is the one it is executing.
pub fn may_start(state: &LauncherState, under_way: Option<&str>, uid: &str) -> Result<Departure, Refused> {
    match under_way {
        Some(same) if same == uid => return Ok(Departure::UnderWay),
        Some(_) => return Err(Refused::WrongState("another migration of this guest is in progress".to_owned())),
        None => {}
    }
    if state.migration.as_ref().is_some_and(|before| before.uid == uid && before.phase.is_final()) {
        return Err(has_ended(uid));
    }
    // The new migration would replace the one by which this launcher knows that the guest is not its own yet.
    if let Some(before) = state.migration.as_ref().filter(|before| awaits_guest(Some(before))) {
        return Err(not_arrived(&before.uid));
    }
    match &state.domain {
        Some(domain) if can_move(domain) => Ok(Departure::Starts),
        Some(domain) => {
            let detail = format!("the guest is {:?} ({:?}) and cannot be migrated", domain.status, domain.reason);
            Err(Refused::WrongState(detail))
        }
        None => Err(Refused::NoDomain),
    }
}

fn can_move(domain: &DomainState) -> bool {
    match domain.status {
        DomainStatus::Running | DomainStatus::Blocked => true,
        DomainStatus::Paused => domain.reason == DomainReason::PausedUser,
        _ => false,
    }
}

/// Whether a launcher with this migration gets ready to receive a guest by the one with this UID. A launcher is the
/// target of one migration only.
pub fn may_prepare(before: Option<&MigrationState>, uid: &str) -> Result<(), Refused> {
    match before {
        Some(before) if before.uid != uid => {
            let detail = format!("this virt-launcher serves migration {}, not {uid}", before.uid);
            Err(Refused::WrongState(detail))
        }
        Some(before) if before.phase.is_final() => Err(has_ended(uid)),
        _ => Ok(()),
    }
}

/// Whether a launcher with this migration is its target, and not all of the guest has arrived.
pub fn awaits_guest(migration: Option<&MigrationState>) -> bool {
    migration.is_some_and(|migration| {
        migration.role == MigrationRole::Target && migration.phase != MigrationPhase::Completed
    })
}

/// Whether the guest of the migration with this UID has arrived at the launcher that reports this one.
pub fn arrived(migration: Option<&MigrationState>, uid: &str) -> Result<(), Refused> {
    match migration {
        Some(migration) if migration.uid == uid && migration.phase == MigrationPhase::Completed => Ok(()),
        _ => Err(not_arrived(uid)),
    }
}

fn not_arrived(uid: &str) -> Refused {
    Refused::WrongState(format!("the guest of migration {uid} has not arrived"))
}

fn has_ended(uid: &str) -> Refused {
    Refused::WrongState(format!("migration {uid} has ended; a new attempt needs a new migration"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(status: DomainStatus, reason: DomainReason) -> LauncherState {
        let domain = Some(DomainState { status, reason, ..Default::default() });
        LauncherState { domain, ..Default::default() }
    }

    fn migration(uid: &str, role: MigrationRole, phase: MigrationPhase) -> MigrationState {
        MigrationState { uid: uid.to_owned(), role, phase, ..Default::default() }
    }

    fn refused(sentence: &str) -> Refused {
        Refused::WrongState(sentence.to_owned())
    }

    #[test]
    fn a_guest_moves_only_if_it_runs_or_its_user_has_paused_it() {
        use DomainReason as Reason;
        for (status, reason, moves) in [
            (DomainStatus::Running, Reason::Booted, true),
            (DomainStatus::Blocked, Reason::Booted, true),
            (DomainStatus::Paused, Reason::PausedUser, true),
            (DomainStatus::Paused, Reason::PausedIOError, false),
            (DomainStatus::Paused, Reason::PausedPostcopyFailed, false),
            (DomainStatus::Shutoff, Reason::Migrated, false),
            (DomainStatus::Crashed, Reason::Panicked, false),
        ] {
            assert_eq!(may_start(&state(status, reason), None, "m").is_ok(), moves, "{status:?} {reason:?}");
        }
        assert_eq!(may_start(&LauncherState::default(), None, "m"), Err(Refused::NoDomain));
    }

    #[test]
    fn one_migration_at_a_time_and_the_same_one_is_started_once() {
        let state = state(DomainStatus::Running, DomainReason::Booted);
        assert_eq!(may_start(&state, None, "m"), Ok(Departure::Starts));
        assert_eq!(may_start(&state, Some("m"), "m"), Ok(Departure::UnderWay));
        let other = refused("another migration of this guest is in progress");
        assert_eq!(may_start(&state, Some("n"), "m"), Err(other));
    }

    #[test]
    fn a_guest_does_not_leave_before_it_has_arrived() {
        use MigrationPhase::{Completed, Failed, Ready, Transferring};
        for (phase, moves) in [(Ready, false), (Transferring, false), (Failed, false), (Completed, true)] {
            let mut state = state(DomainStatus::Running, DomainReason::Migrated);
            state.migration = Some(migration("m", MigrationRole::Target, phase));
            assert_eq!(may_start(&state, None, "n").is_ok(), moves, "{phase:?}");
        }
    }

    #[test]
    fn a_migration_that_has_ended_is_not_taken_up_again() {
        for phase in [MigrationPhase::Failed, MigrationPhase::Completed] {
            let mut state = state(DomainStatus::Running, DomainReason::Migrated);
            state.migration = Some(migration("m", MigrationRole::Source, phase));
            let ended = refused("migration m has ended; a new attempt needs a new migration");
            assert_eq!(may_start(&state, None, "m"), Err(ended.clone()), "{phase:?}");
            assert_eq!(may_start(&state, None, "n"), Ok(Departure::Starts), "{phase:?}");
            assert_eq!(may_prepare(state.migration.as_ref(), "m"), Err(ended), "{phase:?}");
        }
    }

    #[test]
    fn a_target_is_there_for_one_migration_until_all_of_the_guest_has_arrived() {
        use MigrationPhase::{Completed, Failed, Ready, Transferring};
        use MigrationRole::{Source, Target};
        for (role, phase, prepares, awaits, has_arrived) in [
            (Target, Ready, true, true, false),
            (Target, Transferring, true, true, false),
            (Target, Completed, false, false, true),
            (Target, Failed, false, true, false),
            (Source, Transferring, true, false, false),
            (Source, Completed, false, false, true),
        ] {
            let known = migration("m", role, phase);
            assert_eq!(may_prepare(Some(&known), "m").is_ok(), prepares, "{known:?}");
            assert_eq!(awaits_guest(Some(&known)), awaits, "{known:?}");
            assert_eq!(arrived(Some(&known), "m").is_ok(), has_arrived, "{known:?}");
            let other = refused("this virt-launcher serves migration m, not n");
            assert_eq!(may_prepare(Some(&known), "n"), Err(other), "{known:?}");
            let not_arrived = refused("the guest of migration n has not arrived");
            assert_eq!(arrived(Some(&known), "n"), Err(not_arrived), "{known:?}");
        }
        assert_eq!((may_prepare(None, "m"), awaits_guest(None)), (Ok(()), false));
        assert!(arrived(None, "m").is_err());
    }
}
