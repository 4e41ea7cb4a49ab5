//! Our own kinds as a client meets them: every version, scale, schemas, rules, and what is said about them.
#![allow(clippy::unwrap_used)] // a test may fail this way

use crate::common::{TestServer, eventually, namespace, raw, raw_json, raw_with_headers};
use std::sync::Arc;

use api::resources::{RESOURCES, Resource};
use kube::Client;
use parking_lot::Mutex;
use review::{Hook, Objects, Operation, Phase, Refusal, Review, Rule, Verdict};
use serde_json::{Value, json};

fn path(resource: &Resource, version: &str) -> String {
    let namespace = if resource.namespaced { "/namespaces/default" } else { "" };
    format!("/apis/{}/{version}{namespace}/{}", resource.group, resource.plural)
}

fn instancetype(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}}})
}

const INSTANCETYPES: &str = "/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes";

#[tokio::test]
async fn every_kind_is_listed_and_watched_in_every_version_and_old_ones_warn() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    for resource in RESOURCES {
        for version in resource.versions {
            let path = path(resource, version.name);
            let (code, headers, answer) = raw_with_headers(&client, "GET", &path, &[], "").await;
            assert_eq!(code, 200, "{path}: {answer}");
            let list: Value = serde_json::from_str(&answer).unwrap();
            assert_eq!(list["kind"], format!("{}List", resource.kind));
            assert_eq!(list["apiVersion"], format!("{}/{}", resource.group, version.name));
            let warnings: Vec<&str> = headers.get_all("warning").iter().map(|value| value.to_str().unwrap()).collect();
            let expected: Vec<String> = version.deprecated.iter().map(|text| format!("299 - \"{text}\"")).collect();
            assert_eq!(warnings, expected, "{path}");
            let (code, _, answer) = raw_with_headers(&client, "GET", &format!("{path}/nobody"), &[], "").await;
            assert_eq!(code, 404, "{answer}");
            let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
            let (_, answer) = raw(&client, "GET", &path, &table, "").await;
            let table: Value = serde_json::from_str(&answer).unwrap();
            let columns: Vec<&str> =
                table["columnDefinitions"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
            let own: Vec<&str> = resource.columns.iter().map(|column| column.name).collect();
            let own = if own.is_empty() { vec!["Age"] } else { own };
            assert_eq!(columns, [vec!["Name"], own].concat(), "{path}");
        }
    }
}

#[tokio::test]
async fn an_object_is_one_in_all_its_versions() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let vms = |version: &str| format!("/apis/kubevirt.io/{version}/namespaces/default/virtualmachines");
    let spec = json!({"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}});
    let body = json!({"apiVersion": "kubevirt.io/v1alpha3", "metadata": {"name": "v"}, "spec": spec});
    let (code, created) = raw_json(&client, "POST", &vms("v1alpha3"), &body).await;
    assert_eq!((code, &created["apiVersion"]), (201, &json!("kubevirt.io/v1alpha3")), "{created}");
    let (_, stored) = raw_json(&client, "GET", &format!("{}/v", vms("v1")), &Value::Null).await;
    assert_eq!(stored["apiVersion"], "kubevirt.io/v1");
    assert_eq!((&stored["spec"], &stored["metadata"]), (&created["spec"], &created["metadata"]));
    let headers = [("content-type", "application/merge-patch+json")];
    let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let (code, answer) = raw(&client, "PATCH", &format!("{}/v", vms("v1alpha3")), &headers, &patch).await;
    assert_eq!(code, 200, "{answer}");
    let (_, list) = raw_json(&client, "GET", &vms("v1alpha3"), &Value::Null).await;
    assert_eq!(list["items"][0]["apiVersion"], "kubevirt.io/v1alpha3");
    assert_eq!(list["items"][0]["metadata"]["labels"]["a"], "b");
    let (code, _) = raw_json(&client, "POST", &vms("v1"), &body).await;
    assert_eq!(code, 400, "a body of another version than the path's");
    let presets = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstancepresets";
    let preset = json!({"metadata": {"name": "p"}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "domain": {"devices": {}}}});
    let (code, created) = raw_json(&client, "POST", presets, &preset).await;
    assert_eq!((code, &created["apiVersion"]), (201, &json!("kubevirt.io/v1")), "{created}");
}

#[tokio::test]
async fn the_schema_speaks_before_the_rules_and_after_the_defaults() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let mut wrong = instancetype("wrong");
    wrong["spec"]["cpu"]["guest"] = json!("two");
    let (code, answer) = raw_json(&client, "POST", INSTANCETYPES, &wrong).await;
    assert_eq!((code, &answer["reason"]), (422, &json!("Invalid")), "{answer}");
    let fields: Vec<&str> =
        answer["details"]["causes"].as_array().unwrap().iter().map(|cause| cause["field"].as_str().unwrap()).collect();
    assert_eq!(fields, ["spec.cpu.guest"], "{answer}");
    let mut missing = instancetype("missing");
    missing["spec"].as_object_mut().unwrap().remove("memory");
    let (code, answer) = raw_json(&client, "POST", INSTANCETYPES, &missing).await;
    assert_eq!((code, &answer["details"]["causes"][0]["field"]), (422, &json!("spec.memory")), "{answer}");
    let (code, answer) = raw_json(&client, "POST", INSTANCETYPES, &instancetype("good")).await;
    assert_eq!(code, 201, "{answer}");
    let bad_metadata = json!({"metadata": {"name": "m", "labels": 7}, "spec": {}});
    let (code, answer) = raw_json(&client, "POST", INSTANCETYPES, &bad_metadata).await;
    assert_eq!(code, 400, "{answer}");
}

#[tokio::test]
async fn the_definitions_of_our_kinds_can_be_read_and_not_changed() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let (code, list) = raw_json(&client, "GET", path, &Value::Null).await;
    assert_eq!((code, list["items"].as_array().map(Vec::len)), (200, Some(RESOURCES.len())));
    let one = format!("{path}/virtualmachines.kubevirt.io");
    let (code, definition) = raw_json(&client, "GET", &one, &Value::Null).await;
    assert_eq!((code, &definition["spec"]["names"]["kind"]), (200, &json!("VirtualMachine")));
    assert_eq!(raw_json(&client, "DELETE", &one, &Value::Null).await.0, 405);
    let mut other = definition;
    other["spec"]["names"]["shortNames"] = json!(["other"]);
    assert_eq!(raw_json(&client, "PUT", &one, &other).await.0, 405);
    other["metadata"]["name"] = json!("others.kubevirt.io");
    assert_eq!(raw_json(&client, "POST", path, &other).await.0, 405);
    for definition in api::crds() {
        let name = definition["metadata"]["name"].as_str().unwrap();
        assert_eq!(raw_json(&client, "POST", path, &definition).await.0, 409, "{name} is there");
        let (code, answer) = raw_json(&client, "PUT", &format!("{path}/{name}"), &definition).await;
        assert_eq!((code, &answer["spec"]), (200, &definition["spec"]), "{name} is accepted as it is");
    }
}

#[tokio::test]
async fn kinds_of_other_projects_are_kept_whole() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let path = "/apis/cdi.kubevirt.io/v1beta1/namespaces/default/datavolumes";
    let body = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "d"},
        "spec": {"source": {"blank": {}}, "storage": {"resources": {"requests": {"storage": "1Gi"}}}, "newer": {"x": [1]}},
    });
    let headers = [("content-type", "application/json")];
    let (code, headers, answer) = raw_with_headers(&client, "POST", path, &headers, &body.to_string()).await;
    assert_eq!(code, 201, "{answer}");
    assert!(headers.get("warning").is_none(), "{headers:?}");
    let created: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(created["spec"], body["spec"], "a field that we do not know is there, too");
    let networks = "/apis/k8s.cni.cncf.io/v1/namespaces/default/network-attachment-definitions";
    let body = json!({"metadata": {"name": "n"}, "spec": {"config": "{\"type\": \"bridge\"}"}});
    assert_eq!(raw_json(&client, "POST", networks, &body).await.0, 201);
}

/// Creates an object with what its kind needs.
async fn create(client: &Client, path: &str, body: &Value) -> Value {
    let (code, answer) = raw_json(client, "POST", path, body).await;
    assert_eq!(code, 201, "{path}: {answer}");
    answer
}

#[tokio::test]
async fn a_request_is_answered_and_not_kept() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let group = "/apis/upload.cdi.kubevirt.io/v1beta1";
    let path = format!("{group}/namespaces/default/uploadtokenrequests");
    let body = json!({
        "apiVersion": "upload.cdi.kubevirt.io/v1beta1", "kind": "UploadTokenRequest", "metadata": {"name": "t"},
        "spec": {"pvcName": "disk"},
    });
    for _ in 0..2 {
        let (code, answer) = raw_json(&client, "POST", &path, &body).await;
        assert_eq!((code, &answer["spec"]["pvcName"]), (201, &json!("disk")), "{answer}");
    }
    for (method, path) in [("GET", path.clone()), ("GET", format!("{path}/t")), ("PUT", format!("{path}/t"))] {
        assert_eq!(raw_json(&client, method, &path, &body).await.0, 405, "{method} {path}");
    }
    let (_, list) = raw_json(&client, "GET", group, &Value::Null).await;
    assert_eq!(list["resources"][0]["verbs"], json!(["create"]), "{list}");
    let elsewhere = path.replace("default", "nowhere");
    assert_eq!(raw_json(&client, "POST", &elsewhere, &body).await.0, 404);
}

#[tokio::test]
async fn rules_see_the_other_objects_of_the_server() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let here = "/apis/kubevirt.io/v1/namespaces/default";
    let preset = json!({"metadata": {"name": "big"}, "spec": {
        "selector": {"matchLabels": {"size": "big"}}, "domain": {"cpu": {"cores": 4}, "devices": {}},
    }});
    create(&client, &format!("{here}/virtualmachineinstancepresets"), &preset).await;
    let vmi = |name: &str, size: &str| {
        let domain = json!({"devices": {}, "memory": {"guest": "64Mi"}});
        json!({"metadata": {"name": name, "labels": {"size": size}}, "spec": {"domain": domain}})
    };
    let vmis = format!("{here}/virtualmachineinstances");
    let big = create(&client, &vmis, &vmi("a", "big")).await;
    assert_eq!(big["spec"]["domain"]["cpu"]["cores"], 4, "{big}");
    let small = create(&client, &vmis, &vmi("b", "small")).await;
    assert_ne!(small["spec"]["domain"]["cpu"]["cores"], 4, "{small}");
}

#[tokio::test]
async fn a_deletion_is_judged_where_the_kind_wants_it() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let kubevirts = "/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts";
    let kubevirt = |name: &str| json!({"metadata": {"name": name}, "spec": {"uninstallStrategy": "BlockUninstallIfWorkloadsExist"}});
    create(&client, kubevirts, &kubevirt("kubevirt")).await;
    let (code, answer) = raw_json(&client, "POST", kubevirts, &kubevirt("another")).await;
    assert_eq!((code, &answer["reason"]), (400, &json!("BadRequest")), "{answer}");
    let one = format!("{kubevirts}/kubevirt");
    let headers = [("content-type", "application/merge-patch+json")];
    let deployed = json!({"status": {"phase": "Deployed"}}).to_string();
    let (code, answer) = raw(&client, "PATCH", &format!("{one}/status"), &headers, &deployed).await;
    assert_eq!(code, 200, "{answer}");
    let vms = "/apis/kubevirt.io/v1/namespaces/default/virtualmachines";
    let spec = json!({"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}});
    create(&client, vms, &json!({"metadata": {"name": "v"}, "spec": spec})).await;
    let (code, answer) = raw_json(&client, "DELETE", &one, &Value::Null).await;
    assert_eq!(code, 400, "{answer}");
    assert!(answer["message"].as_str().unwrap().contains("still Virtual Machines present"), "{answer}");
    assert_eq!(raw_json(&client, "DELETE", &format!("{vms}/v"), &Value::Null).await.0, 200);
    assert_eq!(raw_json(&client, "DELETE", &one, &Value::Null).await.0, 200);
}

#[tokio::test]
async fn our_kinds_go_with_their_owners_and_namespaces() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let team = namespace(&client, "team").await;
    let here = format!("/apis/kubevirt.io/v1/namespaces/{team}");
    let spec = json!({"runStrategy": "Halted", "template": {"spec": {"domain": {"devices": {}}}}});
    let vm =
        create(&client, &format!("{here}/virtualmachines"), &json!({"metadata": {"name": "v"}, "spec": spec})).await;
    // Owners are known in every version that they are served in.
    let owner = json!({"apiVersion": "kubevirt.io/v1alpha3", "kind": "VirtualMachine", "name": "v", "uid": vm["metadata"]["uid"]});
    let revisions = format!("/apis/apps/v1/namespaces/{team}/controllerrevisions");
    let revision = json!({"metadata": {"name": "r", "ownerReferences": [owner]}, "revision": 1});
    create(&client, &revisions, &revision).await;
    let preset = json!({"metadata": {"name": "p"}, "spec": {"selector": {}, "domain": {"devices": {}}}});
    create(&client, &format!("{here}/virtualmachineinstancepresets"), &preset).await;
    let gone = async |path: String| {
        let look = || async { (raw_json(&client, "GET", &path, &Value::Null).await.0 == 404).then_some(()) };
        eventually(&format!("{path} to go"), look).await;
    };
    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    assert_eq!(raw_json(&client, "GET", &format!("{revisions}/r"), &Value::Null).await.0, 200, "its owner is there");
    assert_eq!(raw_json(&client, "DELETE", &format!("{here}/virtualmachines/v"), &Value::Null).await.0, 200);
    gone(format!("{revisions}/r")).await;
    assert_eq!(raw_json(&client, "DELETE", &format!("/api/v1/namespaces/{team}"), &Value::Null).await.0, 200);
    gone(format!("{here}/virtualmachineinstancepresets/p")).await;
    gone(format!("/api/v1/namespaces/{team}")).await;
}

#[tokio::test]
async fn what_nodes_cannot_honour_is_refused_unless_there_are_no_such_nodes() {
    let server = TestServer::start().await;
    let client = server.admin().await;
    let path = "/apis/kubevirt.io/v1/namespaces/default/virtualmachineinstances";
    let instance = |name: &str, volume: &str| {
        json!({"metadata": {"name": name}, "spec": {
            "domain": {"resources": {"requests": {"memory": "64Mi"}},
                "devices": {"disks": [{"name": "disk", "disk": {"bus": "virtio"}}], "autoattachInputDevice": true}},
            "volumes": [{"name": volume, "dataVolume": {"name": "imported"}}],
        }})
    };
    let (code, refused) = raw_json(&client, "POST", path, &instance("a", "disk")).await;
    assert_eq!((code, &refused["reason"]), (422, &json!("Invalid")), "{refused}");
    server.admission.accept_unsupported();
    let (code, stored) = raw_json(&client, "POST", path, &instance("a", "disk")).await;
    assert_eq!(code, 201, "{stored}");
    let (code, refused) = raw_json(&client, "POST", path, &instance("b", "other")).await;
    assert_eq!(code, 422, "what is invalid is refused as ever: {refused}");
}

/// Somebody who labels ConfigMaps, warns, refuses those that say so, and remembers what was asked.
#[derive(Default)]
struct Labeller(Mutex<Vec<String>>);

const LABELLER: &str = "labeller.example.com";

impl Hook for Labeller {
    fn rules(&self) -> &[Rule] {
        const fn rule(phase: Phase, operations: &'static [Operation]) -> Rule {
            Rule { name: LABELLER, phase, group: "", resource: "configmaps", subresource: "", operations }
        }
        const {
            &[
                rule(Phase::Mutating, &[Operation::Create]),
                rule(Phase::Validating, &[Operation::Create, Operation::Update, Operation::Delete]),
            ]
        }
    }

    fn review(&self, review: &Review<'_>, objects: &dyn Objects) -> Verdict {
        let Review { operation, namespace, name, user, dry_run, old, .. } = review;
        let others = objects.find("", "ConfigMap", namespace, None).len();
        let asked = format!("{operation:?} {namespace}/{name} by {} {dry_run} {} {others}", user.name, old.is_some());
        self.0.lock().push(asked);
        let mut object = review.object.clone();
        object["metadata"]["labels"] = json!({"seen": "yes"});
        let status = json!({"message": "no, thank you", "code": 409, "reason": "Conflict"});
        let refusal = Refusal { by: LABELLER, status: serde_json::from_value(status).unwrap() };
        Verdict {
            object: Some(object),
            warnings: vec!["it was labelled".to_owned()],
            refusal: (review.object["data"]["refuse"] == "yes").then_some(refusal),
            side_effect: None,
        }
    }
}

#[tokio::test]
async fn a_hook_is_asked_once_about_each_write_and_the_schema_speaks_before_it_refuses() {
    let labeller = Arc::new(Labeller::default());
    let server = TestServer::start_with(labeller.clone()).await;
    let client = server.admin().await;
    let asked = || std::mem::take(&mut *labeller.0.lock());
    asked();
    let path = "/api/v1/namespaces/default/configmaps";
    let map = |name: &str, refuse: &str| json!({"metadata": {"name": name}, "data": {"refuse": refuse}});

    let body = map("a", "no").to_string();
    let json_body = [("content-type", "application/json")];
    let (code, headers, answer) = raw_with_headers(&client, "POST", path, &json_body, &body).await;
    assert_eq!(code, 201, "{answer}");
    assert!(headers["warning"].to_str().unwrap().contains("it was labelled"), "{headers:?}");
    let stored: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(stored["metadata"]["labels"], json!({"seen": "yes"}));
    assert_eq!(asked(), ["Create default/a by admin false false 0"]);

    let (code, refused) = raw_json(&client, "POST", &format!("{path}?dryRun=All"), &map("b", "yes")).await;
    let said = r#"admission webhook "labeller.example.com" denied the request: no, thank you"#;
    assert_eq!((code, &refused["reason"], &refused["message"]), (409, &json!("Conflict"), &json!(said)));
    assert_eq!(asked(), ["Create default/b by admin true false 1"]);
    let (code, invalid) = raw_json(&client, "POST", path, &map("Not_A_Name", "yes")).await;
    assert_eq!((code, &invalid["reason"]), (422, &json!("Invalid")), "what is invalid is told first: {invalid}");
    asked();

    let (code, _) = raw_json(&client, "PUT", &format!("{path}/a"), &map("a", "still no")).await;
    assert_eq!((code, asked()), (200, vec!["Update default/a by admin false true 1".to_owned()]));
    let (code, _) = raw_json(&client, "DELETE", &format!("{path}/a"), &Value::Null).await;
    assert_eq!((code, asked()), (200, vec!["Delete default/a by admin false true 1".to_owned()]));
    raw_json(&client, "POST", "/api/v1/namespaces/default/secrets", &json!({"metadata": {"name": "s"}})).await;
    assert_eq!(asked(), Vec::<String>::new(), "nobody asked for secrets");
}
