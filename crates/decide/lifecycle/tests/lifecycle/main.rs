//! What a launcher does with its guest: tables of what is asked in which state, and properties of whole histories.

mod guest;
mod life;
mod properties;

use launcher_contract::migration::{MigrationPhase, MigrationRole, MigrationState};
use launcher_contract::types::{DomainReason, DomainState, DomainStatus};
use lifecycle::{Change, Guest};

/// A guest that reacts to ACPI and has no agent.
fn domain(status: DomainStatus, reason: DomainReason) -> DomainState {
    DomainState { status, reason, acpi: true, ..Default::default() }
}

fn migration(role: MigrationRole, phase: MigrationPhase) -> MigrationState {
    MigrationState { uid: "m".to_owned(), role, phase, ..Default::default() }
}

fn after(changes: &[Change]) -> Guest {
    let mut guest = Guest::default();
    changes.iter().for_each(|change| guest.on(*change));
    guest
}
