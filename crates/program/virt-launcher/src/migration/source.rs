//! The source of a migration: one at a time, identified by UID, each UID only once.

use std::sync::Arc;

use domain::Readdress;
use jiff::Timestamp;
use launcher_contract::migration::{MigrateRequest, MigrationPhase, MigrationRole, MigrationState, Progress};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use transfer::{Conclusion, Departure, Outcome};

use super::Sockets;
use super::steps::Driver;
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
        let under_way = running.as_ref().map(|running| running.uid.as_str());
        match transfer::may_start(&self.0.state.get(), under_way, &uid)? {
            Departure::UnderWay => return Ok(()),
            Departure::Starts => {}
        }
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
            let (outcome, measured) = driver.run().await;
            source.ended(&uid, outcome, measured).await;
        });
        Ok(())
    }

    /// `measured`: QEMU's final statistics of a guest that has moved.
    async fn ended(&self, uid: &str, outcome: Outcome, measured: Option<Progress>) {
        // The domain's final state must appear together with the outcome, not after it.
        if let Err(error) = self.0.session.refresh().await {
            tracing::warn!(
                error = crate::error::chain(&error),
                "cannot refresh the domain's state after the migration"
            );
        }
        tracing::info!(migration = uid, ?outcome, ?measured, "the migration has ended");
        let now = Timestamp::now();
        self.0.state.update(|state| {
            let Some(migration) = state.migration.as_mut().filter(|migration| migration.uid == uid) else { return };
            let Conclusion { phase, failure, abort } = transfer::conclude(&outcome, migration.abort);
            migration.ended_at = Some(now);
            (migration.phase, migration.failure, migration.abort) = (phase, failure, abort);
            if outcome == Outcome::Moved {
                migration.progress = transfer::final_progress(&migration.progress, measured);
            }
        });
        self.running().take();
    }

    /// Aborts the transfer. No-op if it is over or was never started.
    pub(crate) fn abort(&self, uid: &str) {
        let Some(running) = self.running().clone().filter(|running| running.uid == uid) else { return };
        self.0.state.update(|state| {
            if let Some(migration) = state.migration.as_mut() {
                migration.abort = transfer::abort_asked(migration.abort);
            }
        });
        running.abort.cancel();
    }

    /// Called when virt-handler knows how a switch-over ended at the target.
    pub(crate) fn settle(&self, uid: &str, target_runs: bool) -> Result<(), Error> {
        let running = self.running().clone().filter(|running| running.uid == uid);
        let Some(running) = running else {
            return Err(Error::WrongState(format!("migration {uid} is not in progress on this node")));
        };
        running.settled.send_replace(Some(target_runs));
        Ok(())
    }
}
