use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::fake_api::FakeApi;
use crate::{EventType, Recorder};

fn about(name: &str) -> ObjectReference {
    ObjectReference {
        kind: Some("VirtualMachine".into()),
        namespace: Some("ns".into()),
        name: Some(name.into()),
        uid: Some(format!("uid-{name}")),
        ..Default::default()
    }
}

fn recorder(api: &FakeApi) -> Recorder {
    Recorder::start(api.client(), "test-controller", "host", CancellationToken::new())
}

async fn settle() {
    sleep(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn repeats_raise_the_count_of_one_event() {
    let api = FakeApi::default();
    let recorder = recorder(&api);
    for _ in 0..3 {
        recorder.publish(about("vm"), EventType::Warning, "FailedCreate", "no room");
    }
    recorder.publish(about("vm"), EventType::Normal, "SuccessfulCreate", "made it");
    settle().await;
    let events = api.objects();
    let counts: Vec<_> = events.iter().map(|e| (e["reason"].as_str().unwrap(), e["count"].as_i64().unwrap())).collect();
    assert_eq!(counts.len(), 2);
    assert!(counts.contains(&("FailedCreate", 3)) && counts.contains(&("SuccessfulCreate", 1)));
    let event = events.iter().find(|e| e["reason"] == "FailedCreate").unwrap();
    assert_eq!(event["type"], "Warning");
    assert_eq!(event["source"]["component"], "test-controller");
    assert_eq!(event["involvedObject"]["uid"], "uid-vm");
}

#[tokio::test(start_paused = true)]
async fn the_next_process_continues_the_count() {
    let api = FakeApi::default();
    for _ in 0..2 {
        recorder(&api).publish(about("vm"), EventType::Normal, "Started", "up");
        settle().await;
    }
    assert_eq!(api.objects().len(), 1);
    assert_eq!(api.objects()[0]["count"], 2);
}

#[tokio::test(start_paused = true)]
async fn one_noisy_object_is_held_back_and_its_repeats_are_still_counted() {
    let api = FakeApi::default();
    let recorder = recorder(&api);
    for _ in 0..100 {
        recorder.publish(about("noisy"), EventType::Warning, "Again", "and again");
    }
    recorder.publish(about("quiet"), EventType::Normal, "Once", "only");
    settle().await;
    let writes = api.requests();
    assert!(writes <= 26, "{writes} requests for 101 events");
    sleep(Duration::from_secs(300)).await;
    recorder.publish(about("noisy"), EventType::Warning, "Again", "and again");
    settle().await;
    let count = api.objects().iter().find(|e| e["reason"] == "Again").unwrap()["count"].as_i64();
    assert_eq!(count, Some(101));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_expired_is_made_anew() {
    let api = FakeApi::default();
    let recorder = recorder(&api);
    recorder.publish(about("vm"), EventType::Normal, "Started", "up");
    settle().await;
    api.remove_all();
    recorder.publish(about("vm"), EventType::Normal, "Started", "up");
    settle().await;
    assert_eq!(api.objects()[0]["count"], 1);
}

#[tokio::test(start_paused = true)]
async fn events_outlast_a_short_outage_and_are_flushed_at_the_end() {
    let api = FakeApi::default();
    let shutdown = CancellationToken::new();
    let recorder = Recorder::start(api.client(), "test-controller", "host", shutdown.clone());
    api.set_down(true);
    recorder.publish(about("vm"), EventType::Normal, "Started", "up");
    sleep(Duration::from_millis(500)).await;
    api.set_down(false);
    settle().await;
    assert_eq!(api.objects().len(), 1);
    recorder.publish(about("vm"), EventType::Normal, "Stopped", "down");
    shutdown.cancel();
    settle().await;
    assert_eq!(api.objects().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn names_of_events_fit_however_long_the_object_is_called() {
    let api = FakeApi::default();
    recorder(&api).publish(about(&"x".repeat(253)), EventType::Normal, "Started", "up");
    settle().await;
    assert!(api.objects()[0]["metadata"]["name"].as_str().unwrap().len() <= 253);
}

#[tokio::test(start_paused = true)]
async fn events_that_differ_only_in_their_message_are_combined_after_ten() {
    let api = FakeApi::default();
    let recorder = recorder(&api);
    for number in 0..14 {
        recorder.publish(about("vm"), EventType::Warning, "FailedCreate", format!("attempt {number}"));
    }
    settle().await;
    let events = api.objects();
    assert_eq!(events.len(), 11, "ten on their own and one for the rest");
    let combined = events.iter().find(|e| e["message"].as_str().unwrap().starts_with("(combined")).unwrap();
    assert_eq!(combined["message"], "(combined from similar events): attempt 13");
    assert_eq!(combined["count"], 4);

    recorder.publish(about("vm"), EventType::Warning, "FailedCreate", "attempt 0");
    settle().await;
    let first = api.objects().into_iter().find(|e| e["message"] == "attempt 0").unwrap();
    assert_eq!(first["count"], 2, "a message known before is still counted on its own");

    sleep(Duration::from_secs(601)).await;
    recorder.publish(about("vm"), EventType::Warning, "FailedCreate", "attempt 99");
    settle().await;
    assert!(api.objects().iter().any(|e| e["message"] == "attempt 99"), "after a pause messages are told apart again");
}

#[tokio::test(start_paused = true)]
async fn components_of_one_process_share_the_writer_and_sign_with_their_own_names() {
    let api = FakeApi::default();
    let recorder = recorder(&api);
    recorder.publish(about("vm"), EventType::Normal, "Started", "up");
    recorder.of("node-controller").publish(about("vm"), EventType::Normal, "Started", "up");
    settle().await;
    let mut sources: Vec<_> = api.objects().iter().map(|e| e["source"]["component"].clone()).collect();
    sources.sort_by_key(ToString::to_string);
    assert_eq!(sources, ["node-controller", "test-controller"]);
}
