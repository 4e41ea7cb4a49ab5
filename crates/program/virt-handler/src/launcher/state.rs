//! Translates the launcher's state for the state machine. Destructured field by field, so that a new field cannot be
//! missed.

use api::v1::{MigrationAbortStatus, MigrationMode};
use launcher_contract::{migration as rpc_migration, types as rpc};

pub(super) fn translate(state: rpc::LauncherState) -> vmstate::LauncherState {
    let rpc::LauncherState {
        seq: _,
        domain,
        guest_agent,
        marked_for_graceful_shutdown,
        shutdown_requested_at,
        last_error: _, // the failed command has already reported it
        migration: moving,
        small_volumes,
        memory_dump,
    } = state;
    vmstate::LauncherState {
        domain,
        guest_agent,
        marked_for_graceful_shutdown,
        shutdown_requested_at,
        migration: moving.map(migration),
        small_volumes,
        memory_dump,
    }
}

fn migration(migration: rpc_migration::MigrationState) -> vmstate::Migration {
    use rpc_migration::{AbortState, MigrationMode as Mode};
    let rpc_migration::MigrationState {
        uid,
        role: _, // the VMI says which side it is
        phase,
        mode,
        started_at,
        ended_at,
        progress: _, // informational only; nothing is decided by it
        failure,
        abort,
    } = migration;
    vmstate::Migration {
        uid,
        phase,
        mode: match mode {
            Mode::PreCopy => Some(MigrationMode::PreCopy),
            Mode::PostCopy => Some(MigrationMode::PostCopy),
            Mode::Paused => Some(MigrationMode::Paused),
            Mode::Unknown => None,
        },
        started_at,
        ended_at,
        failure,
        abort: match abort {
            AbortState::None | AbortState::Unknown => None,
            AbortState::Aborting => Some(MigrationAbortStatus::Aborting),
            AbortState::Succeeded => Some(MigrationAbortStatus::Succeeded),
            AbortState::Failed => Some(MigrationAbortStatus::Failed),
        },
    }
}
