//! An installation before a real kube-apiserver: it takes every object, virt-operator's rights are enough to make them,
//! and the policies and webhooks hold what they promise.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use control_plane::ControlPlane;
use ferrovirt_cli::installation::programs;
use http::{Method, Request};
use install::{Manifest, Settings, Step, names};
use kube::Client;
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};
use test_support::Authority;

use crate::cluster;

/// How long the server may take to serve new kinds and to follow new policies and roles.
const PATIENCE: Duration = Duration::from_secs(90);

const NODES: &str = "/api/v1/nodes";
const VMIS: &str = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";

pub(crate) fn trials() -> Vec<Trial> {
    let run = || cluster::runtime().block_on(an_installation_is_taken_and_restricts());
    let run = move || run().map_err(|err: anyhow::Error| Failed::from(format!("{err:#}")));
    vec![Trial::test("an_installation_is_taken_and_restricts", run)]
}

/// Who asks.
enum User<'a> {
    Admin,
    Operator,
    /// virt-handler of this node; with a token that does not tell its node, of none.
    Handler(Option<&'a str>),
}

struct Answer {
    code: u16,
    body: Value,
}

async fn an_installation_is_taken_and_restricts() -> Result<()> {
    // A server of its own: the webhooks, which nobody answers here, are in the way of all other tests.
    let plane = ControlPlane::start(cluster::programs()?).await?;
    let client = plane.client()?;
    let ca = Authority::new().pem().to_owned();
    let settings = Settings { ca_bundle: Some(ca), ..Settings::default() };
    let programs = programs();
    apply(&client, &User::Admin, &install::with_operator(&settings, &programs), "").await?;
    let managed = install::managed(&settings, &programs);
    let (before, after): (Vec<Manifest>, Vec<Manifest>) =
        managed.into_iter().partition(|manifest| manifest.step < Step::Webhooks);
    apply(&client, &User::Operator, &before, "").await?;
    apply(&client, &User::Admin, &install::without_operator(&settings, &programs), "&dryRun=All").await?;
    handlers_keep_to_their_nodes(&client).await.context("the policies")?;
    vmi(&client, "leaving", "n1").await?;
    apply(&client, &User::Operator, &after, "").await?;
    deletions_need_nobody(&client).await.context("the webhooks")?;
    plane.check()
}

/// Applies objects in their order, with every unknown field an error.
async fn apply(client: &Client, user: &User<'_>, manifests: &[Manifest], more: &str) -> Result<()> {
    ensure!(manifests.len() > 5, "there is little to apply");
    for Manifest { object, .. } in manifests {
        let path = format!("{}?fieldManager=virt-operator&fieldValidation=Strict{more}", path(object)?);
        // Kinds are served a little later than their definitions are there, and rights are in force a little later than
        // roles.
        let served = async || {
            let answer = ask(client, user, Method::PATCH, &path, Some(object)).await?;
            Ok(matches!(answer.code, 200 | 201).then_some(()).ok_or(answer))
        };
        eventually(served).await.with_context(|| path.clone())?;
    }
    Ok(())
}

/// Where an object is served.
pub(crate) fn path(object: &Value) -> Result<String> {
    let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("/kind")));
    let root = if group.is_empty() { "/api/v1".to_owned() } else { format!("/apis/{group}/{version}") };
    let namespace = match text("/metadata/namespace") {
        "" => String::new(),
        namespace => format!("/namespaces/{namespace}"),
    };
    ensure!(!text("/metadata/name").is_empty(), "{object} has no name");
    Ok(format!("{root}{namespace}/{}/{}", kind.plural, text("/metadata/name")))
}

/// virt-handler writes its own node and the VMIs there, and nothing else of them.
async fn handlers_keep_to_their_nodes(client: &Client) -> Result<()> {
    for name in ["n1", "n2"] {
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
        create(client, NODES, &node).await?;
    }
    let (own, foreign) = (User::Handler(Some("n1")), User::Handler(Some("n2")));
    let label = json!({"metadata": {"labels": {"kubevirt.io/schedulable": "true"}}});
    let patch = async |user: &User<'_>, patch: &Value| {
        ask(client, user, Method::PATCH, &format!("{NODES}/n1"), Some(patch)).await
    };
    // Once the policy is in force it stays so.
    refused(async || patch(&foreign, &label).await, "virt-handler may change only its own node").await?;
    refused(async || patch(&User::Handler(None), &label).await, "virt-handler may change only its own node").await?;
    taken(async || patch(&own, &label).await).await?;
    for (change, reason) in [
        (json!({"metadata": {"labels": {"team": "x"}}}), "only labels of kubevirt.io"),
        (json!({"metadata": {"annotations": {"team": "x"}}}), "only annotations of kubevirt.io"),
        (json!({"metadata": {"finalizers": ["example.com/x"]}}), "must not change finalizers or owner references"),
        (json!({"spec": {"unschedulable": true}}), "the spec of a node"),
    ] {
        refused(async || patch(&own, &change).await, reason).await?;
    }
    taken(async || patch(&own, &json!({"metadata": {"labels": {"kubevirt.io/schedulable": null}}})).await).await?;

    let vmi = vmi(client, "guest", "n1").await?;
    let put = async |user: &User<'_>, change: fn(&mut Value)| {
        let mut new = ask(client, &User::Admin, Method::GET, &format!("{VMIS}/guest"), None).await?.body;
        change(&mut new);
        ask(client, user, Method::PUT, &format!("{VMIS}/guest"), Some(&new)).await
    };
    ensure!(vmi["metadata"]["uid"].is_string(), "{vmi}");
    refused(
        async || put(&foreign, |vmi| vmi["status"]["phase"] = "Failed".into()).await,
        "not on virt-handler's own node",
    )
    .await?;
    taken(async || put(&own, |vmi| vmi["status"]["phase"] = "Running".into()).await).await?;
    let grows = |vmi: &mut Value| vmi["spec"]["terminationGracePeriodSeconds"] = 7.into();
    refused(async || put(&own, grows).await, "the spec of a VirtualMachineInstance").await?;
    migrations_have_an_end(client).await
}

/// What a VMI is in, its labels of the owner and of the target, its migration state besides n1 and n2 as source and target,
/// and which nodes may report then.
type Situation = (&'static str, [&'static str; 2], &'static str, &'static [(&'static str, bool)]);

/// Who writes a VMI while it migrates, and after that.
const MIGRATIONS: &[Situation] = &[
    ("marked for its target", ["n1", "n2"], "{}", &[("n1", true), ("n2", true), ("n3", false)]),
    ("under way", ["n1", "n2"], r#"{"startTimestamp": "2026-01-01T00:00:00Z"}"#, &[("n1", true), ("n2", true)]),
    ("known by its state alone", ["n9", ""], "{}", &[("n1", true), ("n2", true), ("n3", false)]),
    (
        "taken over",
        ["n2", "n2"],
        r#"{"endTimestamp": "2026-01-01T00:00:00Z"}"#,
        &[("n1", false), ("n2", true), ("n3", false)],
    ),
    (
        "completed",
        ["n2", ""],
        r#"{"endTimestamp": "2026-01-01T00:00:00Z", "completed": true}"#,
        &[("n1", false), ("n2", true)],
    ),
    (
        "moved on since",
        ["n3", ""],
        r#"{"endTimestamp": "2026-01-01T00:00:00Z", "completed": true}"#,
        &[("n1", false), ("n2", false), ("n3", true)],
    ),
    (
        "failed",
        ["n1", "n2"],
        r#"{"endTimestamp": "2026-01-01T00:00:00Z", "failed": true}"#,
        &[("n1", true), ("n2", false)],
    ),
    (
        "failed and released",
        ["n1", ""],
        r#"{"endTimestamp": "2026-01-01T00:00:00Z", "failed": true, "completed": true}"#,
        &[("n1", true), ("n2", false)],
    ),
];

const TARGET: &str = "kubevirt.io/migrationTargetNodeName";
const SOURCE_GONE: &str = "ferrovirt.io/migration-source-gone";

/// What a failed target does besides releasing the VMI, and whether that is taken.
type Change = (&'static str, fn(&mut Value), bool);

async fn migrations_have_an_end(client: &Client) -> Result<()> {
    for (situation, labels, state, writers) in MIGRATIONS {
        for (node, is_taken) in *writers {
            let before = migrating(client, labels, state).await?;
            let mut report = before.clone();
            report["status"]["phase"] = "Running".into();
            judged(client, node, &report, *is_taken).await.with_context(|| format!("{situation}: {node} reports"))?;
        }
    }
    let failed = r#"{"endTimestamp": "2026-01-01T00:00:00Z", "failed": true}"#;
    let release = |vmi: &mut Value| {
        for (field, name) in [("labels", TARGET), ("annotations", SOURCE_GONE)] {
            vmi["metadata"][field].as_object_mut().and_then(|all| all.remove(name));
        }
    };
    let changes: [Change; 6] = [
        ("takes its label off", |_| (), true),
        ("takes the VMI over", |vmi| vmi["metadata"]["labels"]["kubevirt.io/nodeName"] = "n2".into(), false),
        ("writes the status", |vmi| vmi["status"]["phase"] = "Failed".into(), false),
        ("frees the VMI", |vmi| vmi["metadata"]["finalizers"] = json!([]), false),
        ("adds an annotation", |vmi| vmi["metadata"]["annotations"]["kubevirt.io/x"] = "y".into(), false),
        ("keeps its label", |vmi| vmi["metadata"]["labels"][TARGET] = "n2".into(), false),
    ];
    for (what, change, is_taken) in changes {
        let mut new = migrating(client, &["n1", "n2"], failed).await?;
        release(&mut new);
        change(&mut new);
        judged(client, "n2", &new, is_taken).await.with_context(|| format!("a failed target that {what}"))?;
    }
    Ok(())
}

/// The VMI as it is in a migration from n1 to n2.
async fn migrating(client: &Client, labels: &[&str], state: &str) -> Result<Value> {
    let path = format!("{VMIS}/guest");
    let mut new = ask(client, &User::Admin, Method::GET, &path, None).await?.body;
    let names = ["kubevirt.io/nodeName", TARGET];
    new["metadata"]["labels"] = names
        .iter()
        .zip(labels)
        .filter(|(_, node)| !node.is_empty())
        .map(|(name, node)| ((*name).to_owned(), json!(node)))
        .collect();
    new["metadata"]["annotations"] = json!({SOURCE_GONE: "uid", "kubevirt.io/kept": "1"});
    let mut state: Value = serde_json::from_str(state)?;
    for (field, value) in [("migrationUid", "uid"), ("sourceNode", "n1"), ("targetNode", "n2")] {
        state[field] = value.into();
    }
    new["status"] = json!({"nodeName": labels[0], "phase": "Scheduled", "migrationState": state});
    let answer = ask(client, &User::Admin, Method::PUT, &path, Some(&new)).await?;
    ensure!(answer.code == 200, "{} {}", answer.code, answer.body);
    Ok(answer.body)
}

/// The policy is in force already, so the first answer counts.
async fn judged(client: &Client, node: &str, vmi: &Value, is_taken: bool) -> Result<()> {
    let answer = ask(client, &User::Handler(Some(node)), Method::PUT, &format!("{VMIS}/guest"), Some(vmi)).await?;
    let reason = answer.body["message"].as_str().unwrap_or_default();
    let is_refused = answer.code == 403 && reason.contains("not on virt-handler's own node");
    ensure!(if is_taken { answer.code == 200 } else { is_refused }, "{} {}", answer.code, answer.body);
    Ok(())
}

/// Nobody answers for our webhooks: nothing new comes in, and what is there can go.
async fn deletions_need_nobody(client: &Client) -> Result<()> {
    let path = format!("{VMIS}/leaving");
    let new = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "new"},
        "spec": {"domain": {"devices": {}}}});
    let created = async || ask(client, &User::Admin, Method::POST, VMIS, Some(&new)).await;
    refused(created, "failed calling webhook").await?;
    let deleted = ask(client, &User::Admin, Method::DELETE, &path, None).await?;
    ensure!(deleted.code == 200, "{} {}", deleted.code, deleted.body);
    let change = |patch: Value| {
        let path = path.clone();
        async move { ask(client, &User::Admin, Method::PATCH, &path, Some(&patch)).await }
    };
    let spec = change(json!({"spec": {"terminationGracePeriodSeconds": 7}})).await?;
    ensure!(spec.code == 500, "a change of the spec is let through: {}", spec.body);
    let freed = change(json!({"metadata": {"finalizers": null}})).await?;
    ensure!(freed.code == 200, "{} {}", freed.code, freed.body);
    let gone = ask(client, &User::Admin, Method::GET, &path, None).await?;
    ensure!(gone.code == 404, "{} {}", gone.code, gone.body);
    Ok(())
}

/// A VMI of a node, with a finalizer.
async fn vmi(client: &Client, name: &str, node: &str) -> Result<Value> {
    let metadata = json!({"name": name, "labels": {"kubevirt.io/nodeName": node}, "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"]});
    let vmi = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": metadata,
        "spec": {"domain": {"devices": {}}}, "status": {"nodeName": node}});
    create(client, VMIS, &vmi).await
}

async fn create(client: &Client, path: &str, object: &Value) -> Result<Value> {
    let answer = ask(client, &User::Admin, Method::POST, path, Some(object)).await?;
    ensure!(answer.code == 201, "{path}: {} {}", answer.code, answer.body);
    Ok(answer.body)
}

/// Waits until a request is refused for a reason.
async fn refused(request: impl AsyncFn() -> Result<Answer>, reason: &str) -> Result<()> {
    let told = async || {
        let answer = request().await?;
        let is_reason = answer.code >= 400 && answer.body["message"].as_str().is_some_and(|text| text.contains(reason));
        Ok(is_reason.then_some(()).ok_or(answer))
    };
    eventually(told).await.with_context(|| format!("not refused because of {reason:?}"))
}

/// Waits until a request is granted.
async fn taken(request: impl AsyncFn() -> Result<Answer>) -> Result<()> {
    let told = async || {
        let answer = request().await?;
        Ok((answer.code == 200).then_some(()).ok_or(answer))
    };
    eventually(told).await.context("not taken")
}

async fn eventually(attempt: impl AsyncFn() -> Result<Result<(), Answer>>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match attempt().await? {
            Ok(()) => return Ok(()),
            // What is wrong with an object itself does not change.
            Err(Answer { code: code @ (400 | 422), body }) if body["reason"] != "Forbidden" => bail!("{code} {body}"),
            Err(Answer { code, body }) if Instant::now() > deadline => bail!("{code} {body}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn ask(client: &Client, user: &User<'_>, method: Method, path: &str, body: Option<&Value>) -> Result<Answer> {
    let kind = match (&method, path.contains("fieldManager")) {
        (&Method::PATCH, true) => "application/apply-patch+yaml",
        (&Method::PATCH, false) => "application/merge-patch+json",
        _ => "application/json",
    };
    let mut request = Request::builder().method(method).uri(path).header("Content-Type", kind);
    let account = match user {
        User::Admin => None,
        User::Operator => Some(names::account::OPERATOR),
        User::Handler(_) => Some(names::account::HANDLER),
    };
    if let Some(account) = account {
        request = request.header("Impersonate-User", names::user(account, names::NAMESPACE));
        request = request.header("Impersonate-Group", "system:serviceaccounts");
        request = request.header("Impersonate-Group", "system:authenticated");
    }
    if let User::Handler(Some(node)) = user {
        request = request.header("Impersonate-Extra-Authentication.kubernetes.io%2fnode-name", *node);
    }
    let text = body.map(ToString::to_string).unwrap_or_default();
    let response = client.send(request.body(Body::from(text.into_bytes()))?).await?;
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await?;
    Ok(Answer { code, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) })
}
