//! Runs a reconcile function over a work queue.

use std::any::Any;
use std::error::Error;
use std::fmt::{Debug, Display};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::queue::WorkQueue;

/// What a successful reconcile asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// No requeue: the next change triggers the key.
    No,
    /// Requeue after this time even if nothing changes.
    After(Duration),
}

/// Class of a reconcile error; determines the retry and the log level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// Retrying cannot help; a change of the object will trigger the key.
    Terminal,
    /// Somebody else wrote first, or our cache is stale: routine, so recompute and retry.
    Conflict,
    /// Retrying later may succeed.
    Transient,
}

/// Reconcile errors that know their class.
pub trait Classify: Error {
    fn class(&self) -> ErrorClass;
}

/// Runs `n` workers until `shutdown`, then lets running reconciles finish.
///
/// `reconcile` is called for every key taken from the queue, also if its object is gone. A success resets the key's
/// back-off; an error or a panic requeues only that key, without affecting other keys and workers.
pub async fn run_workers<T, F, Fut, E>(queue: WorkQueue<T>, n: usize, shutdown: CancellationToken, reconcile: F)
where
    T: Hash + Eq + Clone + Debug + Display + Send + Sync + 'static,
    F: Fn(T) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Requeue, E>> + Send,
    E: Classify + Send + 'static,
{
    let reconcile = Arc::new(reconcile);
    let mut workers = JoinSet::new();
    for _ in 0..n {
        let (queue, reconcile) = (queue.clone(), reconcile.clone());
        workers.spawn(async move {
            while let Some(claim) = queue.get().await {
                let result = AssertUnwindSafe(async { reconcile(claim.clone()).await }).catch_unwind().await;
                settle(&queue, &claim, result);
            }
        });
    }
    shutdown.cancelled().await;
    queue.shut_down();
    while let Some(ended) = workers.join_next().await {
        if let Err(error) = ended {
            tracing::error!(queue = queue.name(), error = &error as &dyn Error, "worker failed");
        }
    }
}

fn settle<T, E>(queue: &WorkQueue<T>, item: &T, result: Result<Result<Requeue, E>, Box<dyn Any + Send>>)
where
    T: Hash + Eq + Clone + Debug + Display,
    E: Classify + 'static,
{
    let name = queue.name();
    match result {
        Ok(Ok(Requeue::No)) => queue.forget(item),
        Ok(Ok(Requeue::After(delay))) => {
            queue.forget(item);
            queue.add_after(item.clone(), delay);
        }
        Ok(Err(error)) => {
            let (class, failures) = (error.class(), queue.failures(item) + 1);
            let error = &error as &dyn Error;
            match class {
                ErrorClass::Terminal => {
                    tracing::warn!(queue = name, key = %item, error, "reconcile failed for good");
                    return queue.forget(item);
                }
                ErrorClass::Conflict => {
                    tracing::debug!(queue = name, key = %item, failures, error, "reconcile met a conflict")
                }
                ErrorClass::Transient => tracing::warn!(queue = name, key = %item, failures, error, "reconcile failed"),
            }
            queue.add_rate_limited(item.clone());
        }
        Err(panic) => {
            let message = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
            tracing::error!(queue = name, key = %item, message, "reconcile panicked");
            queue.count_panic();
            queue.add_rate_limited(item.clone());
        }
    }
}
