//! The importer of an embedded cluster: fills the claims of DataVolumes, and takes uploads.
//!
//! ```text
//!   watches ─► queue ─► pass ─► imports::decide ─► claim, events, status
//!                                      └─► Transfers ─► hold the volume ─► disk_images::Worker
//!   UploadTokenRequest ─► hooks ─► token ─► proxy ────────┘
//! ```
//!
//! Nothing is remembered between processes but what the objects and the pool say: a worker ends with this process, and the
//! next one begins its claim anew.

mod controller;
mod error;
mod form;
mod hooks;
mod installation;
mod job;
mod proxy;
mod rights;
mod sources;
mod stores;
mod tokens;
mod transfers;

use std::path::PathBuf;
use std::sync::Arc;

use futures::future::BoxFuture;
use informer::{Clock, Key, Recorder, WorkQueue, run_workers};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use volumes::Engine;

pub use error::Error;
pub use hooks::Hooks;
pub use proxy::Proxy;
pub use rights::program;
pub use tokens::Tokens;

use controller::Controller;
use stores::Stores;
use transfers::Transfers;

/// Source of events, as upstream's importer calls itself.
const COMPONENT: &str = "datavolume-import-controller";
/// Workers of the queue: they only look, decide and write; a transfer runs beside them.
const WORKERS: usize = 4;

/// Configuration of the importer.
pub struct Config {
    pub client: kube::Client,
    /// The pool of the cluster.
    pub engine: Arc<Engine>,
    /// The program with the command `import-worker`.
    pub worker: PathBuf,
    /// A directory of ours on the pool's file system, for images that have to be converted.
    pub scratch: PathBuf,
    /// Transfers at a time.
    pub parallel: usize,
    pub proxy: Proxy,
}

/// Transfers at a time, if nobody says otherwise: each may keep a core busy with decompression.
pub const PARALLEL: usize = 4;

/// Runs until `shutdown`. Transfers end with it; what they were filling stays held for the next process.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), Error> {
    let Config { client, engine, worker, scratch, parallel, proxy } = config;
    // Dropping the guard stops all watches and the event recorder, however this function returns.
    let stop = CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    let queue: WorkQueue<Key> = WorkQueue::new("datavolumes");
    let stores = Stores::start(&client, &stop);
    let url = proxy.url.clone();
    let worker = transfers::Program { exe: worker, scratch };
    worker.clear().map_err(Error::Scratch)?;
    let transfers = Transfers::new(engine, client.clone(), worker, parallel, queue.clone());
    let mut parts = JoinSet::new();
    let mut add = |name: &'static str, part: BoxFuture<'static, ()>| {
        parts.spawn(async move {
            part.await;
            name
        });
    };
    add("the upload proxy", proxy.serve(stores.claims.clone(), transfers.clone(), shutdown.clone())?);
    if shutdown.run_until_cancelled(stores.synced()).await != Some(true) {
        return Ok(());
    }
    stores.feed(&queue);
    let recorder = Recorder::start(client.clone(), COMPONENT, COMPONENT, stop.clone());
    add("the controller of DataSources", Box::pin(sources::run(client.clone(), stores.clone(), shutdown.clone())));
    add(
        "the controller of profiles",
        Box::pin(installation::run(client.clone(), stores.clone(), url, shutdown.clone())),
    );
    add("the sweep of volumes", Box::pin(transfers.clone().sweep(stores.claims.clone(), shutdown.clone())));
    let controller =
        Arc::new(Controller { client, stores, transfers: transfers.clone(), recorder, clock: Clock::system() });
    let working = run_workers(queue, WORKERS, shutdown.clone(), move |key: Key| {
        let controller = controller.clone();
        async move { controller.pass(&key).await }
    });
    tokio::pin!(working);
    let result = loop {
        tokio::select! {
            () = &mut working => break Ok(()),
            Some(ended) = parts.join_next() => match ended {
                Ok(_) if shutdown.is_cancelled() => {}
                Ok(part) => break Err(Error::Ended(part)),
                Err(error) => break Err(Error::Panicked(error)),
            },
        }
    };
    transfers.end().await;
    parts.shutdown().await;
    result
}
