//! Evictions, disruption budgets and quotas as a client meets them.
#![allow(clippy::unwrap_used)] // a test may fail this way

use crate::common::{TestServer, eventually, raw_json, refusal};
use api::v1::VirtualMachineInstance;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const CONTROLLER: &str = "system:serviceaccount:kubevirt:kubevirt-controller";

async fn create<K>(client: &Client, object: Value) -> Result<K, kube::Error>
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    K: Clone + std::fmt::Debug + DeserializeOwned + Serialize,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
}

async fn pod(client: &Client, name: &str, over: Value) -> Result<Pod, kube::Error> {
    let mut object = json!({
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {"terminationGracePeriodSeconds": 0, "nodeName": "n1", "containers": [{
            "name": "c", "image": "x", "resources": {"requests": {"cpu": "100m", "memory": "100Mi"}},
        }]},
    });
    json_patch::merge(&mut object, &over);
    create(client, object).await
}

async fn set_status(client: &Client, name: &str, status: Value) {
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(name, &PatchParams::default(), &patch).await.unwrap();
}

async fn evict(client: &Client, name: &str, over: Value) -> (u16, Value) {
    let mut eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    json_patch::merge(&mut eviction, &over);
    raw_json(client, "POST", &format!("/api/v1/namespaces/default/pods/{name}/eviction"), &eviction).await
}

#[tokio::test]
async fn a_pod_is_evicted_unless_a_budget_needs_it() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let running = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
    for name in ["a", "b"] {
        pod(&client, name, json!({})).await.unwrap();
        set_status(&client, name, running.clone()).await;
    }
    let spec = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}});
    create::<PodDisruptionBudget>(&client, json!({"metadata": {"name": "one"}, "spec": spec})).await.unwrap();

    let (code, answer) = evict(&client, "a", json!({"deleteOptions": {"dryRun": ["All"]}})).await;
    assert_eq!((code, &answer["status"]), (201, &json!("Success")));
    let (code, answer) = evict(&client, "a", json!({})).await;
    assert_eq!((code, &answer["status"]), (201, &json!("Success")), "the dry run took nothing");
    assert_eq!(evict(&client, "a", json!({})).await.0, 404);
    let (code, answer) = evict(&client, "b", json!({})).await;
    assert_eq!((code, &answer["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(answer["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    assert_eq!(answer["details"]["causes"][0]["reason"], "DisruptionBudget");
    let said = "The disruption budget one needs 1 healthy pods and has 1 currently";
    assert_eq!(answer["details"]["causes"][0]["message"], said);

    create::<PodDisruptionBudget>(&client, json!({"metadata": {"name": "two"}, "spec": spec})).await.unwrap();
    assert_eq!(evict(&client, "b", json!({})).await.0, 500, "two budgets");
    assert_eq!(evict(&client, "b", json!({"metadata": {"name": "other"}})).await.0, 400);
    set_status(&client, "b", json!({"phase": "Succeeded"})).await;
    assert_eq!(evict(&client, "b", json!({})).await.0, 201, "what has ended is needed by nobody");
}

/// An instance on n1 that can be moved, and its launcher Pod `l`.
async fn guest(server: &TestServer, client: &Client, strategy: &str) {
    let spec = json!({"evictionStrategy": strategy, "domain": {"memory": {"guest": "64Mi"}, "devices": {}}});
    let vmi: VirtualMachineInstance = create(client, json!({"metadata": {"name": "v"}, "spec": spec})).await.unwrap();
    let owner = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "name": "v",
        "uid": vmi.metadata.uid, "controller": true, "blockOwnerDeletion": true});
    let metadata = json!({"labels": {"kubevirt.io": "virt-launcher"}, "annotations": {"kubevirt.io/domain": "v"},
        "ownerReferences": [owner]});
    pod(client, "l", json!({"metadata": metadata})).await.unwrap();
    set_status(client, "l", json!({"phase": "Running"})).await;
    let controller = server.client(CONTROLLER, &[]).await;
    let status = json!({"phase": "Running", "nodeName": "n1",
        "conditions": [{"type": "LiveMigratable", "status": "True", "lastTransitionTime": null}]});
    let api: Api<VirtualMachineInstance> = Api::default_namespaced(controller);
    api.patch("v", &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await.unwrap();
}

async fn evacuated_from(client: &Client) -> Option<String> {
    let api: Api<VirtualMachineInstance> = Api::default_namespaced(client.clone());
    api.get("v").await.unwrap().status.unwrap().evacuation_node_name
}

#[tokio::test]
async fn a_guest_that_can_be_moved_is_marked_and_its_pod_stays() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    guest(&server, &client, "LiveMigrate").await;

    let (code, answer) = evict(&client, "l", json!({"deleteOptions": {"dryRun": ["All"]}})).await;
    let said = concat!(
        r#"admission webhook "virt-launcher-eviction-interceptor.kubevirt.io" denied the request: "#,
        r#"Eviction triggered evacuation of VMI "default/v""#
    );
    assert_eq!((code, answer["message"].as_str()), (429, Some(said)));
    assert_eq!(evacuated_from(&client).await, None, "a dry run marks nothing");
    let (code, answer) = evict(&client, "l", json!({})).await;
    assert_eq!((code, answer["message"].as_str()), (429, Some(said)));
    assert_eq!((&answer["reason"], &answer["details"]["retryAfterSeconds"]), (&json!("TooManyRequests"), &json!(10)));
    assert_eq!(evacuated_from(&client).await.as_deref(), Some("n1"));
    let (code, answer) = evict(&client, "l", json!({})).await;
    assert_eq!(code, 429);
    assert!(answer["message"].as_str().unwrap().contains("Evacuation in progress"), "{answer}");

    set_status(&client, "l", json!({"phase": "Succeeded"})).await;
    assert_eq!(evict(&client, "l", json!({})).await.0, 201, "the guest has left this Pod");
}

#[tokio::test]
async fn a_guest_that_is_not_to_be_moved_goes_with_its_pod() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    guest(&server, &client, "None").await;
    assert_eq!(evict(&client, "l", json!({})).await.0, 201);
    assert_eq!(evacuated_from(&client).await, None);
}

#[tokio::test]
async fn pods_beyond_a_quota_are_refused_until_there_is_room() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    pod(&client, "before", json!({})).await.unwrap();
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": {"requests.memory": "250Mi", "pods": "5"}}});
    create::<ResourceQuota>(&client, quota).await.unwrap();
    let quotas: Api<ResourceQuota> = Api::default_namespaced(client.clone());
    let used = |expected: &'static str| {
        let quotas = quotas.clone();
        eventually(expected, move || {
            let quotas = quotas.clone();
            async move {
                let status = quotas.get("small").await.unwrap().status?;
                (status.used?.get("requests.memory")?.0 == expected && status.hard?["pods"].0 == "5").then_some(())
            }
        })
    };
    used("100Mi").await;

    // Two that fit one by one, at once: one of them has to give way.
    let (first, second) = tokio::join!(
        pod(&client, "one", json!({"spec": {"nodeName": "n2"}})),
        pod(&client, "two", json!({"spec": {"nodeName": "n2"}})),
    );
    let (kept, refused) = if first.is_ok() { (first, second) } else { (second, first) };
    let kept = kept.unwrap().metadata.name.unwrap();
    let (code, reason, message) = refusal(refused);
    let other = if kept == "one" { "two" } else { "one" };
    let expected = format!(
        "pods \"{other}\" is forbidden: exceeded quota: small, requested: requests.memory=100Mi, used: \
         requests.memory=200Mi, limited: requests.memory=250Mi"
    );
    assert_eq!((code, reason.as_str(), message), (403, "Forbidden", expected));
    used("200Mi").await;

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.delete(&kept, &DeleteParams::default()).await.unwrap();
    used("100Mi").await;
    pod(&client, other, json!({})).await.unwrap();
}
