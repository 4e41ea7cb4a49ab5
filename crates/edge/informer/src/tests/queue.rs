use std::time::Duration;

use proptest::prelude::*;
use tokio::time::{Instant, timeout};

use crate::metrics::{Exposition, write_queues};
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

fn manual() -> Clock {
    Clock::manual(jiff::Timestamp::UNIX_EPOCH)
}

#[test]
fn with_a_manual_clock_a_queue_needs_no_runtime() {
    let clock = manual();
    let queue = WorkQueue::with_limits("test", RetryLimits::default(), clock.clone());
    queue.add_after("late", Duration::from_secs(10));
    queue.add("now");
    assert_eq!(queue.try_get().as_deref(), Some(&"now"));
    assert!(queue.try_get().is_none());
    assert_eq!(queue.next_due(), Some(Duration::from_secs(10)));
    clock.advance(Duration::from_secs(10));
    assert_eq!(queue.try_get().as_deref(), Some(&"late"));
    assert_eq!(queue.next_due(), None);
}

fn order(queue: &WorkQueue<&'static str>) -> Vec<(&'static str, i32)> {
    std::iter::from_fn(|| queue.try_get()).map(|claim| (*claim, claim.priority())).collect()
}

#[test]
fn the_highest_priority_comes_first_and_equals_come_in_order_of_arrival() {
    let queue = WorkQueue::prioritized("test", RetryLimits::default(), manual());
    for (key, priority) in [("low", -5), ("first", 0), ("high", 20), ("second", 0), ("higher", 100)] {
        queue.add_with_priority(key, priority);
    }
    assert_eq!(order(&queue), [("higher", 100), ("high", 20), ("first", 0), ("second", 0), ("low", -5)]);
}

#[test]
fn adding_again_raises_the_priority_and_never_lowers_it() {
    let queue = WorkQueue::prioritized("test", RetryLimits::default(), manual());
    queue.add_with_priority("a", 10);
    queue.add_with_priority("b", 5);
    queue.add_with_priority("b", 20);
    queue.add_with_priority("a", 0);
    assert_eq!(order(&queue), [("b", 20), ("a", 10)]);
}

#[test]
fn a_delayed_item_keeps_the_earliest_time_and_the_highest_priority() {
    let clock = manual();
    let queue = WorkQueue::prioritized("test", RetryLimits::default(), clock.clone());
    let seconds = Duration::from_secs;
    queue.add_after_with_priority("a", seconds(10), 5);
    queue.add_after_with_priority("a", seconds(30), 50);
    queue.add_after_with_priority("b", seconds(30), 90);
    queue.add("b");
    assert_eq!(order(&queue), [("b", 90)], "at once, and with the priority it had");
    assert_eq!(queue.stats().delayed, 1, "b waits no more");
    clock.advance(seconds(10));
    assert_eq!(order(&queue), [("a", 50)]);
    clock.advance(seconds(100));
    assert_eq!(order(&queue), []);
}

#[test]
fn a_failed_item_comes_back_with_the_priority_it_was_handed_out_with() {
    let clock = manual();
    let queue = WorkQueue::prioritized("test", RetryLimits::default(), clock.clone());
    queue.add_with_priority("a", 7);
    let claim = queue.try_get().unwrap();
    queue.add_rate_limited(*claim);
    drop(claim);
    clock.advance(Duration::from_secs(1));
    assert_eq!(order(&queue), [("a", 7)]);
}

#[test]
fn a_queue_measures_how_long_items_wait_and_how_long_they_are_worked_on() {
    let clock = manual();
    let queue = WorkQueue::with_limits("test", RetryLimits::default(), clock.clone());
    queue.add("a");
    queue.add("b");
    clock.advance(Duration::from_secs(2));
    let claim = queue.try_get().unwrap();
    clock.advance(Duration::from_secs(3));
    let metrics = queue.metrics();
    assert_eq!((metrics.depth, metrics.adds), (1, 2));
    assert_eq!((metrics.unfinished, metrics.longest_running), (Duration::from_secs(3), Duration::from_secs(3)));
    queue.add_rate_limited(*claim);
    drop(claim);
    let mut out = Exposition::default();
    write_queues(&[queue.metrics()], &mut out);
    let text = out.into_text();
    for line in [
        "# TYPE workqueue_depth gauge",
        "workqueue_depth{name=\"test\"} 1",
        "workqueue_adds_total{name=\"test\"} 2",
        "workqueue_retries_total{name=\"test\"} 1",
        "workqueue_queue_duration_seconds_bucket{name=\"test\",le=\"1\"} 0",
        "workqueue_queue_duration_seconds_bucket{name=\"test\",le=\"10\"} 1",
        "workqueue_queue_duration_seconds_sum{name=\"test\"} 2",
        "workqueue_work_duration_seconds_sum{name=\"test\"} 3",
        "workqueue_work_duration_seconds_count{name=\"test\"} 1",
        "workqueue_unfinished_work_seconds{name=\"test\"} 0",
        "workqueue_longest_running_processor_seconds{name=\"test\"} 0",
    ] {
        assert!(text.lines().any(|other| other == line), "no line {line:?} in\n{text}");
    }
}

proptest! {
    /// Model: a list of wishes, of which the one with the highest priority and, among those, the oldest is next.
    #[test]
    fn priorities_agree_with_a_model(ops in prop::collection::vec((0..6usize, prop::option::of(-2..3i32)), 1..60)) {
        let queue = WorkQueue::prioritized("test", RetryLimits::default(), manual());
        let mut model: Vec<(usize, i32)> = vec![];
        for (key, op) in ops {
            match (op, model.iter_mut().find(|(known, _)| *known == key)) {
                (Some(priority), Some((_, known))) => { queue.add_with_priority(key, priority); *known = priority.max(*known); }
                (Some(priority), None) => { queue.add_with_priority(key, priority); model.push((key, priority)); }
                (None, _) => {
                    // The first of the highest: `max_by_key` would give the last.
                    let best = model.iter().map(|(_, priority)| *priority).max();
                    let next = model.iter().position(|(_, priority)| Some(*priority) == best).map(|at| model.remove(at));
                    let claim = queue.try_get();
                    prop_assert_eq!(claim.as_ref().map(|claim| (**claim, claim.priority())), next);
                }
            }
        }
    }
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
