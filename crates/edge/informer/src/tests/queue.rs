use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, timeout};

use crate::{Clock, RetryLimits, WorkQueue};

const SOON: Duration = Duration::from_millis(1);

async fn next(queue: &WorkQueue<&'static str>) -> Option<&'static str> {
    timeout(SOON, queue.get()).await.ok().flatten().map(|claim| *claim)
}

#[tokio::test(start_paused = true)]
async fn equal_keys_are_handed_out_once_and_in_order_of_arrival() {
    let queue = WorkQueue::new("test");
    for key in ["a", "b", "a", "b", "c"] {
        queue.add(key);
    }
    assert_eq!([next(&queue).await, next(&queue).await, next(&queue).await], [Some("a"), Some("b"), Some("c")]);
    assert_eq!(next(&queue).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_key_added_while_running_runs_once_more_afterwards_and_never_beside_itself() {
    let queue = WorkQueue::new("test");
    queue.add("a");
    let running = queue.get().await.unwrap();
    queue.add("a");
    queue.add("a");
    assert_eq!(next(&queue).await, None, "not while it runs");
    drop(running);
    assert_eq!(next(&queue).await, Some("a"));
    assert_eq!(next(&queue).await, None, "and only once");
}

#[tokio::test(start_paused = true)]
async fn a_delayed_key_comes_when_due_and_the_shortest_delay_counts() {
    let queue = WorkQueue::new("test");
    let start = Instant::now();
    queue.add_after("a", Duration::from_secs(60));
    queue.add_after("a", Duration::from_secs(20));
    queue.add_after("a", Duration::from_secs(40));
    queue.get().await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_secs(20));
    assert!(timeout(Duration::from_secs(600), queue.get()).await.is_err(), "the longer delays are gone");
}

#[tokio::test(start_paused = true)]
async fn a_shorter_delay_wakes_a_worker_that_sleeps_for_a_longer_one() {
    let queue = WorkQueue::new("test");
    queue.add_after("late", Duration::from_secs(60));
    let worker = tokio::spawn({
        let queue = queue.clone();
        async move { *queue.get().await.unwrap() }
    });
    tokio::task::yield_now().await;
    queue.add_after("early", Duration::from_secs(1));
    assert_eq!(worker.await.unwrap(), "early");
}

/// One worker is woken for ready work while it was the one watching the clock; somebody else must take that over.
#[tokio::test(start_paused = true)]
async fn delays_end_on_time_whichever_worker_is_busy() {
    let queue = WorkQueue::new("test");
    let start = Instant::now();
    let workers: Vec<_> = (0..3)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move {
                let claim = queue.get().await.unwrap();
                let at = start.elapsed();
                tokio::time::sleep(Duration::from_secs(1000)).await;
                (*claim, at)
            })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.add_after("b", Duration::from_secs(10));
    tokio::task::yield_now().await;
    queue.add("a");
    tokio::task::yield_now().await;
    queue.add_after("c", Duration::from_secs(5));
    let mut seen = vec![];
    for worker in workers {
        seen.push(worker.await.unwrap());
    }
    seen.sort();
    let seconds = Duration::from_secs;
    assert_eq!(seen, [("a", seconds(0)), ("b", seconds(10)), ("c", seconds(5))]);
}

#[tokio::test(start_paused = true)]
async fn failures_double_the_pause_up_to_a_limit_until_forgotten() {
    let queue = WorkQueue::new("test");
    let mut pauses = vec![];
    for _ in 0..20 {
        let start = Instant::now();
        queue.add_rate_limited("a");
        queue.get().await.unwrap();
        pauses.push(start.elapsed());
    }
    assert_eq!(pauses[..4], [5, 10, 20, 40].map(Duration::from_millis));
    assert_eq!(pauses[17..], [655_360, 1_000_000, 1_000_000].map(Duration::from_millis));
    assert_eq!(queue.failures(&"a"), 20);
    queue.forget(&"a");
    let start = Instant::now();
    queue.add_rate_limited("a");
    queue.get().await.unwrap();
    assert_eq!(start.elapsed(), Duration::from_millis(5));
}

#[tokio::test(start_paused = true)]
async fn retries_of_many_keys_share_a_bucket() {
    let queue = WorkQueue::new("test");
    let start = Instant::now();
    for key in 0..150 {
        queue.add_rate_limited(key);
    }
    for _ in 0..150 {
        queue.get().await.unwrap();
    }
    assert_eq!(start.elapsed(), Duration::from_secs(5), "100 at once, 50 more at ten a second");
}

#[tokio::test(start_paused = true)]
async fn shutting_down_ends_every_waiting_worker_and_hands_out_nothing_more() {
    let queue = WorkQueue::new("test");
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let queue = queue.clone();
            tokio::spawn(async move { queue.get().await.is_none() })
        })
        .collect();
    tokio::task::yield_now().await;
    queue.shut_down();
    queue.add("late");
    for worker in workers {
        assert!(worker.await.unwrap());
    }
    assert!(queue.get().await.is_none());
}

proptest! {
    /// Model: after any mixture of adds, delayed adds and claims, every added key is handed out at least once after its
    /// last add, and never to two workers at a time.
    #[test]
    fn no_key_is_lost_and_none_runs_twice_at_once(ops in prop::collection::vec((0..4u8, 0..4usize), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let limits = RetryLimits { per_second: 1000.0, ..Default::default() };
            let queue = WorkQueue::with_limits("test", limits, Clock::system());
            let mut running = vec![];
            let mut owed = std::collections::HashSet::new();
            for (op, key) in ops {
                match op {
                    0 => { queue.add(key); owed.insert(key); }
                    1 => { queue.add_after(key, Duration::from_secs(key as u64)); owed.insert(key); }
                    2 => { queue.add_rate_limited(key); owed.insert(key); }
                    _ => if let Ok(Some(claim)) = timeout(SOON, queue.get()).await {
                        assert!(!running.iter().any(|other: &crate::Claim<usize>| **other == *claim));
                        owed.remove(&*claim);
                        running.push(claim);
                        if running.len() > 2 { running.remove(0); }
                    }
                }
            }
            running.clear();
            while let Ok(Some(claim)) = timeout(Duration::from_secs(3600), queue.get()).await {
                owed.remove(&*claim);
            }
            assert!(owed.is_empty(), "never handed out: {owed:?}");
            assert_eq!((queue.stats().ready, queue.stats().delayed, queue.stats().running), (0, 0, 0));
        });
    }
}
