use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{self, BoxStream};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::core::Status;
use kube::runtime::watcher::{self, Config, Error, Event, InitialListStrategy};
use parking_lot::Mutex;
use tokio::time::timeout;

use super::object;
use crate::watch::keep_watching;
use crate::{Informer, Store};

type Items = Vec<watcher::Result<Event<ConfigMap>>>;

fn refused(code: u16) -> watcher::Result<Event<ConfigMap>> {
    let status = Status { code, message: "no".into(), reason: "Test".into(), ..Default::default() };
    Err(Error::WatchStartFailed(kube::Error::Api(Box::new(status))))
}

fn listed(objects: Vec<ConfigMap>) -> Items {
    let items = objects.into_iter().map(|o| Ok(Event::InitApply(o)));
    std::iter::once(Ok(Event::Init)).chain(items).chain([Ok(Event::InitDone)]).collect()
}

/// Runs the watch loop over scripted streams; each `open` takes the next one, which stays silent at its end.
/// Returns the store and how each stream was opened.
async fn run(config: Config, scripts: Vec<Items>) -> (Store<ConfigMap>, Vec<InitialListStrategy>) {
    run_optional(false, config, scripts).await
}

async fn run_optional(
    optional: bool,
    config: Config,
    scripts: Vec<Items>,
) -> (Store<ConfigMap>, Vec<InitialListStrategy>) {
    let (store, ingest) = Informer::new().detached();
    let scripts = Arc::new(Mutex::new(VecDeque::from(scripts)));
    let opened = Arc::new(Mutex::new(vec![]));
    let log = opened.clone();
    let open = move |config: Config| -> BoxStream<'static, watcher::Result<Event<ConfigMap>>> {
        log.lock().push(config.initial_list_strategy);
        let script = scripts.lock().pop_front().unwrap_or_default();
        stream::iter(script).chain(stream::pending()).boxed()
    };
    timeout(Duration::from_secs(600), keep_watching(config, optional, open, ingest)).await.unwrap_err();
    let opened = opened.lock().clone();
    (store, opened)
}

#[tokio::test(start_paused = true)]
async fn a_watch_refused_with_410_is_listed_again() {
    let first = [listed(vec![object("a", "1", 1, "x")]), vec![refused(410)]].into_iter().flatten().collect();
    let (store, opened) = run(Config::default(), vec![first, listed(vec![object("b", "2", 2, "x")])]).await;
    assert_eq!(opened.len(), 2);
    assert_eq!(store.all().len(), 1);
    assert_eq!(store.all()[0].metadata.name.as_deref(), Some("b"));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_the_plain_way() {
    let (store, opened) = run(Config::default().streaming_lists(), vec![vec![refused(422)], listed(vec![])]).await;
    assert_eq!(opened, [InitialListStrategy::StreamingList, InitialListStrategy::ListWatch]);
    assert!(store.is_synced());
}

#[tokio::test(start_paused = true)]
async fn other_errors_leave_recovery_to_the_stream() {
    let script = [vec![refused(500)], listed(vec![object("a", "1", 1, "x")])].into_iter().flatten().collect();
    let (store, opened) = run(Config::default(), vec![script]).await;
    assert_eq!(opened.len(), 1);
    assert_eq!(store.all().len(), 1);
}

fn unknown_kind() -> Items {
    let status = Status { code: 404, message: "no such kind".into(), reason: "NotFound".into(), ..Default::default() };
    vec![Err(Error::InitialListFailed(kube::Error::Api(Box::new(status))))]
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_may_be_absent_is_complete_and_empty_until_it_appears() {
    let (store, opened) = run_optional(true, Config::default(), vec![unknown_kind()]).await;
    assert!(store.is_synced() && store.is_empty());
    assert!(opened.len() > 1, "it is asked for again");

    let appears = vec![unknown_kind(), unknown_kind(), listed(vec![object("a", "1", 1, "x")])];
    let (store, _) = run_optional(true, Config::default(), appears).await;
    assert_eq!(store.len(), 1);

    let goes = vec![listed(vec![object("a", "1", 1, "x")]).into_iter().chain(unknown_kind()).collect(), unknown_kind()];
    let (store, _) = run_optional(true, Config::default(), goes).await;
    assert!(store.is_empty(), "with the kind its objects are gone");
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_must_be_there_is_waited_for() {
    let (store, _) = run(Config::default(), vec![unknown_kind()]).await;
    assert!(!store.is_synced());
}
