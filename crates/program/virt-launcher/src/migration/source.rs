//! The source of a migration: one at a time, identified by UID, each UID only once.

use std::sync::Arc;

use domain::Readdress;
use jiff::Timestamp;
use launcher_contract::migration::{
    AbortState, MigrateRequest, MigrationPhase, MigrationRole, MigrationState, Progress,
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::Sockets;
use super::steps::{Driver, Outcome};
use crate::error::Error;
use crate::session::Session;
use crate::state::StateStore;

/// Cheap to clone; all clones refer to the same guest.
#[derive(Clone)]
pub(crate) struct Source(Arc<Inner>);

struct Inner {
    session: Session,
    state: StateStore,
    domain_name: String,
    sockets: Sockets,
    running: Mutex<Option<Running>>,
}

/// Controls of a migration in progress.
#[derive(Clone)]
struct Running {
    uid: String,
    abort: CancellationToken,
    /// virt-handler's report on how the migration ended at the target.
    settled: watch::Sender<Option<bool>>,
}

impl Source {
    pub(crate) fn new(session: Session, state: StateStore, domain_name: String, sockets: Sockets) -> Source {
        Source(Arc::new(Inner { session, state, domain_name, sockets, running: Mutex::default() }))
    }

    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.0.running.lock()
    }

    /// Whether a migration is in progress, during which others must not change the guest's state.
    pub(crate) fn is_busy(&self) -> bool {
        self.running().is_some()
    }

    /// Starts the migration, unless it has already started.
    pub(crate) async fn start(&self, request: MigrateRequest) -> Result<(), Error> {
        let MigrateRequest { vmi_uid, migration_uid, options, destination } = request;
        let uid = String::from(migration_uid);
        self.0.session.refresh().await?;
        let mut running = self.running();
        if running.as_ref().is_some_and(|running| running.uid == uid) {
            return Ok(());
        }
        if running.is_some() {
            return Err(Error::WrongState("another migration of this guest is under way".into()));
        }
        let state = self.0.state.get();
        transfer::may_start(&state, &uid)?;
        let levers = Running { uid: uid.clone(), abort: CancellationToken::new(), settled: watch::Sender::new(None) };
        *running = Some(levers.clone());
        drop(running);
        let begun = MigrationState {
            uid: uid.clone(),
            role: MigrationRole::Source,
            phase: MigrationPhase::Transferring,
            started_at: Some(Timestamp::now()),
            ..Default::default()
        };
        self.0.state.update(|state| state.migration = Some(begun));
        tracing::info!(migration = uid, ?options, "migration started");
        let driver = Driver {
            session: self.0.session.clone(),
            state: self.0.state.clone(),
            domain_name: self.0.domain_name.clone(),
            sockets: self.0.sockets.clone(),
            options,
            readdress: destination.map(|to| Readdress::new(&self.0.domain_name, vmi_uid.as_str(), &to)),
            abort: levers.abort,
            settled: levers.settled.subscribe(),
        };
        let source = self.clone();
        tokio::spawn(async move {
            let outcome = driver.run().await;
            source.ended(&uid, outcome).await;
        });
        Ok(())
    }

    async fn ended(&self, uid: &str, outcome: Outcome) {
        // The domain's final state must appear together with the outcome, not after it.
        if let Err(error) = self.0.session.refresh().await {
            tracing::warn!(error = crate::error::chain(&error), "the state after a migration is not known yet");
        }
        let now = Timestamp::now();
        self.0.state.update(|state| {
            let Some(migration) = state.migration.as_mut().filter(|migration| migration.uid == uid) else { return };
            migration.ended_at = Some(now);
            match &outcome {
                Outcome::Moved(stats) => {
                    migration.phase = MigrationPhase::Completed;
                    if let Some(stats) = stats {
                        // QEMU's final statistics, except for the throttle, which it has released.
                        let throttle_percent = migration.progress.throttle_percent;
                        migration.progress = Progress { throttle_percent, ..*stats };
                    }
                    migration.progress.data_remaining = 0;
                    if migration.abort == AbortState::Aborting {
                        migration.abort = AbortState::Failed;
                    }
                }
                Outcome::Stayed(why) => {
                    migration.phase = MigrationPhase::Failed;
                    migration.failure = Some(why.clone());
                    if migration.abort == AbortState::Aborting {
                        migration.abort = AbortState::Succeeded;
                        migration.failure = Some("Live migration has been aborted".to_owned());
                    }
                }
            }
        });
        tracing::info!(migration = uid, ?outcome, "the migration has ended");
        self.running().take();
    }

    /// Aborts the transfer. No-op if it is over or was never started.
    pub(crate) fn abort(&self, uid: &str) {
        let Some(running) = self.running().clone().filter(|running| running.uid == uid) else { return };
        self.0.state.update(|state| {
            if let Some(migration) = state.migration.as_mut()
                && matches!(migration.abort, AbortState::None | AbortState::Failed)
            {
                migration.abort = AbortState::Aborting;
            }
        });
        running.abort.cancel();
    }

    /// Called when virt-handler knows how a switch-over ended at the target.
    pub(crate) fn settle(&self, uid: &str, target_runs: bool) -> Result<(), Error> {
        let running = self.running().clone().filter(|running| running.uid == uid);
        let Some(running) = running else {
            return Err(Error::WrongState(format!("no migration {uid} is under way here")));
        };
        running.settled.send_replace(Some(target_runs));
        Ok(())
    }
}
