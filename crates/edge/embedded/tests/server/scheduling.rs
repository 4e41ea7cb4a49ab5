//! The scheduler against a real server.
#![allow(clippy::unwrap_used)] // a test may fail this way

use crate::common::{TestServer, eventually};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

async fn node(client: &Client, name: &str, cpu: &str) {
    let node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "4Gi", "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    });
    let api: Api<Node> = Api::all(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
}

async fn pod(api: &Api<Pod>, name: &str, cpu: &str, spec: Value) {
    let mut spec = spec;
    spec["containers"] = json!([{"name": "a", "image": "b", "resources": {"requests": {"cpu": cpu}}}]);
    let pod = json!({"metadata": {"name": name}, "spec": spec});
    api.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

async fn bound(api: &Api<Pod>, name: &str) -> String {
    eventually(&format!("{name} to be bound"), || async { api.get(name).await.unwrap().spec?.node_name }).await
}

async fn reason(api: &Api<Pod>, name: &str, expected: &str) -> Pod {
    eventually(&format!("{name} to say {expected:?}"), || async {
        let pod = api.get(name).await.unwrap();
        let conditions = pod.status.as_ref()?.conditions.as_ref()?;
        let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
        (scheduled.status == "False" && scheduled.message.as_deref() == Some(expected)).then(|| pod.clone())
    })
    .await
}

#[tokio::test]
async fn pods_are_bound_or_told_why_not() {
    let server = TestServer::start().await;
    let admin = server.admin().await;
    let stop = CancellationToken::new();
    let client = server.client("system:kube-scheduler", &[]).await;
    let scheduler = tokio::spawn(embedded::scheduler::run(client, stop.clone()));
    let api: Api<Pod> = Api::default_namespaced(admin.clone());

    pod(&api, "early", "1", json!({})).await;
    let waiting = reason(&api, "early", "no nodes available to schedule pods").await;
    node(&admin, "n1", "2").await;
    node(&admin, "n2", "2").await;
    let first = bound(&api, "early").await;
    pod(&api, "second", "1", json!({})).await;
    assert_ne!(bound(&api, "second").await, first, "the emptier node");

    pod(&api, "gated", "1", json!({"schedulingGates": [{"name": "x"}]})).await;
    pod(&api, "foreign", "1", json!({"schedulerName": "other"})).await;
    pod(&api, "large", "3", json!({})).await;
    let large = reason(&api, "large", "0/2 nodes are available: 2 Insufficient cpu.").await;
    for name in ["gated", "foreign"] {
        let pod = api.get(name).await.unwrap();
        assert_eq!(pod.spec.unwrap().node_name, None, "{name} is not for this scheduler, or not yet");
    }

    // A reason that stays is not written again, however much happens.
    for index in 0..3 {
        pod(&api, &format!("small{index}"), "10m", json!({})).await;
        bound(&api, &format!("small{index}")).await;
    }
    assert_eq!(api.get("large").await.unwrap().resource_version(), large.resource_version());
    assert!(waiting.resource_version() < large.resource_version());

    node(&admin, "n3", "8").await;
    assert_eq!(bound(&api, "large").await, "n3");
    let ungate = json!({"spec": {"schedulingGates": null}});
    api.patch("gated", &PatchParams::default(), &Patch::Merge(&ungate)).await.unwrap();
    bound(&api, "gated").await;

    stop.cancel();
    scheduler.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_node_is_never_given_out_twice() {
    let server = TestServer::start().await;
    let admin = server.admin().await;
    for index in 0..3 {
        node(&admin, &format!("n{index}"), "4").await;
    }
    let api: Api<Pod> = Api::default_namespaced(admin.clone());
    // More than fit, before the scheduler has seen anything.
    for index in 0..20 {
        pod(&api, &format!("p{index}"), "1", json!({})).await;
    }
    let stop = CancellationToken::new();
    let client = server.client("system:kube-scheduler", &[]).await;
    let scheduler = tokio::spawn(embedded::scheduler::run(client, stop.clone()));
    let pods = eventually("twelve to be bound and eight to wait", || async {
        let pods = api.list(&ListParams::default()).await.unwrap().items;
        let decided = pods.iter().filter(|pod| {
            pod.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some_and(|list| !list.is_empty())
        });
        (decided.count() == 20).then_some(pods)
    })
    .await;
    for index in 0..3 {
        let name = format!("n{index}");
        let here = pods.iter().filter(|pod| pod.spec.as_ref().unwrap().node_name.as_deref() == Some(&name));
        assert_eq!(here.count(), 4, "{name}");
    }
    stop.cancel();
    scheduler.await.unwrap().unwrap();
}
