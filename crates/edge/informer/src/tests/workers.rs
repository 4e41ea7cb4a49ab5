use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::{Classify, ErrorClass, Key, Requeue, WorkQueue, run_workers};

#[derive(Debug, thiserror::Error)]
#[error("a test failure")]
struct Failure(ErrorClass);

impl Classify for Failure {
    fn class(&self) -> ErrorClass {
        self.0
    }
}

type Runs = Arc<Mutex<HashMap<String, Vec<Duration>>>>;

/// Runs workers for ten virtual minutes over keys whose name says how their reconcile ends.
async fn run(keys: &[&str]) -> (HashMap<String, Vec<Duration>>, WorkQueue<Key>) {
    let queue = WorkQueue::new("test");
    let runs: Runs = Runs::default();
    let (log, start) = (runs.clone(), Instant::now());
    for key in keys {
        queue.add(Key::new("ns", *key));
    }
    let shutdown = CancellationToken::new();
    let workers = tokio::spawn(run_workers(queue.clone(), 2, shutdown.clone(), move |key: Key| {
        let count = {
            let mut log = log.lock();
            let times = log.entry(key.name.clone()).or_default();
            times.push(start.elapsed());
            times.len()
        };
        async move {
            match key.name.as_str() {
                "panics twice" if count <= 2 => panic!("in one key"),
                "conflicts once" if count == 1 => Err(Failure(ErrorClass::Conflict)),
                "fails thrice" if count <= 3 => Err(Failure(ErrorClass::Transient)),
                "is hopeless" => Err(Failure(ErrorClass::Terminal)),
                "wants another look" if count <= 2 => Ok(Requeue::After(Duration::from_secs(30))),
                _ => Ok(Requeue::No),
            }
        }
    }));
    sleep(Duration::from_secs(600)).await;
    shutdown.cancel();
    workers.await.unwrap();
    let runs = runs.lock().clone();
    (runs, queue)
}

#[tokio::test(start_paused = true)]
async fn each_outcome_brings_a_key_back_as_it_should() {
    let keys = ["is fine", "panics twice", "conflicts once", "fails thrice", "is hopeless", "wants another look"];
    let (runs, queue) = run(&keys).await;
    let count = |key: &str| runs[key].len();
    assert_eq!(keys.map(count), [1, 3, 2, 4, 1, 3]);
    assert_eq!(runs["wants another look"][2], Duration::from_secs(60));
    assert_eq!(queue.stats().panics, 2);
    assert_eq!(queue.failures(&Key::new("ns", "fails thrice")), 0, "a success forgets the failures");
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_a_running_reconcile_finish() {
    let queue = WorkQueue::new("test");
    queue.add(Key::new("ns", "slow"));
    queue.add(Key::new("ns", "never started"));
    let finished = Arc::new(Mutex::new(vec![]));
    let log = finished.clone();
    let shutdown = CancellationToken::new();
    let workers = tokio::spawn(run_workers(queue, 1, shutdown.clone(), move |key: Key| {
        let log = log.clone();
        async move {
            sleep(Duration::from_secs(10)).await;
            log.lock().push(key.name);
            Ok::<_, Failure>(Requeue::No)
        }
    }));
    sleep(Duration::from_secs(1)).await;
    shutdown.cancel();
    workers.await.unwrap();
    assert_eq!(*finished.lock(), ["slow"]);
}
