use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::fake_api::FakeApi;
use crate::leader::{LeaderConfig, Leadership, lead};

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
    elected(&api, "a", &a).await;
    a.cancel();
    sleep(Duration::from_millis(10)).await;
    let start = Instant::now();
    elected(&api, "b", &b).await;
    assert!(start.elapsed() <= Duration::from_secs(2), "{:?}", start.elapsed());
    assert_eq!(holder(&api), "b");
    assert_eq!(api.objects()[0]["spec"]["leaseTransitions"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_silent_holder_is_replaced_after_the_time_it_promised_as_we_saw_it() {
    let api = FakeApi::default();
    // A holder that wrote once and died: its task is never polled again after the runtime drops it.
    let dead = CancellationToken::new();
    let holder_task = tokio::spawn({
        let (api, dead) = (api.clone(), dead.clone());
        async move { elected(&api, "dead", &dead).await }
    });
    holder_task.await.unwrap();
    // Freeze its renewals by making the lease look held by someone who never comes back.
    let lease = api.objects()[0].clone();
    dead.cancel();
    sleep(Duration::from_millis(10)).await;
    api.remove_all();
    let leases: kube::Api<k8s_openapi::api::coordination::v1::Lease> = kube::Api::namespaced(api.client(), "ns");
    let mut lease: k8s_openapi::api::coordination::v1::Lease = serde_json::from_value(lease).unwrap();
    lease.metadata.resource_version = None;
    leases.create(&Default::default(), &lease).await.unwrap();

    let start = Instant::now();
    elected(&api, "b", &CancellationToken::new()).await;
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
    elected(&api, "a", &a).await;
    b.cancel();
    assert!(lead(config(&api, "b"), b).await.is_none());
}
