use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use proptest::prelude::*;

use super::{object, value};
use crate::{Change, Informer, Ingest, Key, Store, WorkQueue};

fn informer() -> (Store<ConfigMap>, Ingest<ConfigMap>) {
    Informer::new().index("value", |o: &ConfigMap| vec![value(o)]).detached()
}

fn packed_informer() -> (Store<ConfigMap>, Ingest<ConfigMap>) {
    Informer::new().packed().index("value", |o: &ConfigMap| vec![value(o)]).detached()
}

/// Writes down what a subscriber hears.
fn listen(store: &Store<ConfigMap>) -> Arc<Mutex<Vec<String>>> {
    let heard = Arc::new(Mutex::new(vec![]));
    let log = heard.clone();
    store.subscribe(move |change| {
        let name = |o: &ConfigMap| {
            format!("{}@{}", o.metadata.name.clone().unwrap(), o.metadata.resource_version.clone().unwrap())
        };
        log.lock().push(match change {
            Change::Added(o) => format!("+{}", name(o)),
            Change::Updated { old, new } => format!("{}->{}", name(old), name(new)),
            Change::Deleted(o) => format!("-{}", name(o)),
        });
    });
    heard
}

fn heard(log: &Arc<Mutex<Vec<String>>>) -> Vec<String> {
    std::mem::take(&mut log.lock())
}

fn list(ingest: &mut Ingest<ConfigMap>, objects: Vec<ConfigMap>) {
    ingest.apply(Event::Init);
    objects.into_iter().for_each(|o| ingest.apply(Event::InitApply(o)));
    ingest.apply(Event::InitDone);
}

#[test]
fn a_deletion_missed_between_two_lists_is_delivered() {
    let (store, mut ingest) = informer();
    let log = listen(&store);
    list(&mut ingest, vec![object("a", "1", 1, "x"), object("b", "2", 2, "x")]);
    assert_eq!(heard(&log), ["+a@1", "+b@2"]);
    list(&mut ingest, vec![object("b", "2", 3, "x"), object("c", "3", 4, "x")]);
    assert_eq!(heard(&log), ["-a@1", "b@2->b@3", "+c@4"]);
    assert_eq!(store.get(&Key::new("ns", "a")), None);
}

/// A handler that reads the store it hears of keeps it alive, and the other way round.
#[test]
fn handlers_go_with_the_watch() {
    let (store, ingest) = informer();
    let token = Arc::new(());
    let (seen, own) = (Arc::downgrade(&token), store.clone());
    store.subscribe(move |_| assert!(Arc::strong_count(&token) == 1 && own.is_empty()));
    drop(store);
    assert!(seen.upgrade().is_some());
    drop(ingest);
    assert!(seen.upgrade().is_none());
}

#[test]
fn a_list_that_changes_nothing_says_nothing() {
    let (store, mut ingest) = informer();
    let log = listen(&store);
    list(&mut ingest, vec![object("a", "1", 1, "x")]);
    heard(&log);
    list(&mut ingest, vec![object("a", "1", 1, "x")]);
    assert!(heard(&log).is_empty());
}

#[test]
fn an_object_made_anew_under_its_old_name_is_a_deletion_and_an_addition() {
    let (store, mut ingest) = informer();
    let log = listen(&store);
    list(&mut ingest, vec![object("a", "1", 1, "x")]);
    heard(&log);
    ingest.apply(Event::Apply(object("a", "2", 5, "x")));
    assert_eq!(heard(&log), ["-a@1", "+a@5"]);
}

#[test]
fn an_interrupted_list_leaves_the_cache_as_it_was() {
    let (store, mut ingest) = informer();
    list(&mut ingest, vec![object("a", "1", 1, "x")]);
    ingest.apply(Event::Init);
    ingest.apply(Event::InitApply(object("b", "2", 2, "x")));
    assert_eq!(store.all().len(), 1, "nothing of the list is visible yet");
    list(&mut ingest, vec![object("a", "1", 1, "x")]);
    assert_eq!(store.get(&Key::new("ns", "b")), None, "what an abandoned list saw is forgotten");
}

#[test]
fn a_late_subscriber_hears_of_what_exists_once() {
    let (store, mut ingest) = informer();
    list(&mut ingest, vec![object("a", "1", 1, "x")]);
    let log = listen(&store);
    ingest.apply(Event::Apply(object("a", "1", 2, "x")));
    assert_eq!(heard(&log), ["+a@1", "a@1->a@2"]);
}

#[test]
fn a_panicking_handler_does_not_stop_the_watch_or_its_neighbours() {
    let (store, mut ingest) = informer();
    store.subscribe(|_| panic!("a handler's own mistake"));
    let log = listen(&store);
    ingest.apply(Event::Apply(object("a", "1", 1, "x")));
    ingest.apply(Event::Apply(object("b", "2", 2, "x")));
    assert_eq!(heard(&log), ["+a@1", "+b@2"]);
}

#[test]
fn a_deletion_of_an_unknown_object_is_not_told() {
    let (store, mut ingest) = informer();
    let log = listen(&store);
    ingest.apply(Event::Delete(object("a", "1", 1, "x")));
    assert!(heard(&log).is_empty());
}

#[test]
fn managed_fields_and_what_prune_drops_never_reach_the_cache() {
    let (store, mut ingest) = Informer::new().prune(|o: &mut ConfigMap| o.data = None).detached();
    let mut full = object("a", "1", 1, "x");
    full.metadata.managed_fields = Some(vec![ManagedFieldsEntry::default()]);
    ingest.apply(Event::Apply(full));
    let cached = store.get(&Key::new("ns", "a")).unwrap();
    assert_eq!((cached.data.clone(), cached.metadata.managed_fields.clone()), (None, None));
}

#[tokio::test]
async fn synced_comes_with_the_first_list_and_says_no_when_the_watch_ends_before() {
    let (store, mut ingest) = informer();
    assert!(!store.is_synced());
    list(&mut ingest, vec![]);
    assert!(store.synced().await);
    let (store, ingest) = informer();
    drop(ingest);
    assert!(!store.synced().await);
}

#[test]
fn a_fed_queue_holds_each_changed_key_once() {
    let (store, mut ingest) = informer();
    let queue = WorkQueue::new("test");
    store.feed(&queue);
    for version in 1..100 {
        ingest.apply(Event::Apply(object("a", "1", version, "x")));
    }
    assert_eq!(queue.stats().ready, 1);
}

#[test]
fn a_packed_cache_gives_back_what_was_put_in() {
    let (store, mut ingest) = packed_informer();
    let log = listen(&store);
    let (a, b) = (object("a", "1", 1, "x"), object("b", "2", 2, "x"));
    list(&mut ingest, vec![a.clone()]);
    ingest.apply(Event::Apply(b.clone()));
    ingest.apply(Event::Apply(object("a", "1", 3, "y")));
    assert_eq!(heard(&log), ["+a@1", "+b@2", "a@1->a@3"]);
    assert_eq!(store.get(&Key::new("ns", "b")).as_deref(), Some(&b));
    assert_eq!(store.by_index("value", "y")[0].metadata.resource_version.as_deref(), Some("3"));
    assert_eq!(store.keys_by_index("value", "x"), [Key::new("ns", "b")]);
    let json = serde_json::to_vec(&b).unwrap().len();
    assert_eq!(store.packed_bytes(), 2 * json, "nothing is kept but the text");
}

#[test]
fn a_namespace_can_be_listed_without_an_index() {
    let (store, mut ingest) = informer();
    for (namespace, name) in [("a", "x"), ("b", "z"), ("b", "y"), ("ba", "w")] {
        let mut o = object(name, name, 1, "v");
        o.metadata.namespace = Some(namespace.into());
        ingest.apply(Event::Apply(o));
    }
    let names: Vec<_> = store.in_namespace("b").iter().map(|o| o.metadata.name.clone().unwrap()).collect();
    assert_eq!(names, ["y", "z"]);
    assert!(store.in_namespace("c").is_empty());
}

#[test]
fn a_new_object_goes_before_those_that_are_looked_after_already() {
    let (store, mut ingest) = informer();
    let queue = WorkQueue::new("test");
    store.feed(&queue);
    for (name, version) in [("old", 1), ("older", 2)] {
        ingest.apply(Event::Apply(object(name, name, version, "x")));
        drop(queue.try_get());
    }
    ingest.apply(Event::Apply(object("old", "old", 3, "x")));
    ingest.apply(Event::Apply(object("new", "new", 4, "x")));
    let order: Vec<String> = std::iter::from_fn(|| queue.try_get()).map(|claim| claim.name.clone()).collect();
    assert_eq!(order, ["new", "old"]);
}

#[derive(Clone, Debug)]
enum Op {
    Apply(u8, u8),
    Delete(u8),
    Relist(Vec<(u8, u8)>),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        (0..5u8, 0..3u8).prop_map(|(name, value)| Op::Apply(name, value)),
        (0..5u8).prop_map(Op::Delete),
        prop::collection::vec((0..5u8, 0..3u8), 0..5).prop_map(Op::Relist),
    ];
    prop::collection::vec(op, 0..40)
}

proptest! {
    /// Whatever happens, the index agrees with a scan, and a subscriber that applies changes to a set of its own ends up
    /// with the same objects.
    #[test]
    fn index_and_subscriber_agree_with_the_cache(ops in ops(), packed: bool) {
        let (store, mut ingest) = if packed { packed_informer() } else { informer() };
        let mirror = Arc::new(Mutex::new(std::collections::BTreeMap::new()));
        let copy = mirror.clone();
        store.subscribe(move |change| {
            let mut copy = copy.lock();
            let key = Key::of(change.object().as_ref());
            match change {
                Change::Added(o) => assert!(copy.insert(key, o.clone()).is_none(), "added twice"),
                Change::Updated { old, new } => {
                    let before = copy.insert(key, new.clone()).expect("updated without having been added");
                    assert_eq!(&before, &**old);
                }
                Change::Deleted(_) => assert!(copy.remove(&key).is_some(), "deleted without having been added"),
            }
        });
        let mut version = 0;
        let mut make = |name: u8, value: u8| {
            version += 1;
            object(&format!("n{name}"), "u", version, &format!("v{value}"))
        };
        for op in ops {
            match op {
                Op::Apply(name, value) => ingest.apply(Event::Apply(make(name, value))),
                Op::Delete(name) => ingest.apply(Event::Delete(make(name, 0))),
                Op::Relist(entries) => {
                    let objects = entries.into_iter().map(|(name, value)| make(name, value)).collect();
                    list(&mut ingest, objects);
                }
            }
            for wanted in ["v0", "v1", "v2"] {
                let scanned: Vec<_> = store.all().into_iter().filter(|o| value(o) == wanted).collect();
                prop_assert_eq!(store.by_index("value", wanted), scanned);
            }
            prop_assert_eq!(store.all(), mirror.lock().values().cloned().collect::<Vec<_>>());
        }
    }
}
