//! The target of a migration: prepares, and detects when the guest has arrived.

use std::time::Duration;

use launcher_contract::Channel;
use launcher_contract::migration::{MigrationPhase, MigrationRole, MigrationState};
use lifecycle::{Change, Guest};
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

    /// Called when disks and network are prepared: creates the socket directory and reports that the guest may come.
    pub(crate) fn ready(&self, uid: &str) -> Result<(), Error> {
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

    /// Follows the guest's arrival. Notes in `guest` when it runs here, and returns when nothing of it is left at the
    /// source.
    pub(crate) async fn watch(self, guest: watch::Sender<Guest>) {
        let (monitor, uri) =
            (self.sockets.recovery_monitor(), format!("unix:{}", self.sockets.channel(Channel::Memory).display()));
        tokio::select! {
            () = self.follow(guest) => {}
            () = recovery::keep_listening(&monitor, &uri) => {}
        }
    }

    async fn follow(&self, guest: watch::Sender<Guest>) {
        let mut target = transfer::Target::default();
        while !target.is_over() {
            let state = self.state.get();
            let domain = state.domain.as_ref().map(|domain| (domain.status, domain.reason));
            let asks = target.asks_for_job(domain);
            let receiving = asks && self.is_receiving().await;
            for note in target.on(Seen { domain, receiving }) {
                self.tell(note, &guest);
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
            tracing::warn!(error = chain(&error), "cannot query libvirt's incoming job; retrying");
            true
        })
    }

    fn tell(&self, note: Note, guest: &watch::Sender<Guest>) {
        tracing::info!(?note, "incoming migration");
        if note == Note::Started {
            guest.send_modify(|guest| guest.on(Change::Arrived));
        }
        let now = jiff::Timestamp::now();
        self.state.update(|state| {
            let Some(migration) = &mut state.migration else { return };
            migration.mode = note.mode().unwrap_or(migration.mode);
            migration.phase = note.phase().unwrap_or(migration.phase);
            if note.phase().is_some_and(MigrationPhase::is_final) {
                migration.ended_at = Some(now);
            }
        });
    }
}

fn libvirt(action: &'static str) -> impl FnOnce(libvirt_io::Error) -> Error {
    move |source| Error::Libvirt { action, source }
}
