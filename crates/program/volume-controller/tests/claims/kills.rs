//! The controller is killed in the middle of each step of the engine, and started again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kube::api::DeleteParams;
use serde_json::json;
use test_support::eventually;
use tokio::sync::Notify;
use volumes::{Steps, Unwatched};

use crate::lab::Lab;

/// Ends the engine's request at a step, with what it holds, as the end of the process would. What is done while the pool is
/// opened does not count.
struct EndAt {
    step: usize,
    armed: AtomicBool,
    seen: AtomicUsize,
    ended: Notify,
}

impl EndAt {
    fn new(step: usize) -> Arc<Self> {
        Arc::new(Self { step, armed: AtomicBool::new(false), seen: AtomicUsize::new(0), ended: Notify::new() })
    }
}

impl Steps for EndAt {
    fn before(&self, step: &'static str) {
        if self.armed.load(Ordering::Relaxed) && self.seen.fetch_add(1, Ordering::Relaxed) + 1 == self.step {
            self.ended.notify_one();
            panic!("ended before: {step}");
        }
    }
}

/// One thing after another that happens to a claim; its objects end in `number`.
async fn story(lab: &Lab, number: usize) {
    let [claim, clone, snapshot] = ["claim", "clone", "snapshot"].map(|name| format!("{name}{number}"));
    lab.claim(&claim, "now", json!({})).await;
    bound(lab, &claim).await;
    lab.snapshot(&snapshot, &claim).await;
    lab.claim(&clone, "now", json!({"dataSource": {"kind": "PersistentVolumeClaim", "name": claim}})).await;
    lab.ready(&snapshot).await;
    bound(lab, &clone).await;
    lab.change(&claim, json!({"spec": {"resources": {"requests": {"storage": "16Mi"}}}})).await.unwrap();
    eventually("the claim to grow", || async {
        let claim = lab.claims().get(&claim).await.unwrap();
        (claim.status?.capacity?.get("storage")?.0 == "16Mi").then_some(())
    })
    .await;
    lab.delete_claim(&claim).await;
    lab.delete_claim(&clone).await;
    lab.snapshots().delete(&snapshot, &DeleteParams::default()).await.unwrap();
}

async fn bound(lab: &Lab, claim: &str) {
    eventually(&format!("{claim} to be bound"), || async {
        let claim = lab.claims().get(claim).await.unwrap();
        (claims::claim_phase(&claim) == claims::Phase::Bound).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_it_is_killed_in_the_story_goes_on_and_nothing_is_left() {
    let mut lab = Lab::start().await;
    lab.kill();
    let count = EndAt::new(0);
    lab.reopen(count.clone());
    count.armed.store(true, Ordering::Relaxed);
    lab.run().await;
    story(&lab, 0).await;
    lab.nothing_left().await;
    lab.kill();
    let steps = count.seen.load(Ordering::Relaxed);
    assert!(steps > 20, "the story has {steps} steps");
    // The engine's own tests end it at every step; here every third one is enough.
    for step in (1..=steps).step_by(3) {
        let end = EndAt::new(step);
        lab.reopen(end.clone());
        end.armed.store(true, Ordering::Relaxed);
        lab.run().await;
        let told = tokio::select! {
            () = story(&lab, step) => None,
            () = end.ended.notified() => Some(()),
        };
        lab.kill();
        lab.reopen(Arc::new(Unwatched));
        lab.run().await;
        if told.is_some() {
            finish(&lab, step).await;
        }
        lab.nothing_left().await;
        lab.kill();
    }
}

/// Goes on with a story from wherever it was.
async fn finish(lab: &Lab, number: usize) {
    let [claim, clone, snapshot] = ["claim", "clone", "snapshot"].map(|name| format!("{name}{number}"));
    for name in [&claim, &clone] {
        if lab.claims().get_opt(name).await.unwrap().is_some_and(|claim| claim.metadata.deletion_timestamp.is_none()) {
            bound(lab, name).await;
        }
    }
    for name in [&claim, &clone] {
        let _ = lab.claims().delete(name, &DeleteParams::default()).await; // it may be gone
    }
    if lab.snapshots().get_opt(&snapshot).await.unwrap().is_some() {
        let _ = lab.snapshots().delete(&snapshot, &DeleteParams::default()).await; // it may be gone
    }
}
