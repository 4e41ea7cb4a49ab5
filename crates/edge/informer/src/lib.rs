//! Controller machinery over kube's watcher: caches, work queues, workers, expectations, events, leader election.
//!
//! ```no_run
//! # use informer::*;
//! # use k8s_openapi::api::core::v1::Pod;
//! # use tokio_util::sync::CancellationToken;
//! # #[derive(Debug, thiserror::Error)] #[error("…")] struct MyError;
//! # impl Classify for MyError { fn class(&self) -> ErrorClass { ErrorClass::Transient } }
//! # async fn example(client: kube::Client, shutdown: CancellationToken) {
//! // One watch per kind, shared by every controller of the process.
//! let pods: Store<Pod> = Informer::new()
//!     .labels("kubevirt.io")
//!     .index("node", |pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())
//!     .start(kube::Api::all(client.clone()), shutdown.clone());
//!
//! // Changes become keys; the queue is a set, so nothing is lost and nothing piles up.
//! let queue = WorkQueue::new("pods");
//! pods.feed(&queue);
//!
//! // Reconciles start when the caches are complete. They run for objects that are gone, too.
//! if pods.synced().await {
//!     run_workers(queue, 3, shutdown, move |key: Key| {
//!         let pods = pods.clone();
//!         async move {
//!             match pods.get(&key) {
//!                 Some(pod) => tracing::debug!(%key, phase = ?pod.status.as_ref().and_then(|s| s.phase.clone())),
//!                 None => tracing::debug!(%key, "gone"),
//!             }
//!             Ok::<_, MyError>(Requeue::No)
//!         }
//!     })
//!     .await;
//! }
//! # }
//! ```
//!
//! A handler that needs more than the object's own key uses [`Store::subscribe`], which gives old and new state:
//! it maps a Pod to its owner, marks [`Expectations`], and adds keys.

pub mod client;
mod clock;
mod events;
mod expectations;
mod held;
mod key;
pub mod leader;
mod limiter;
pub mod metrics;
mod queue;
mod store;
mod watch;
mod workers;

#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use events::{EventType, Recorder};
pub use expectations::{EXPIRY, Expectations, OwnWrites};
pub use held::Lazy;
pub use key::Key;
pub use limiter::RetryLimits;
pub use queue::{Claim, QueueStats, WorkQueue};
pub use store::{Change, Ingest, Store};
pub use watch::Informer;
pub use workers::{Classify, ErrorClass, Requeue, run_workers};
