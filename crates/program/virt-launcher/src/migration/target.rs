//! The target of a migration: gets ready, and notices when the guest has come.

use launcher_contract::Channel;
use launcher_contract::migration::{MigrationMode, MigrationPhase, MigrationRole, MigrationState};
use launcher_contract::types::{DomainReason, DomainState, DomainStatus, LauncherState};
use tokio::sync::watch;

use super::{Sockets, recovery};
use crate::error::Error;
use crate::state::StateStore;

#[derive(Clone)]
pub(crate) struct Target {
    state: StateStore,
    sockets: Sockets,
}

impl Target {
    pub(crate) fn new(state: StateStore, sockets: Sockets) -> Target {
        Target { state, sockets }
    }

    /// Whether this launcher was made to take a guest over, and its own guest has not come yet.
    pub(crate) fn is_waiting(&self) -> bool {
        self.state.get().migration.is_some_and(|migration| {
            migration.role == MigrationRole::Target && migration.phase != MigrationPhase::Completed
        })
    }

    pub(crate) fn may_prepare(&self, uid: &str) -> Result<(), Error> {
        match self.state.get().migration {
            Some(before) if before.uid != uid => {
                Err(Error::WrongState(format!("this launcher is there for migration {}, not {uid}", before.uid)))
            }
            Some(before) if before.phase.is_final() => {
                Err(Error::WrongState(format!("migration {uid} has ended; a new attempt needs a new migration")))
            }
            _ => Ok(()),
        }
    }

    /// Disks and network are there: makes the directory of the sockets and says that the guest may come.
    pub(crate) fn ready(&self, uid: &str) -> Result<(), Error> {
        if self.is_waiting() {
            return Ok(());
        }
        let dir = self.sockets.dir();
        std::fs::create_dir_all(dir)
            .map_err(|source| Error::System { action: format!("make {}", dir.display()), source })?;
        for channel in [Channel::Memory, Channel::Disks] {
            let file = self.sockets.channel(channel);
            match std::fs::remove_file(&file) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::System { action: format!("remove {}", file.display()), source });
                }
                _ => {}
            }
        }
        let (uid, role, phase) = (uid.to_owned(), MigrationRole::Target, MigrationPhase::Ready);
        let migration = MigrationState { uid, role, phase, ..Default::default() };
        self.state.update(|state| state.migration = Some(migration));
        Ok(())
    }

    pub(crate) fn arrived(&self, uid: &str) -> Result<(), Error> {
        let migration = self.state.get().migration.filter(|migration| migration.uid == uid);
        match migration.map(|migration| migration.phase) {
            Some(MigrationPhase::Completed) => Ok(()),
            _ => Err(Error::WrongState(format!("the guest of migration {uid} has not arrived"))),
        }
    }

    /// Follows the guest's arrival. Sets `started` when it runs here, and ends when nothing of it is at the source.
    pub(crate) async fn watch(self, started: watch::Sender<bool>) {
        let (monitor, uri) =
            (self.sockets.recovery_monitor(), format!("unix:{}", self.sockets.channel(Channel::Memory).display()));
        tokio::select! {
            () = self.follow(started) => {}
            () = recovery::keep_listening(&monitor, &uri) => {}
        }
    }

    async fn follow(&self, started: watch::Sender<bool>) {
        self.state.until(|state| arrival(state) != Arrival::Away).await;
        started.send_replace(true);
        self.state.update(|state| {
            if arrival(state) == Arrival::PostCopy
                && let Some(migration) = &mut state.migration
            {
                (migration.mode, migration.phase) = (MigrationMode::PostCopy, MigrationPhase::Transferring);
            }
        });
        self.state.until(|state| !matches!(arrival(state), Arrival::PostCopy | Arrival::Away)).await;
        let now = jiff::Timestamp::now();
        self.state.update(|state| {
            let here = arrival(state) == Arrival::Here;
            let Some(migration) = &mut state.migration else { return };
            migration.ended_at = Some(now);
            migration.phase = if here { MigrationPhase::Completed } else { MigrationPhase::Failed };
        });
        tracing::info!("the guest has arrived");
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Arrival {
    /// It does not run here: nothing has come, or memory is still on its way.
    Away,
    /// It runs here, on memory that is partly at the source.
    PostCopy,
    /// It is here, all of it.
    Here,
    /// It was here and has ended.
    Over,
}

fn arrival(state: &LauncherState) -> Arrival {
    let begun = state.migration.as_ref().is_some_and(|migration| migration.phase != MigrationPhase::Ready);
    match &state.domain {
        None if begun => Arrival::Over,
        None => Arrival::Away,
        Some(domain) => arrival_of(domain, begun),
    }
}

fn arrival_of(domain: &DomainState, begun: bool) -> Arrival {
    use DomainReason as Reason;
    match (domain.status, domain.reason) {
        (DomainStatus::Running | DomainStatus::Blocked, Reason::Postcopy | Reason::PostcopyFailed)
        | (DomainStatus::Paused, Reason::PausedPostcopy | Reason::PausedPostcopyFailed) => Arrival::PostCopy,
        (DomainStatus::Running | DomainStatus::Blocked, _) => Arrival::Here,
        // libvirt calls a guest that was moved in its paused state paused by its user.
        (DomainStatus::Paused, Reason::PausedUser | Reason::PausedIOError) => Arrival::Here,
        // It may have come and gone between two looks.
        (DomainStatus::Shutoff | DomainStatus::Crashed, Reason::Shutdown | Reason::Crashed | Reason::Panicked) => {
            Arrival::Over
        }
        (DomainStatus::Shutoff | DomainStatus::Crashed, _) if begun => Arrival::Over,
        _ => Arrival::Away,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_has_arrived_when_it_runs_and_not_before() {
        use Arrival::*;
        use DomainReason as Reason;
        use DomainStatus::*;
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
            let domain = Some(DomainState { status, reason, ..Default::default() });
            let state = LauncherState { domain, ..Default::default() };
            assert_eq!(arrival(&state), expected, "{status:?} {reason:?}");
        }
    }
}
