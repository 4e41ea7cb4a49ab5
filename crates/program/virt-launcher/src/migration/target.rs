//! The target of a migration: prepares, and detects when the guest has arrived.

use std::time::Duration;

use launcher_contract::Channel;
use launcher_contract::migration::{MigrationMode, MigrationPhase, MigrationRole, MigrationState};
use tokio::sync::watch;
use transfer::{Note, Seen};

use super::{Sockets, recovery};
use crate::error::{Error, chain};
use crate::session::Session;
use crate::state::StateStore;

/// How often to poll libvirt's job at the target.
const ASK_AGAIN: Duration = Duration::from_millis(20);
/// Wait for state changes only.
const FOREVER: Duration = Duration::from_secs(3600);

#[derive(Clone)]
pub(crate) struct Target {
    session: Session,
    state: StateStore,
    sockets: Sockets,
}

impl Target {
    pub(crate) fn new(session: Session, state: StateStore, sockets: Sockets) -> Target {
        Target { session, state, sockets }
    }

    /// Whether this launcher was created as a migration target and its guest has not arrived yet.
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

    /// Called when disks and network are prepared: creates the socket directory and reports that the guest may come.
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

    /// Follows the guest's arrival. Sets `started` when it runs here, and returns when nothing of it is left at the
    /// source.
    pub(crate) async fn watch(self, started: watch::Sender<bool>) {
        let (monitor, uri) =
            (self.sockets.recovery_monitor(), format!("unix:{}", self.sockets.channel(Channel::Memory).display()));
        tokio::select! {
            () = self.follow(started) => {}
            () = recovery::keep_listening(&monitor, &uri) => {}
        }
    }

    async fn follow(&self, started: watch::Sender<bool>) {
        let mut target = transfer::Target::default();
        while !target.is_over() {
            let state = self.state.get();
            let domain = state.domain.as_ref().map(|domain| (domain.status, domain.reason));
            let asks = target.asks_for_job(domain);
            let receiving = asks && self.is_receiving().await;
            for note in target.on(Seen { domain, receiving }) {
                self.tell(note, &started);
            }
            let patience = if asks { ASK_AGAIN } else { FOREVER };
            if !target.is_over() {
                self.state.changed(state.seq, patience).await;
            }
        }
    }

    /// Whether libvirt has not yet answered the source, as far as can be determined.
    async fn is_receiving(&self) -> bool {
        let asked = async {
            let connection = self.session.connection().await?;
            let found = connection.lookup_by_name(self.session.domain_name()).await;
            let domain = found.map_err(libvirt("look up the domain"))?.ok_or(Error::NoDomain)?;
            connection.is_receiving(&domain).await.map_err(libvirt("ask for the job of receiving the guest"))
        };
        asked.await.unwrap_or_else(|error| {
            tracing::warn!(error = chain(&error), "whether the source was answered is not known yet");
            true
        })
    }

    fn tell(&self, note: Note, started: &watch::Sender<bool>) {
        let now = jiff::Timestamp::now();
        let change = |migration: &mut MigrationState| match note {
            Note::Started => {}
            Note::Fetches => {
                (migration.mode, migration.phase) = (MigrationMode::PostCopy, MigrationPhase::Transferring)
            }
            Note::Completed => (migration.ended_at, migration.phase) = (Some(now), MigrationPhase::Completed),
            Note::Failed => (migration.ended_at, migration.phase) = (Some(now), MigrationPhase::Failed),
        };
        tracing::info!(?note, "incoming migration");
        if note == Note::Started {
            started.send_replace(true);
        }
        self.state.update(|state| state.migration.iter_mut().for_each(change));
    }
}

fn libvirt(action: &'static str) -> impl FnOnce(libvirt_io::Error) -> Error {
    move |source| Error::Libvirt { action, source }
}
