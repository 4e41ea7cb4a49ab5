//! Lists and watches: versions, selectors, pages, bookmarks, the end of a watch.
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::time::Duration;

use crate::common::{TestServer, eventually, raw, raw_json, raw_with_headers, refusal};
use futures::{AsyncBufReadExt as _, StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str, label: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"l": label}}})).unwrap()
}

async fn create(client: &Client, name: &str, label: &str) -> ConfigMap {
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &config_map(name, label)).await.unwrap()
}

/// A watch read line by line.
struct Lines(futures::stream::BoxStream<'static, Value>);

impl Lines {
    async fn open(client: &Client, path: &str) -> Self {
        let request = http::Request::builder().uri(path).body(vec![]).unwrap();
        let stream = client.request_stream(request).await.unwrap();
        let lines = stream.lines().map_ok(|line| serde_json::from_str(&line).unwrap());
        Self(lines.map(Result::unwrap).boxed())
    }

    async fn next(&mut self) -> Option<Value> {
        tokio::time::timeout(Duration::from_secs(20), self.0.next()).await.expect("the watch has nothing to say")
    }

    /// Type, name and version of the next event.
    async fn event(&mut self) -> (String, String, String) {
        let event = self.next().await.expect("the watch ended");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &event["object"]["metadata"];
        (text(&event["type"]), text(&metadata["name"]), text(&metadata["resourceVersion"]))
    }

    async fn expect(&mut self, kind: &str, name: &str) -> String {
        let (found, object, version) = self.event().await;
        assert_eq!((found.as_str(), object.as_str()), (kind, name));
        version
    }
}

#[tokio::test]
async fn a_watch_tells_what_happens_after_its_version() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&client, "before", "x").await;
    let version = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    create(&client, "a", "x").await;
    let mut watch = Lines::open(&client, &format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    watch.expect("ADDED", "a").await;
    let patch = json!({"data": {"k": "v"}});
    let patched = api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(watch.expect("MODIFIED", "a").await, patched.resource_version().unwrap());
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let deleted: u64 = watch.expect("DELETED", "a").await.parse().unwrap();
    assert!(deleted > patched.resource_version().unwrap().parse().unwrap());

    for start in ["", "&resourceVersion=0"] {
        let mut watch = Lines::open(&client, &format!("{MAPS}?watch=1{start}")).await;
        watch.expect("ADDED", "before").await;
    }
    let by_name = format!("{MAPS}?watch=1&fieldSelector=metadata.name%3Dbefore");
    Lines::open(&client, &by_name).await.expect("ADDED", "before").await;
}

#[tokio::test]
async fn objects_come_and_go_with_the_selector() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&client, "a", "x").await;
    create(&client, "b", "y").await;
    let mut watch = Lines::open(&client, &format!("{MAPS}?watch=1&labelSelector=l%3Dx")).await;
    watch.expect("ADDED", "a").await;
    let label = |value: &str| json!({"metadata": {"labels": {"l": value}}});
    let params = PatchParams::default();
    api.patch("b", &params, &Patch::Merge(label("x"))).await.unwrap();
    watch.expect("ADDED", "b").await;
    let left = api.patch("a", &params, &Patch::Merge(label("z"))).await.unwrap();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"]["l"], "x", "the last version that matched");
    assert_eq!(event["object"]["metadata"]["resourceVersion"], left.resource_version().unwrap(), "as of the change");
    api.delete("a", &DeleteParams::default()).await.unwrap();
    api.patch("b", &params, &Patch::Merge(json!({"data": {"k": "v"}}))).await.unwrap();
    watch.expect("MODIFIED", "b").await; // nothing about a, which does not match

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let mut watch = Lines::open(&client, "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn1").await;
    let binding = json!({"target": {"name": "n1"}});
    pods.create_subresource::<_, Value>("binding", "p", &PostParams::default(), &binding).await.unwrap();
    watch.expect("ADDED", "p").await;
    let found = pods.list(&ListParams::default().fields("spec.nodeName=n1,status.phase!=Failed")).await.unwrap();
    assert_eq!(found.items.len(), 1);
    assert!(pods.list(&ListParams::default().fields("spec.nodeName=n2")).await.unwrap().items.is_empty());
}

#[tokio::test]
async fn a_version_that_is_forgotten_ends_the_watch_with_an_event() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let (dir, authority) = server.stop().await;
    drop(client);
    let server = TestServer::start_in(dir, authority).await; // a new server has no history
    let client = server.admin().await;
    let mut watch = Lines::open(&client, &format!("{MAPS}?watch=1&resourceVersion=1")).await;
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(410)), "{event}");
    assert_eq!(event["object"]["reason"], "Expired");
    assert!(watch.next().await.is_none());
    let (code, answer) =
        raw_json(&client, "GET", &format!("{MAPS}?resourceVersion=1&resourceVersionMatch=Exact"), &Value::Null).await;
    assert_eq!((code, &answer["reason"]), (410, &json!("Expired")));
}

#[tokio::test]
async fn a_list_can_be_had_as_it_was() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&client, "a", "x").await;
    create(&client, "b", "x").await;
    let then = api.list(&ListParams::default()).await.unwrap().metadata.resource_version.unwrap();
    create(&client, "c", "x").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    api.patch("b", &PatchParams::default(), &Patch::Merge(json!({"data": {"k": "v"}}))).await.unwrap();
    let exact = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=Exact");
    let (code, list) = raw_json(&client, "GET", &exact, &Value::Null).await;
    assert_eq!((code, &list["metadata"]["resourceVersion"]), (200, &json!(then)));
    let items = list["items"].as_array().unwrap();
    let names: Vec<&str> = items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(items[1].get("data").is_none(), "b as it was");

    let newer = format!("{MAPS}?resourceVersion={then}&resourceVersionMatch=NotOlderThan");
    let (_, list) = raw_json(&client, "GET", &newer, &Value::Null).await;
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
    let table = [
        (format!("{MAPS}?resourceVersionMatch=Exact"), 422),
        (format!("{MAPS}?resourceVersion=0&resourceVersionMatch=Exact"), 422),
        (format!("{MAPS}?resourceVersion=x"), 400),
        (format!("{MAPS}?resourceVersion=999999"), 504),
        (format!("{MAPS}?continue=nonsense"), 400),
        (format!("{MAPS}?watch=1&sendInitialEvents=true"), 422),
        (format!("{MAPS}?watch=1&resourceVersionMatch=NotOlderThan&resourceVersion=1"), 422),
    ];
    for (path, expected) in table {
        let (code, answer) = raw(&client, "GET", &path, &[], "").await;
        assert_eq!(code, expected, "{path}: {answer}");
    }
}

#[tokio::test]
async fn pages_show_one_moment() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for index in 0..5 {
        create(&client, &format!("m{index}"), "x").await;
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(first.items.len(), 2);
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    let token = first.metadata.continue_.clone().unwrap();
    api.delete("m3", &DeleteParams::default()).await.unwrap();
    create(&client, "m2b", "x").await;
    let rest = api.list(&ListParams::default().limit(10).continue_token(&token)).await.unwrap();
    let names: Vec<String> = rest.items.iter().map(|map| map.name_any()).collect();
    assert_eq!(names, ["m2", "m3", "m4"], "as they were when the first page was made");
    assert_eq!(rest.metadata.resource_version, first.metadata.resource_version);
    assert_eq!(rest.metadata.continue_.unwrap_or_default(), "");
}

#[tokio::test]
async fn a_streaming_list_says_when_it_is_complete() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    create(&client, "a", "x").await;
    create(&client, "b", "x").await;
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Lines::open(&client, &format!("{MAPS}?{query}")).await;
    watch.expect("ADDED", "a").await;
    watch.expect("ADDED", "b").await;
    let bookmark = watch.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    create(&client, "c", "x").await;
    watch.expect("ADDED", "c").await;

    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let stream = watcher(api, watcher::Config::default().streaming_lists()).applied_objects();
    let names: Vec<String> = stream.take(3).map(|object| object.unwrap().name_any()).collect().await;
    assert_eq!(names.len(), 3);
}

#[tokio::test]
async fn a_watch_ends_in_time_with_a_bookmark_and_with_the_server() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let map = create(&client, "a", "x").await;
    let version = map.resource_version().unwrap();
    let path = format!("{MAPS}?watch=1&resourceVersion={version}&timeoutSeconds=1&allowWatchBookmarks=true");
    let mut watch = Lines::open(&client, &path).await;
    // Something of another kind moves the world on, and the bookmark with it.
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    let (kind, _, bookmark) = watch.event().await;
    assert_eq!(kind, "BOOKMARK");
    assert_eq!(bookmark, pod.resource_version().unwrap());
    assert!(watch.next().await.is_none());

    let mut watch = Lines::open(&client, &format!("{MAPS}?watch=1&resourceVersion={version}")).await;
    let stopping = server.stop();
    let (ended, _) = tokio::join!(watch.next(), stopping);
    assert!(ended.is_none());
}

#[tokio::test]
async fn a_reflector_follows_through_a_restart() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&client, "a", "x").await;
    let events = watcher(api, watcher::Config::default()).default_backoff().applied_objects();
    let mut events = Box::pin(events);
    assert_eq!(events.try_next().await.unwrap().unwrap().name_any(), "a");
    create(&client, "b", "x").await;
    assert_eq!(events.try_next().await.unwrap().unwrap().name_any(), "b");

    let port = server.port();
    let ((dir, authority), _) = tokio::join!(server.stop(), async {
        // The watch must be polled to see its end.
        let _ended = tokio::time::timeout(Duration::from_secs(1), events.next()).await;
    });
    let server = TestServer::start_at(dir, authority, port).await;
    let client = server.admin().await;
    create(&client, "c", "x").await;
    let seen = async {
        loop {
            if events.next().await.unwrap().is_ok_and(|object| object.name_any() == "c") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), seen).await.expect("c is seen after the restart");
}

#[tokio::test]
async fn tables_have_the_columns_of_their_kind() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    create(&client, "a", "x").await;
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json")];
    let (code, text) = raw(&client, "GET", MAPS, &accept, "").await;
    let table: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &table["kind"]), (200, &json!("Table")));
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|column| column["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"][0], "a");
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let (_, text) = raw(&client, "GET", "/apis/kubevirt.io/v1/virtualmachineinstances", &accept, "").await;
    let table: Value = serde_json::from_str(&text).unwrap();
    let columns: Vec<(&str, i64)> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| (column["name"].as_str().unwrap(), column["priority"].as_i64().unwrap()))
        .collect();
    let expected = [
        ("Name", 0),
        ("Age", 0),
        ("Phase", 0),
        ("IP", 0),
        ("NodeName", 0),
        ("Ready", 0),
        ("Live-Migratable", 1),
        ("Paused", 1),
    ];
    assert_eq!(columns, expected);
    let accept = [("accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")];
    let (_, text) = raw(&client, "GET", MAPS, &accept, "").await;
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["kind"], "PartialObjectMetadataList");
    assert_eq!(list["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn a_slow_watch_is_told_to_start_over() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let map = create(&client, "a", "x").await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    // Versions of 512 KiB push each other out of a history of 4 MiB.
    let big = "x".repeat(512 << 10);
    for index in 0..12 {
        let patch = json!({"data": {"k": format!("{index}{big}")}});
        api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }
    let path = format!("{MAPS}?watch=1&resourceVersion={}", map.resource_version().unwrap());
    let mut watch = Lines::open(&client, &path).await;
    assert_eq!(watch.next().await.unwrap()["object"]["code"], 410);
    let (code, _, message) = refusal(api.create(&PostParams::default(), &config_map("a", "x")).await);
    assert_eq!(code, 409, "{message}");
}

#[tokio::test]
async fn discovery_is_told_both_ways() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let groups = client.list_api_groups().await.unwrap();
    let names: Vec<&str> = groups.groups.iter().map(|group| group.name.as_str()).collect();
    assert!(names.contains(&"kubevirt.io") && !names.contains(&"subresources.kubevirt.io"), "{names:?}");
    let resources = client.list_api_group_resources("kubevirt.io/v1").await.unwrap();
    let vm = resources.resources.iter().find(|resource| resource.name == "virtualmachines").unwrap();
    assert_eq!(vm.short_names.as_deref().unwrap(), ["vm", "vms"]);
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let (_, headers, text) = raw_with_headers(&client, "GET", "/apis", &[("accept", accept)], "").await;
    assert!(headers["content-type"].to_str().unwrap().contains("as=APIGroupDiscoveryList"));
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["kind"], "APIGroupDiscoveryList");

    let router = axum::Router::new().route(
        "/apis/subresources.kubevirt.io/v1",
        axum::routing::get(|| async { axum::Json(json!({"resources": [{"name": "virtualmachines/start"}]})) }),
    );
    server.server.mount_subresources(router);
    let names = eventually("the group to be listed", || async {
        let groups = client.list_api_groups().await.unwrap().groups;
        groups.iter().any(|group| group.name == "subresources.kubevirt.io").then_some(groups)
    })
    .await;
    assert_eq!(names.last().unwrap().preferred_version.as_ref().unwrap().version, "v1");
    let version = client.apiserver_version().await.unwrap();
    assert_eq!(version.git_version, "v1.34.0+ferrovirt");
}
