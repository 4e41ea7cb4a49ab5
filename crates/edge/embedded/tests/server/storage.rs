//! Claims, volumes, classes and snapshots as clients meet them, without the controller that works on them.
#![allow(clippy::unwrap_used)] // a test may fail this way

use kube::Client;
use serde_json::{Value, json};

use crate::common::{TestServer, eventually, raw, raw_json};

const CLAIMS: &str = "/api/v1/namespaces/default/persistentvolumeclaims";
const CLASSES: &str = "/apis/storage.k8s.io/v1/storageclasses";
const SNAPSHOTS: &str = "/apis/snapshot.storage.k8s.io/v1/namespaces/default/volumesnapshots";

fn claim(name: &str, spec: Value) -> Value {
    let mut all = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    machinery::patch::merge(&mut all, &spec);
    json!({"metadata": {"name": name}, "spec": all})
}

async fn post(client: &Client, path: &str, body: Value) -> Value {
    let (code, answer) = raw_json(client, "POST", path, &body).await;
    assert_eq!(code, 201, "{answer}");
    answer
}

async fn patch(client: &Client, path: &str, body: Value) -> (u16, String) {
    raw(client, "PATCH", path, &[("content-type", "application/merge-patch+json")], &body.to_string()).await
}

async fn class(client: &Client, name: &str, default: bool, grows: bool) {
    let annotations = json!({"storageclass.kubernetes.io/is-default-class": default.to_string()});
    let class = json!({
        "metadata": {"name": name, "annotations": annotations}, "provisioner": "p", "allowVolumeExpansion": grows,
    });
    let class = post(client, CLASSES, class).await;
    assert_eq!((&class["reclaimPolicy"], &class["volumeBindingMode"]), (&json!("Delete"), &json!("Immediate")));
}

async fn rows(client: &Client, path: &str) -> Vec<Vec<Value>> {
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let (_, answer) = raw(client, "GET", path, &table, "").await;
    let table: Value = serde_json::from_str(&answer).unwrap();
    table["rows"].as_array().unwrap().iter().map(|row| row["cells"].as_array().unwrap().clone()).collect()
}

#[tokio::test]
async fn a_claim_gets_the_default_class_and_grows_only_where_it_may() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let early = post(&client, CLAIMS, claim("early", json!({}))).await;
    assert!(early["spec"].get("storageClassName").is_none(), "there is no default class yet");
    class(&client, "fixed", false, false).await;
    class(&client, "local", true, true).await;
    for (name, spec, expected) in [
        ("default", json!({}), json!("local")),
        ("none", json!({"storageClassName": ""}), json!("")),
        ("chosen", json!({"storageClassName": "fixed"}), json!("fixed")),
    ] {
        let made = post(&client, CLAIMS, claim(name, spec)).await;
        assert_eq!(made["spec"]["storageClassName"], expected, "{name}");
        assert_eq!(made["metadata"]["finalizers"], json!(["kubernetes.io/pvc-protection"]));
        assert_eq!(made["status"], json!({"phase": "Pending"}));
    }
    assert_eq!(rows(&client, CLASSES).await[1][0], "local (default)");
    let grow = json!({"spec": {"resources": {"requests": {"storage": "2Gi"}}}});
    for (name, code, why) in [
        ("default", 200, ""),
        ("chosen", 403, "only dynamically provisioned pvc can be resized"),
        ("early", 422, "immutable"),
    ] {
        let path = format!("{CLAIMS}/{name}");
        if code != 422 {
            let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
            assert_eq!(patch(&client, &format!("{path}/status"), bound).await.0, 200);
        }
        let (got, answer) = patch(&client, &path, grow.clone()).await;
        assert_eq!(got, code, "{name}: {answer}");
        assert!(answer.contains(why), "{answer}");
    }
    // It is held until a controller lets it go.
    let (code, _) = raw(&client, "DELETE", &format!("{CLAIMS}/none"), &[], "").await;
    assert_eq!(code, 200);
    let row = rows(&client, CLAIMS).await.into_iter().find(|row| row[0] == "none").unwrap();
    assert_eq!(row[1], "Terminating");
    assert_eq!(patch(&client, &format!("{CLAIMS}/none"), json!({"metadata": {"finalizers": null}})).await.0, 200);
    assert_eq!(raw(&client, "GET", &format!("{CLAIMS}/none"), &[], "").await.0, 404);
}

const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";

/// Waits until the quota's status says this.
async fn counted(client: &Client, storage: &str, count: &str) {
    let expected = json!({"requests.storage": storage, "persistentvolumeclaims": count});
    eventually(&format!("{count} claims with {storage} to be counted"), || async {
        let (_, quota) = raw_json(client, "GET", &format!("{QUOTAS}/q"), &Value::Null).await;
        (quota["status"]["used"] == expected).then_some(())
    })
    .await;
}

#[tokio::test]
async fn claims_count_in_a_quota() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    class(&client, "local", true, true).await;
    post(&client, CLAIMS, claim("a", json!({}))).await;
    let hard = json!({"requests.storage": "3Gi", "persistentvolumeclaims": "2"});
    post(&client, QUOTAS, json!({"metadata": {"name": "q"}, "spec": {"hard": hard}})).await;
    counted(&client, "1Gi", "1").await;
    let large = claim("large", json!({"resources": {"requests": {"storage": "5Gi"}}}));
    let (code, answer) = raw_json(&client, "POST", CLAIMS, &large).await;
    assert_eq!(code, 403);
    assert_eq!(
        answer["message"],
        "persistentvolumeclaims \"large\" is forbidden: exceeded quota: q, requested: requests.storage=5Gi, used: \
         requests.storage=1Gi, limited: requests.storage=3Gi"
    );
    post(&client, CLAIMS, claim("b", json!({}))).await;
    counted(&client, "2Gi", "2").await;
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"}}});
    assert_eq!(patch(&client, &format!("{CLAIMS}/b/status"), bound).await.0, 200);
    for (size, code) in [("3Gi", 403), ("2Gi", 200)] {
        let grow = json!({"spec": {"resources": {"requests": {"storage": size}}}});
        let (got, answer) = patch(&client, &format!("{CLAIMS}/b"), grow).await;
        assert_eq!(got, code, "{answer}");
    }
    counted(&client, "3Gi", "2").await;
}

#[tokio::test]
async fn snapshots_are_served_with_their_columns() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let snapshot = |source: Value| json!({"metadata": {"name": "s"}, "spec": {"source": source}});
    let (code, answer) = raw_json(&client, "POST", SNAPSHOTS, &snapshot(json!({}))).await;
    assert_eq!(code, 422, "{answer}");
    post(&client, SNAPSHOTS, snapshot(json!({"persistentVolumeClaimName": "c"}))).await;
    let status = json!({"status": {"readyToUse": true, "restoreSize": "1Gi", "boundVolumeSnapshotContentName": "k"}});
    assert_eq!(patch(&client, &format!("{SNAPSHOTS}/s/status"), status).await.0, 200);
    let row = rows(&client, SNAPSHOTS).await.remove(0);
    assert_eq!(row[..7], [json!("s"), json!(true), json!("c"), json!(""), json!("1Gi"), json!(""), json!("k")]);
}
