//! The volume controller of an embedded cluster: binds claims, provisions their volumes with the volume engine, grows and
//! removes them, and takes snapshots.
//!
//! ```text
//! claims, volumes, snapshots, contents ─► stores ─► queue ─► claims::decide ─► act ─┬─► API
//! classes, Pods, nodes ───────────────────┘                                         └─► volumes::Engine
//! ```
//!
//! It makes no decisions: those are in `claims`. It may be killed at any point: what it asks the engine for has derived
//! names, and the engine answers a repeated request with the first one's result.

mod act;
mod error;
mod reconcile;
mod rights;
mod storage;
mod stores;

use std::sync::Arc;
use std::time::Duration;

use informer::{Clock, Recorder, RetryLimits, WorkQueue, run_workers};
use tokio_util::sync::CancellationToken;

pub use crate::error::Error;
pub use crate::rights::program;

/// Objects that are worked on at once. A long copy occupies one.
const WORKERS: usize = 8;
/// What fails is tried again within a minute: the pool may have room again, a Pod may have gone.
const RETRIES: RetryLimits =
    RetryLimits { first: Duration::from_millis(20), longest: Duration::from_secs(60), per_second: 20.0, burst: 200.0 };
/// How long running requests may take at the end. A copy that takes longer is begun anew by the next process.
const FAREWELL: Duration = Duration::from_secs(5);

/// Settings of the controller.
pub struct Config {
    pub client: kube::Client,
    /// Where volumes are made.
    pub engine: Arc<volumes::Engine>,
}

/// Runs until shutdown.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let Config { client, engine } = config;
    let queue = WorkQueue::with_limits("volumes", RETRIES, Clock::system());
    let stores = stores::Stores::start(&client, &shutdown);
    stores.feed(&queue);
    tokio::select! {
        synced = stores.synced() => if !synced { return Ok(()) },
        () = shutdown.cancelled() => return Ok(()),
    }
    let recorder = Recorder::start(client.clone(), claims::DRIVER, "volume-controller", shutdown.clone());
    let context = Arc::new(act::Context::new(client, engine, stores, recorder));
    let workers = run_workers(queue, WORKERS, shutdown.clone(), move |item: stores::Item| {
        let context = context.clone();
        async move { reconcile::reconcile(&context, &item).await }
    });
    let late = async {
        shutdown.cancelled().await;
        tokio::time::sleep(FAREWELL).await;
    };
    tokio::select! {
        () = workers => {}
        () = late => tracing::info!("leaving a long request of the volume engine unfinished; the next start does it"),
    }
    Ok(())
}
