use std::time::Duration;

use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use super::fake_api::FakeApi;
use crate::leader::{LeaderConfig, Leadership, LeaseTimes, lead};

fn config(api: &FakeApi, identity: &str) -> LeaderConfig {
    LeaderConfig::new(api.client(), "ns", "virt-controller", identity)
}

fn holder(api: &FakeApi) -> String {
    api.objects()[0]["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

async fn elected(api: &FakeApi, identity: &str, shutdown: &CancellationToken) -> Leadership {
    lead(config(api, identity), shutdown.clone()).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_leads_and_the_other_waits_while_it_renews() {
    let api = FakeApi::default();
    let (a, b) = (CancellationToken::new(), CancellationToken::new());
    let leadership = elected(&api, "a", &a).await;
    assert_eq!(holder(&api), "a");
    assert!(timeout(Duration::from_secs(300), elected(&api, "b", &b)).await.is_err());
    assert!(!leadership.lost.is_cancelled());
    assert_eq!(api.objects()[0]["spec"]["leaseTransitions"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_graceful_end_hands_over_within_a_retry_period() {
    let api = FakeApi::default();
    let (a, b) = (CancellationToken::new(), CancellationToken::new());
    elected(&api, "a", &a).await.release().await;
    assert_eq!(holder(&api), "");
    let start = Instant::now();
    let _leading = elected(&api, "b", &b).await;
    assert!(start.elapsed() <= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(holder(&api), "b");
    assert_eq!(api.objects()[0]["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_replaced_after_the_time_it_promised_as_we_saw_it() {
    let api = FakeApi::default();
    // A holder that dies does not give the lease back.
    drop(elected(&api, "dead", &CancellationToken::new()).await);
    let start = Instant::now();
    let _leading = elected(&api, "b", &CancellationToken::new()).await;
    let waited = start.elapsed();
    assert!(waited > Duration::from_secs(15) && waited <= Duration::from_secs(20), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_cannot_renew_learns_it_before_the_lease_is_over() {
    let api = FakeApi::default();
    let shutdown = CancellationToken::new();
    let leadership = elected(&api, "a", &shutdown).await;
    api.set_down(true);
    let start = Instant::now();
    leadership.lost.cancelled().await;
    assert!(start.elapsed() < Duration::from_secs(15), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_the_wait_for_the_lock() {
    let api = FakeApi::default();
    let (a, b) = (CancellationToken::new(), CancellationToken::new());
    let _leading = elected(&api, "a", &a).await;
    b.cancel();
    assert!(lead(config(&api, "b"), b).await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_meets_a_conflict_is_tried_again_and_one_that_finds_another_holder_is_the_end() {
    let api = FakeApi::default();
    let leadership = elected(&api, "a", &CancellationToken::new()).await;
    // Somebody annotates the lease: our next write carries an old version.
    api.edit(|lease| lease["metadata"]["annotations"] = serde_json::json!({"seen": "yes"}));
    assert!(timeout(Duration::from_secs(60), leadership.lost.cancelled()).await.is_err());
    assert_eq!(holder(&api), "a");
    api.edit(|lease| lease["spec"]["holderIdentity"] = "b".into());
    let start = Instant::now();
    leadership.lost.cancelled().await;
    assert!(start.elapsed() <= Duration::from_secs(3), "{:?}", start.elapsed());
    assert_eq!(holder(&api), "b", "the other's lease is left alone");
}

#[tokio::test(start_paused = true)]
async fn renewing_costs_one_request() {
    let api = FakeApi::default();
    let _leadership = elected(&api, "a", &CancellationToken::new()).await;
    let before = api.requests();
    tokio::time::sleep(Duration::from_secs(21)).await;
    assert_eq!(api.requests() - before, 10);
}

#[test]
fn times_that_let_two_lead_are_refused() {
    let rows = [((15, 10, 2), true), ((10, 10, 2), false), ((15, 2, 2), false), ((15, 10, 0), false)];
    for ((lease, renew, retry), fine) in rows {
        let seconds = Duration::from_secs;
        let times =
            LeaseTimes { lease_duration: seconds(lease), renew_deadline: seconds(renew), retry_period: seconds(retry) };
        assert_eq!(times.check().is_ok(), fine, "{lease} {renew} {retry}");
    }
}
