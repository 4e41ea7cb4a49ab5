//! Whether a guest can start to migrate.

use launcher_contract::migration::MigrationState;
use launcher_contract::types::{DomainReason, DomainState, DomainStatus, LauncherState};

/// Why a launcher does not start a migration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CannotStart {
    NoDomain,
    /// What the launcher or its guest does instead.
    WrongState(String),
}

/// Whether a launcher in this state starts the migration with this UID: each only once, and only with a guest that can move.
pub fn may_start(state: &LauncherState, uid: &str) -> Result<(), CannotStart> {
    let ended = |before: &MigrationState| before.uid == uid && before.phase.is_final();
    if state.migration.as_ref().is_some_and(ended) {
        let detail = format!("migration {uid} has ended; a new attempt needs a new migration");
        return Err(CannotStart::WrongState(detail));
    }
    match &state.domain {
        Some(domain) if can_move(domain) => Ok(()),
        Some(domain) => {
            let detail = format!("the guest is {:?} ({:?}) and cannot be migrated", domain.status, domain.reason);
            Err(CannotStart::WrongState(detail))
        }
        None => Err(CannotStart::NoDomain),
    }
}

fn can_move(domain: &DomainState) -> bool {
    match domain.status {
        DomainStatus::Running | DomainStatus::Blocked => true,
        DomainStatus::Paused => domain.reason == DomainReason::PausedUser,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use launcher_contract::migration::MigrationPhase;

    use super::*;

    fn state(status: DomainStatus, reason: DomainReason) -> LauncherState {
        let domain = Some(DomainState { status, reason, ..Default::default() });
        LauncherState { domain, ..Default::default() }
    }

    #[test]
    fn a_guest_moves_only_if_it_runs_or_its_user_has_paused_it() {
        use DomainReason as Reason;
        for (status, reason, moves) in [
            (DomainStatus::Running, Reason::Booted, true),
            (DomainStatus::Paused, Reason::PausedUser, true),
            (DomainStatus::Paused, Reason::PausedIOError, false),
            (DomainStatus::Paused, Reason::PausedPostcopyFailed, false),
            (DomainStatus::Shutoff, Reason::Migrated, false),
            (DomainStatus::Crashed, Reason::Panicked, false),
        ] {
            assert_eq!(may_start(&state(status, reason), "m").is_ok(), moves, "{status:?} {reason:?}");
        }
        assert_eq!(may_start(&LauncherState::default(), "m"), Err(CannotStart::NoDomain));
    }

    #[test]
    fn a_migration_that_has_ended_is_not_taken_up_again() {
        let mut state = state(DomainStatus::Running, DomainReason::Migrated);
        state.migration = Some(MigrationState { uid: "m".into(), phase: MigrationPhase::Failed, ..Default::default() });
        assert!(matches!(may_start(&state, "m"), Err(CannotStart::WrongState(_))));
        assert!(may_start(&state, "n").is_ok());
    }
}
