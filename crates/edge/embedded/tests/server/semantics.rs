//! Create, read, update, patch and delete as a client sees them, over TLS.
#![allow(clippy::unwrap_used)] // a test may fail this way

use crate::common::{TestServer, eventually, namespace, raw, raw_json, raw_with_headers, refusal};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Pod, Secret};
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};

fn config_map(name: &str, data: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": data})).unwrap()
}

fn pod(name: &str) -> Pod {
    let spec = json!({"containers": [{"name": "a", "image": "busybox"}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
}

fn vms(client: &Client, namespace: &str) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("kubevirt.io", "v1", "VirtualMachine");
    Api::namespaced_with(client.clone(), namespace, &ApiResource::from_gvk_with_plural(&kind, "virtualmachines"))
}

fn vm(name: &str, metadata: Value) -> DynamicObject {
    let mut metadata = metadata;
    metadata["name"] = json!(name);
    let spec = json!({"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}});
    let object = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": metadata, "spec": spec});
    serde_json::from_value(object).unwrap()
}

#[tokio::test]
async fn an_object_lives_from_creation_to_deletion() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let created = api.create(&PostParams::default(), &config_map("a", json!({"k": "1"}))).await.unwrap();
    assert_eq!(created.namespace().as_deref(), Some("default"));
    assert!(created.uid().is_some() && created.creation_timestamp().is_some());

    let (code, reason, message) = refusal(api.create(&PostParams::default(), &config_map("a", json!({}))).await);
    assert_eq!((code, reason.as_str(), message.as_str()), (409, "AlreadyExists", r#"configmaps "a" already exists"#));

    let mut changed = created.clone();
    changed.data = Some([("k".to_owned(), "2".to_owned())].into());
    let updated = api.replace("a", &PostParams::default(), &changed).await.unwrap();
    assert!(updated.resource_version() > created.resource_version());
    assert_eq!(updated.uid(), created.uid());
    let again = api.replace("a", &PostParams::default(), &updated).await.unwrap();
    assert_eq!(again.resource_version(), updated.resource_version(), "nothing changed, so nothing was written");

    let (code, reason, message) = refusal(api.replace("a", &PostParams::default(), &changed).await);
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    let expected = "Operation cannot be fulfilled on configmaps \"a\": the object has been modified; please apply your \
                    changes to the latest version and try again";
    assert_eq!(message, expected);

    let mut unconditional = changed.clone();
    unconditional.metadata.resource_version = None;
    unconditional.metadata.uid = None;
    api.replace("a", &PostParams::default(), &unconditional).await.unwrap();

    let deleted = api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(deleted.is_right(), "a Status, because it is gone");
    let (code, reason, message) = refusal(api.get("a").await);
    assert_eq!((code, reason.as_str(), message.as_str()), (404, "NotFound", r#"configmaps "a" not found"#));
}

#[tokio::test]
async fn names_are_generated_checked_and_bound_to_their_namespace() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let generated: ConfigMap = serde_json::from_value(json!({"metadata": {"generateName": "x-"}})).unwrap();
    let first = api.create(&PostParams::default(), &generated).await.unwrap().name_any();
    let second = api.create(&PostParams::default(), &generated).await.unwrap().name_any();
    assert!(first.starts_with("x-") && first.len() == 7 && first != second, "{first} {second}");

    let (code, reason, message) =
        refusal(api.create(&PostParams::default(), &config_map("Not_A_Name", json!({}))).await);
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(
        message.starts_with(r#"ConfigMap "Not_A_Name" is invalid: metadata.name: Invalid value: "Not_A_Name": "#),
        "{message}"
    );

    let elsewhere: Api<ConfigMap> = Api::namespaced(client.clone(), "nowhere");
    let (code, _, message) = refusal(elsewhere.create(&PostParams::default(), &config_map("a", json!({}))).await);
    assert_eq!((code, message.as_str()), (404, r#"namespaces "nowhere" not found"#));

    let body = json!({"metadata": {"name": "a", "namespace": "other"}});
    let (code, answer) = raw_json(&client, "POST", "/api/v1/namespaces/default/configmaps", &body).await;
    assert_eq!(code, 400, "{answer}");
    let body = json!({"metadata": {"name": "a", "labels": {"bad key!": "x"}}});
    let (code, answer) = raw_json(&client, "POST", "/api/v1/namespaces/default/configmaps", &body).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("metadata.labels")), "{answer}");
}

#[tokio::test]
async fn patches_of_three_kinds_apply() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &pod("p")).await.unwrap();
    let params = PatchParams::default();

    let merge = json!({"metadata": {"labels": {"a": "1", "b": "2"}}});
    let pod = api.patch("p", &params, &Patch::Merge(&merge)).await.unwrap();
    assert_eq!(pod.labels().len(), 2);
    let merge = json!({"metadata": {"labels": {"b": null}}});
    assert_eq!(api.patch("p", &params, &Patch::Merge(&merge)).await.unwrap().labels().len(), 1);

    let operations = json!([
        {"op": "test", "path": "/metadata/labels/a", "value": "1"},
        {"op": "replace", "path": "/metadata/labels/a", "value": "9"},
    ]);
    let operations: json_patch::Patch = serde_json::from_value(operations).unwrap();
    let pod = api.patch("p", &params, &Patch::<()>::Json(operations.clone())).await.unwrap();
    assert_eq!(pod.labels()["a"], "9");
    let (code, _, message) = refusal(api.patch("p", &params, &Patch::<()>::Json(operations)).await);
    assert_eq!(code, 422, "a failed test: {message}");

    let strategic = json!({"spec": {"containers": [{"name": "a", "image": "busybox:2"}]}});
    let pod = api.patch("p", &params, &Patch::Strategic(&strategic)).await.unwrap();
    let containers = pod.spec.unwrap().containers;
    assert_eq!((containers.len(), containers[0].image.as_deref()), (1, Some("busybox:2")));
    assert_eq!(containers[0].termination_message_policy.as_deref(), Some("File"), "the rest of it stayed");

    let stale = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}});
    let (code, reason, _) = refusal(api.patch("p", &params, &Patch::Merge(&stale)).await);
    assert_eq!((code, reason.as_str()), (409, "Conflict"));

    let (code, reason, _) = refusal(api.patch("p", &PatchParams::apply("me"), &Patch::Apply(&strategic)).await);
    assert_eq!((code, reason.as_str()), (415, "UnsupportedMediaType"));
    let vms = vms(&client, "default");
    vms.create(&PostParams::default(), &vm("v", json!({}))).await.unwrap();
    let (code, _, message) = refusal(vms.patch("v", &params, &Patch::Strategic(&merge)).await);
    assert_eq!(code, 415, "{message}");
}

#[tokio::test]
async fn concurrent_patches_all_arrive() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &config_map("a", json!({}))).await.unwrap();
    let patches = (0..50).map(|index| {
        let api = api.clone();
        async move {
            let patch = json!({"data": {format!("k{index}"): "x"}});
            // Kubernetes too gives up after a number of races; the client then comes again.
            while api.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.is_err() {}
        }
    });
    futures::future::join_all(patches).await;
    assert_eq!(api.get("a").await.unwrap().data.unwrap().len(), 50);
}

#[tokio::test]
async fn status_is_a_world_of_its_own_where_it_is_a_subresource() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    let created = api.create(&PostParams::default(), &pod("p")).await.unwrap();
    assert_eq!(created.status.unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(created.metadata.generation, Some(1));

    let patch = json!({"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Running"}});
    let through_main = api.patch("p", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(through_main.status.as_ref().unwrap().phase.as_deref(), Some("Pending"));
    assert_eq!(through_main.labels()["x"], "y");
    let patch = json!({"metadata": {"labels": {"x": "z"}}, "status": {"phase": "Running"}});
    let through_status = api.patch_status("p", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(through_status.status.unwrap().phase.as_deref(), Some("Running"));
    assert_eq!(through_status.metadata.labels.unwrap()["x"], "y");
    assert_eq!(through_status.metadata.generation, Some(1));

    // An instance has no such subresource: one update writes all, and counts.
    let instances = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    let client = server.client("system:serviceaccount:kubevirt:kubevirt-controller", &[]).await;
    let body = json!({"metadata": {"name": "i"}, "spec": {"domain": {"devices": {}, "memory": {"guest": "64Mi"}}}});
    let (code, created) = raw_json(&client, "POST", instances, &body).await;
    assert_eq!(code, 201, "{created}");
    let mut changed = created.clone();
    changed["status"] = json!({"phase": "Scheduling"});
    let (code, changed) = raw_json(&client, "PUT", &format!("{instances}/i"), &changed).await;
    assert_eq!((code, &changed["status"]["phase"]), (200, &json!("Scheduling")), "{changed}");
    assert_eq!(changed["metadata"]["generation"], 2);
    let admin = server.admin().await;
    let (code, _) = raw_json(&admin, "PUT", &format!("{instances}/i/status"), &changed).await;
    assert_eq!(code, 404);
}

#[tokio::test]
async fn our_kinds_pass_admission() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api = vms(&client, "default");
    let created = api.create(&PostParams::default(), &vm("v", json!({}))).await.unwrap();
    assert_eq!(created.data["spec"]["template"]["spec"]["architecture"], "amd64", "a default of the rules");
    assert_eq!(created.metadata.generation, Some(1));

    let mut bad = vm("w", json!({}));
    bad.data["spec"]["template"]["spec"]["domain"]["devices"] = json!({"disks": [{"name": "a", "disk": {}}]});
    let (code, reason, message) = refusal(api.create(&PostParams::default(), &bad).await);
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    let denied = r#"admission webhook "virtualmachine-validator.kubevirt.io" denied the request: "#;
    let expected = format!("{denied}spec.template.spec.domain.devices.disks[0].name: ");
    assert!(message.starts_with(&expected), "{message}");

    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
    let mut old_fashioned = vm("x", json!({}));
    old_fashioned.data["spec"]["runStrategy"].take();
    old_fashioned.data["spec"]["running"] = json!(false);
    let body = serde_json::to_string(&old_fashioned).unwrap();
    let headers = [("content-type", "application/json")];
    let (code, headers, answer) = raw_with_headers(&client, "POST", path, &headers, &body).await;
    assert_eq!(code, 201, "{answer}");
    let warnings: Vec<&str> = headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
    assert!(warnings.iter().any(|warning| warning.contains("spec.running is deprecated")), "{warnings:?}");

    let mut unconditional = created.clone();
    unconditional.metadata.resource_version = None;
    let (code, _, message) = refusal(api.replace("v", &PostParams::default(), &unconditional).await);
    assert_eq!(code, 422);
    assert!(
        message.contains("metadata.resourceVersion: Invalid value: 0: must be specified for an update"),
        "{message}"
    );
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_of_or_ignored_as_asked() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let body = |name: &str| {
        let spec = json!({"runStrategy": "Halted", "runStrtegy": "x", "template": {"spec": {"domain": {"devices": {"dsks": [1]}}}}});
        json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": name}, "spec": spec})
            .to_string()
    };
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
    let headers = [("content-type", "application/json")];
    let (code, answer) = raw(&client, "POST", &format!("{path}?fieldValidation=Strict"), &headers, &body("a")).await;
    assert_eq!(code, 400, "{answer}");
    assert!(answer.contains("unknown field \\\"spec.runStrtegy\\\""), "{answer}");
    assert!(answer.contains("spec.template.spec.domain.devices.dsks"), "{answer}");
    let (code, headers_out, answer) = raw_with_headers(&client, "POST", path, &headers, &body("b")).await;
    assert_eq!(code, 201);
    assert!(headers_out.get_all("warning").iter().any(|value| value.to_str().unwrap().contains("spec.runStrtegy")));
    assert!(!answer.contains("runStrtegy"), "{answer}");
    let (code, headers_out, _) =
        raw_with_headers(&client, "POST", &format!("{path}?fieldValidation=Ignore"), &headers, &body("c")).await;
    assert_eq!(code, 201);
    assert!(!headers_out.get_all("warning").iter().any(|value| value.to_str().unwrap().contains("unknown field")));
    let wrong = json!({"metadata": {"name": "d"}, "spec": {"template": 7}}).to_string();
    let (code, answer) = raw(&client, "POST", path, &headers, &wrong).await;
    assert!(matches!(code, 400 | 422), "{code} {answer}");
}

#[tokio::test]
async fn a_yaml_body_is_as_good_as_json() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let yaml = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: y\ndata:\n  a: \"1\"\n";
    let path = "/api/v1/namespaces/default/configmaps";
    let (code, answer) = raw(&client, "POST", path, &[("content-type", "application/yaml")], yaml).await;
    assert_eq!(code, 201, "{answer}");
    let (code, _) = raw(&client, "POST", path, &[("content-type", "application/cbor")], "x").await;
    assert_eq!(code, 415);
    let (code, answer) = raw(&client, "POST", path, &[("content-type", "application/json")], "{").await;
    assert_eq!(code, 400, "{answer}");
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    let shown = api.create(&dry, &config_map("a", json!({}))).await.unwrap();
    assert!(shown.uid().is_some());
    assert_eq!(refusal(api.get("a").await).0, 404);
    api.create(&PostParams::default(), &config_map("a", json!({"k": "1"}))).await.unwrap();
    let patch = json!({"data": {"k": "2"}});
    let shown = api.patch("a", &PatchParams::default().dry_run(), &Patch::Merge(&patch)).await.unwrap();
    assert_eq!(shown.data.unwrap()["k"], "2");
    let delete = DeleteParams { dry_run: true, ..DeleteParams::default() };
    api.delete("a", &delete).await.unwrap();
    assert_eq!(api.get("a").await.unwrap().data.unwrap()["k"], "1");
}

#[tokio::test]
async fn a_pod_on_a_node_is_deleted_by_its_node() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<Pod> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &pod("free")).await.unwrap();
    let gone = api.delete("free", &DeleteParams::default()).await.unwrap().left().expect("its last version");
    assert_eq!(gone.metadata.deletion_grace_period_seconds, Some(0));
    assert!(api.get_opt("free").await.unwrap().is_none(), "no node knows it: it goes at once");

    let bound = api.create(&PostParams::default(), &pod("bound")).await.unwrap();
    let binding = json!({"metadata": {"name": "bound", "uid": bound.uid()}, "target": {"kind": "Node", "name": "n1"}});
    api.create_subresource::<_, Value>("binding", "bound", &PostParams::default(), &binding).await.unwrap();
    let seen = api.get("bound").await.unwrap();
    assert_eq!(seen.spec.as_ref().unwrap().node_name.as_deref(), Some("n1"));
    let conditions = seen.status.unwrap().conditions.unwrap();
    assert_eq!((conditions[0].type_.as_str(), conditions[0].status.as_str()), ("PodScheduled", "True"));
    let again = api.create_subresource::<_, Value>("binding", "bound", &PostParams::default(), &binding).await;
    let (code, _, message) = refusal(again);
    assert_eq!(code, 409);
    assert!(message.contains("already assigned to node \"n1\""), "{message}");

    let going = api.delete("bound", &DeleteParams::default()).await.unwrap().left().expect("still there");
    assert_eq!(going.metadata.deletion_grace_period_seconds, Some(30));
    assert!(going.metadata.deletion_timestamp.is_some());
    let wrong = DeleteParams::default()
        .preconditions(kube::api::Preconditions { uid: Some("other".into()), ..Default::default() });
    assert_eq!(refusal(api.delete("bound", &wrong).await).0, 409);
    api.delete("bound", &crate::common::now()).await.unwrap();
    assert!(api.get_opt("bound").await.unwrap().is_none());
}

#[tokio::test]
async fn finalizers_hold_an_object_until_the_last_is_gone() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let held: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a", "finalizers": ["x.io/a", "x.io/b"]}})).unwrap();
    api.create(&PostParams::default(), &held).await.unwrap();
    assert!(api.delete("a", &DeleteParams::default()).await.unwrap().is_left());
    let more = json!({"metadata": {"finalizers": ["x.io/a", "x.io/b", "x.io/c"]}});
    let (code, _, message) = refusal(api.patch("a", &PatchParams::default(), &Patch::Merge(&more)).await);
    assert_eq!(code, 422);
    assert!(message.contains("no new finalizers can be added if the object is being deleted"), "{message}");
    let one = json!({"metadata": {"finalizers": ["x.io/b"]}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&one)).await.unwrap();
    assert!(api.get("a").await.is_ok());
    let none = json!({"metadata": {"finalizers": null}});
    api.patch("a", &PatchParams::default(), &Patch::Merge(&none)).await.unwrap();
    assert_eq!(refusal(api.get("a").await).0, 404);
}

fn owned(name: &str, owner: &ConfigMap, block: bool) -> ConfigMap {
    let reference = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.uid(), "blockOwnerDeletion": block,
    });
    serde_json::from_value(json!({"metadata": {"name": name, "ownerReferences": [reference]}})).unwrap()
}

async fn gone(api: &Api<ConfigMap>, name: &str) {
    eventually(&format!("{name} to go"), || async { api.get_opt(name).await.unwrap().is_none().then_some(()) }).await;
}

#[tokio::test]
async fn dependents_follow_their_owner_in_the_background() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    let owner = api.create(&create, &config_map("owner", json!({}))).await.unwrap();
    let child = api.create(&create, &owned("child", &owner, false)).await.unwrap();
    api.create(&create, &owned("grandchild", &child, false)).await.unwrap();
    api.delete("owner", &DeleteParams::background()).await.unwrap();
    gone(&api, "child").await;
    gone(&api, "grandchild").await;

    // Somebody whose owner was gone before it came goes as well.
    api.create(&create, &owned("late", &owner, false)).await.unwrap();
    gone(&api, "late").await;
}

#[tokio::test]
async fn a_dependent_of_two_outlives_the_first() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    let first = api.create(&create, &config_map("first", json!({}))).await.unwrap();
    let second = api.create(&create, &config_map("second", json!({}))).await.unwrap();
    let mut child = owned("child", &first, false);
    let other = owned("child", &second, false).metadata.owner_references.unwrap();
    child.metadata.owner_references.as_mut().unwrap().extend(other);
    api.create(&create, &child).await.unwrap();
    api.delete("first", &DeleteParams::default()).await.unwrap();
    let left = eventually("the first owner to be forgotten", || async {
        let owners = api.get("child").await.unwrap().metadata.owner_references.unwrap();
        (owners.len() == 1).then_some(owners)
    })
    .await;
    assert_eq!(left[0].name, "second");
    api.delete("second", &DeleteParams::default()).await.unwrap();
    gone(&api, "child").await;
}

#[tokio::test]
async fn an_owner_in_the_foreground_waits_for_those_who_block_it() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    let owner = api.create(&create, &config_map("owner", json!({}))).await.unwrap();
    let mut child = owned("child", &owner, true);
    child.metadata.finalizers = Some(vec!["x.io/hold".into()]);
    api.create(&create, &child).await.unwrap();
    assert!(api.delete("owner", &DeleteParams::foreground()).await.unwrap().is_left());
    eventually("the child to be on its way", || async {
        api.get("child").await.unwrap().metadata.deletion_timestamp.map(drop)
    })
    .await;
    assert!(api.get("owner").await.unwrap().finalizers().contains(&"foregroundDeletion".to_owned()));
    api.patch("child", &PatchParams::default(), &Patch::Merge(&json!({"metadata": {"finalizers": null}})))
        .await
        .unwrap();
    gone(&api, "child").await;
    gone(&api, "owner").await;
}

#[tokio::test]
async fn orphans_stay_and_forget() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let create = PostParams::default();
    let owner = api.create(&create, &config_map("owner", json!({}))).await.unwrap();
    api.create(&create, &owned("child", &owner, true)).await.unwrap();
    let orphan = DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    api.delete("owner", &orphan).await.unwrap();
    gone(&api, "owner").await;
    assert!(api.get("child").await.unwrap().metadata.owner_references.is_none());
}

#[tokio::test]
async fn a_namespace_takes_its_contents_with_it() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let name = namespace(&client, "team").await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &name);
    let pods: Api<Pod> = Api::namespaced(client.clone(), &name);
    let create = PostParams::default();
    maps.create(&create, &config_map("a", json!({}))).await.unwrap();
    pods.create(&create, &pod("p")).await.unwrap();
    let binding = json!({"target": {"name": "n1"}});
    pods.create_subresource::<_, Value>("binding", "p", &create, &binding).await.unwrap();
    let spaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client.clone());
    let going = spaces.delete(&name, &DeleteParams::default()).await.unwrap().left().expect("it has contents");
    assert_eq!(going.status.unwrap().phase.as_deref(), Some("Terminating"));
    let (code, reason, message) = refusal(maps.create(&create, &config_map("late", json!({}))).await);
    assert_eq!((code, reason.as_str()), (403, "Forbidden"));
    assert!(message.contains("because it is being terminated"), "{message}");
    gone(&maps, "a").await;
    // The Pod waits for its node, and the namespace says so.
    eventually("the namespace to say what it waits for", || async {
        let conditions = spaces.get(&name).await.unwrap().status?.conditions?;
        conditions.iter().any(|c| c.message.as_deref().is_some_and(|m| m.contains("pods has 1 resource"))).then_some(())
    })
    .await;
    pods.delete("p", &crate::common::now()).await.unwrap();
    eventually("the namespace to go", || async { spaces.get_opt(&name).await.unwrap().is_none().then_some(()) }).await;
    let (code, _, message) = refusal(spaces.delete("default", &DeleteParams::default()).await);
    assert_eq!(code, 403, "{message}");
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    for (name, label) in [("a", "x"), ("b", "x"), ("c", "y")] {
        let mut object = config_map(name, json!({}));
        object.metadata.labels = Some([("l".to_owned(), label.to_owned())].into());
        api.create(&PostParams::default(), &object).await.unwrap();
    }
    api.delete_collection(&DeleteParams::default(), &ListParams::default().labels("l=x")).await.unwrap();
    let left: Vec<String> = api.list(&ListParams::default()).await.unwrap().iter().map(|m| m.name_any()).collect();
    assert_eq!(left, ["c"]);
}

#[tokio::test]
async fn secrets_and_nodes_have_their_ways() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s"}, "stringData": {"a": "b"}})).unwrap();
    let created = secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert_eq!(created.data.unwrap()["a"].0, b"b");
    assert_eq!(created.type_.as_deref(), Some("Opaque"));
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {"name": "n1"}, "status": {"capacity": {"cpu": "4"}}});
    let node = nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    assert!(node.status.unwrap().capacity.is_some(), "a node registers with its status");
}

#[tokio::test]
async fn events_are_one_kind_in_two_groups() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let body = json!({
        "metadata": {"name": "e", "namespace": "default"}, "eventTime": "2024-01-01T00:00:00.000000Z",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}, "note": "hello", "reason": "Started",
        "type": "Normal", "reportingController": "test", "reportingInstance": "t", "action": "Start",
    });
    let (code, answer) = raw_json(&client, "POST", "/apis/events.k8s.io/v1/namespaces/default/events", &body).await;
    assert_eq!((code, &answer["note"]), (201, &json!("hello")), "{answer}");
    let api: Api<Event> = Api::default_namespaced(client.clone());
    let found = api.list(&ListParams::default().fields("involvedObject.name=p,involvedObject.kind=Pod")).await.unwrap();
    assert_eq!(found.items.len(), 1);
    assert_eq!(found.items[0].message.as_deref(), Some("hello"));
    assert_eq!(found.items[0].reporting_component.as_deref(), Some("test"));
    let patch = json!({"series": {"count": 2, "lastObservedTime": "2024-01-01T00:01:00.000000Z"}});
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/e";
    let headers = [("content-type", "application/merge-patch+json")];
    let (code, answer) = raw(&client, "PATCH", path, &headers, &patch.to_string()).await;
    assert_eq!(code, 200, "{answer}");
    assert_eq!(api.get("e").await.unwrap().series.unwrap().count, Some(2));
}

#[tokio::test]
async fn what_is_not_served_is_not_found() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    for path in [
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/batch/v1/jobs",
        "/api/v1/namespaces/default/pods/p/log",
        "/nothing",
    ] {
        let (code, answer) = raw(&client, "GET", path, &[], "").await;
        assert_eq!((code, answer.as_str()), (404, "404 page not found\n"), "{path}");
    }
    let (code, answer) = raw_json(&client, "POST", "/api/v1/pods", &json!({})).await;
    assert_eq!((code, &answer["reason"]), (405, &json!("MethodNotAllowed")));
    let (code, answer) = raw_json(&client, "GET", "/api/v1/pods?fieldSelector=spec.colour%3Dblue", &Value::Null).await;
    assert_eq!(code, 400, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("field label not supported: spec.colour"));
    let big = "x".repeat(4 << 20);
    let body = json!({"metadata": {"name": "big"}, "data": {"k": big}});
    let (code, answer) = raw_json(&client, "POST", "/api/v1/namespaces/default/configmaps", &body).await;
    assert_eq!(code, 413, "{answer}");
}
