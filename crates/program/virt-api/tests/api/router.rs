//! The router as a client sees it: over HTTP, with a real node agent behind TLS on the loopback.

use crate::support::cluster::Cluster;
use crate::support::{Server, pki::Pki, vm, vmi};
use serde_json::{Value, json};

fn running() -> Cluster {
    Cluster::default().vmi(json!({ "phase": "Running" })).annotated_node()
}

fn message(body: &str) -> String {
    let status: Value = serde_json::from_str(body).expect("the body is a Status");
    assert_eq!(status["kind"], "Status");
    status["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn starting_a_machine_patches_it() {
    let halted = Cluster::default().vm(json!({ "runStrategy": "Halted", "template": {} }), json!({}));
    let (server, _agent) = Server::with_agent(halted).await;
    assert_eq!(server.request("PUT", &vm("start"), "").await, (202, String::new()));
    let patch = json!([
        { "op": "test", "path": "/spec/runStrategy", "value": "Halted" },
        { "op": "replace", "path": "/spec/runStrategy", "value": "Always" },
    ]);
    let path = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm?".to_owned();
    assert_eq!(server.cluster.patches(), vec![(path, patch)]);
}

#[tokio::test]
async fn options_may_be_yaml_and_a_dry_run_stays_one() {
    let manual = Cluster::default().vm(json!({ "runStrategy": "Manual", "template": {} }), json!({ "created": false }));
    let (server, _agent) = Server::with_agent(manual).await;
    let (code, _) = server.request("PUT", &vm("start"), "paused: true\ndryRun: [All]\n").await;
    assert_eq!(code, 202);
    let patches = server.cluster.patches();
    assert_eq!(patches[0].0, "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm/status?&dryRun=All");
    assert_eq!(patches[0].1[1]["value"], json!([{ "action": "Start", "data": { "paused": "true" } }]));
}

#[tokio::test]
async fn a_body_that_cannot_be_read_is_a_bad_request() {
    let manual = Cluster::default().vm(json!({ "runStrategy": "Manual", "template": {} }), json!({}));
    let (server, _agent) = Server::with_agent(manual).await;
    for body in ["{", "paused: [", r#"{"dryRun":["Some"]}"#] {
        assert_eq!(server.request("PUT", &vm("start"), body).await.0, 400, "{body}");
    }
    assert_eq!(server.cluster.patches(), vec![]);
}

#[tokio::test]
async fn a_machine_that_does_not_exist_is_not_found() {
    let (server, _agent) = Server::with_agent(Cluster::default()).await;
    let (code, body) = server.request("PUT", &vm("start"), "").await;
    assert_eq!((code, message(&body)), (404, "virtualmachine.kubevirt.io \"vm\" not found".to_owned()));
    assert_eq!(server.request("PUT", &vmi("pause"), "").await.0, 404);
}

#[tokio::test]
async fn a_machine_that_changed_meanwhile_is_a_conflict() {
    let path = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm";
    for (code, words, answer) in [
        (422, "the server rejected our request: testing value /spec/runStrategy failed: test failed", 409),
        (422, "the server rejected our request: operation 0: test of \"/spec/runStrategy\" failed", 409),
        (409, "the object has been modified", 409),
        (422, "spec.template: admission says no", 500),
    ] {
        let halted = Cluster::default().vm(json!({ "runStrategy": "Halted", "template": {} }), json!({}));
        let (server, _agent) = Server::with_agent(halted.refuse(path, code, words)).await;
        assert_eq!(server.request("PUT", &vm("start"), "").await.0, answer, "{words}");
    }
}

#[tokio::test]
async fn a_forced_restart_that_fails_half_way_is_undone() {
    let path = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm/status";
    let always = Cluster::default().vm(json!({ "runStrategy": "Always", "template": {} }), json!({ "created": true }));
    let cluster = always.vmi(json!({ "phase": "Running" })).refuse(path, 500, "no");
    let (server, _agent) = Server::with_agent(cluster).await;
    let (code, _) = server.request("PUT", &vm("restart"), r#"{"gracePeriodSeconds":0}"#).await;
    assert_eq!(code, 500);
    let written: Vec<(String, Value)> = server.cluster.patches();
    let ends: Vec<&str> = written.iter().map(|(path, _)| path.rsplit("ns/").next().unwrap()).collect();
    assert_eq!(ends, ["virtualmachineinstances/vm?", "virtualmachines/vm/status?", "virtualmachineinstances/vm?"]);
    let undo = json!([
        { "op": "test", "path": "/spec/terminationGracePeriodSeconds", "value": 1 },
        { "op": "remove", "path": "/spec/terminationGracePeriodSeconds" },
    ]);
    assert_eq!(written[2].1, undo);
}

#[tokio::test]
async fn pausing_asks_the_agent_of_the_instances_node() {
    let (server, agent) = Server::with_agent(running()).await;
    assert_eq!(server.request("PUT", &vmi("pause"), "{}").await.0, 200);
    assert_eq!(agent.seen(), ["PUT /v1/namespaces/ns/virtualmachineinstances/vm/pause"]);
    assert_eq!(*server.dialer.wanted.lock(), ["10.201.0.11:8186".parse().unwrap()]);
}

#[tokio::test]
async fn how_far_a_migration_is_tells_the_agent_of_the_instances_node() {
    let (server, agent) = Server::with_agent(running()).await;
    agent.answers.lock().insert("migrationprogress".to_owned(), (200, r#"{"dataTotal":7}"#.to_owned()));
    let (code, body) = server.request("GET", &vmi("migrationprogress"), "").await;
    assert_eq!((code, body.as_str()), (200, r#"{"dataTotal":7}"#));
}

#[tokio::test]
async fn a_dry_run_of_a_pause_asks_nobody() {
    let (server, agent) = Server::with_agent(running()).await;
    assert_eq!(server.request("PUT", &vmi("pause"), r#"{"dryRun":["All"]}"#).await.0, 200);
    assert_eq!(agent.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn an_agent_that_refuses_is_quoted() {
    let (server, agent) = Server::with_agent(running()).await;
    agent.answers.lock().insert("reset".to_owned(), (500, "domain is not running".to_owned()));
    let (code, body) = server.request("PUT", &vmi("reset"), "").await;
    assert_eq!((code, message(&body)), (500, "Internal error occurred: domain is not running".to_owned()));
}

#[tokio::test]
async fn the_agents_pod_is_preferred_to_the_nodes_word() {
    let pods = [("n2", "10.0.0.2"), ("n1", "10.0.0.1")];
    let (server, _agent) = Server::with_agent(running().agent_pods(&pods)).await;
    assert_eq!(server.request("PUT", &vmi("softreboot"), "").await.0, 200);
    assert_eq!(*server.dialer.wanted.lock(), ["10.0.0.1:8186".parse().unwrap()]);
}

#[tokio::test]
async fn a_node_with_two_agents_or_none_is_a_bad_request() {
    let two = [("n1", "10.0.0.1"), ("n1", "10.0.0.2")];
    let (server, _agent) = Server::with_agent(running().agent_pods(&two)).await;
    assert_eq!(server.request("PUT", &vmi("pause"), "").await.0, 400);
    let (server, _agent) =
        Server::with_agent(Cluster::default().vmi(json!({ "phase": "Running" })).agent_pods(&[])).await;
    assert_eq!(server.request("PUT", &vmi("pause"), "").await.0, 400);
}

#[tokio::test]
async fn an_agent_with_another_role_is_not_trusted() {
    let pki = Pki::new();
    for name in [role_tls::NODE_AGENT_CLIENT, "somebody"] {
        let agent = crate::support::agent::Agent::start(&pki, name).await;
        let server = Server::start(running(), &pki, agent.address).await;
        assert_eq!(server.request("PUT", &vmi("pause"), "").await.0, 500, "{name}");
        assert_eq!(agent.seen(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn the_agent_of_another_node_does_not_answer_for_this_one() {
    let pki = Pki::new();
    let agent = crate::support::agent::Agent::start_on(&pki, role_tls::NODE_AGENT, "n2").await;
    let server = Server::start(running(), &pki, agent.address).await;
    assert_eq!(server.request("PUT", &vmi("pause"), "").await.0, 500);
    assert_eq!(agent.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn an_agent_of_another_authority_is_not_trusted() {
    let agent = crate::support::agent::Agent::start(&Pki::new(), role_tls::NODE_AGENT).await;
    let server = Server::start(running(), &Pki::new(), agent.address).await;
    assert_eq!(server.request("PUT", &vmi("pause"), "").await.0, 500);
    assert_eq!(agent.seen(), Vec::<String>::new());
}

#[tokio::test]
async fn guest_information_comes_from_the_agent_and_its_failures_are_plain_text() {
    let connected = json!({ "phase": "Running", "conditions": [{ "type": "AgentConnected", "status": "True" }] });
    let (server, agent) = Server::with_agent(Cluster::default().vmi(connected).annotated_node()).await;
    agent.answers.lock().insert("guestosinfo".to_owned(), (200, r#"{"hostname":"vm"}"#.to_owned()));
    assert_eq!(server.request("GET", &vmi("guestosinfo"), "").await, (200, r#"{"hostname":"vm"}"#.to_owned()));

    let (server, _agent) = Server::with_agent(running()).await;
    let (code, body) = server.request("GET", &vmi("guestosinfo"), "").await;
    assert_eq!(code, 500);
    assert!(body.ends_with("VMI does not have guest agent connected"), "{body}");
}

#[tokio::test]
async fn the_group_describes_itself_in_both_versions() {
    let (server, _agent) = Server::with_agent(Cluster::default()).await;
    let (code, group) = server.request("GET", "/apis/subresources.kubevirt.io", "").await;
    let group: Value = serde_json::from_str(&group).unwrap();
    assert_eq!((code, group["name"].as_str()), (200, Some("subresource.kubevirt.io")));
    assert_eq!(group["preferredVersion"]["groupVersion"], "subresources.kubevirt.io/v1");
    for version in ["v1", "v1alpha3"] {
        let path = format!("/apis/subresources.kubevirt.io/{version}");
        let (_, list) = server.request("GET", &path, "").await;
        let list: Value = serde_json::from_str(&list).unwrap();
        let names: Vec<&str> =
            list["resources"].as_array().unwrap().iter().map(|r| r["name"].as_str().unwrap()).collect();
        assert!(names.contains(&"virtualmachines/start") && names.contains(&"virtualmachineinstances/console"));
        let (_, version) = server.request("GET", &format!("{path}/version"), "").await;
        assert_eq!(serde_json::from_str::<Value>(&version).unwrap()["gitVersion"], "v1.2.3");
    }
}

#[tokio::test]
async fn health_is_the_health_of_the_connection_to_kubernetes() {
    let version = json!({ "major": "1", "minor": "34", "gitVersion": "v1.34.0", "gitCommit": "", "gitTreeState": "",
                          "buildDate": "", "goVersion": "", "compiler": "", "platform": "" });
    let kubevirts = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirtList", "metadata": {},
        "items": [{ "metadata": { "name": "kubevirt", "resourceVersion": "42" } }],
    });
    let path = "/apis/subresources.kubevirt.io/v1/healthz";
    let healthy = Cluster::default().object("/version", version);
    let healthy = healthy.object("/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts", kubevirts);
    let (server, _agent) = Server::with_agent(healthy).await;
    let (code, body) = server.request("GET", path, "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &body["apiserver"]["connectivity"]), (200, &json!("ok")));
    assert_eq!(body["config-resource-version"], "42");

    let (server, _agent) = Server::with_agent(Cluster::default()).await;
    let (code, body) = server.request("GET", path, "").await;
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((code, &body["apiserver"]["connectivity"]), (500, &json!("failed")));
}

#[tokio::test]
async fn what_the_build_cannot_do_is_told_apart_from_what_never_was() {
    let (server, _agent) = Server::with_agent(Cluster::default()).await;
    let (code, body) = server.request("PUT", &vmi("freeze"), "").await;
    assert_eq!((code, message(&body)), (501, "freeze is not supported by this build".to_owned()));
    assert_eq!(server.request("GET", &vmi("vnc/screenshot"), "").await.0, 501);
    assert_eq!(server.request("GET", &vmi("nonsense"), "").await.0, 404);
    assert_eq!(server.request("GET", "/apis/subresources.kubevirt.io/v2", "").await.0, 404);
    assert_eq!(server.request("GET", &vm("start"), "").await.0, 405);
}

#[tokio::test]
async fn a_volume_is_plugged_into_a_machine_by_its_template_or_the_reason_is_told() {
    let none = json!({ "apiVersion": "kubevirt.io/v1", "kind": "KubeVirtList", "metadata": {}, "items": [] });
    let machine = || {
        let cluster = Cluster::default().object("/apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts", none.clone());
        cluster.vm(json!({ "template": { "spec": { "domain": {} } } }), json!({}))
    };
    let add = json!({
        "name": "data", "disk": { "disk": { "bus": "scsi" } },
        "volumeSource": { "persistentVolumeClaim": { "claimName": "claim" } },
    })
    .to_string();
    let (server, _agent) = Server::with_agent(machine()).await;
    assert_eq!(server.request("PUT", &vm("addvolume"), &add).await, (202, String::new()));
    let (path, patch) = server.cluster.patches().remove(0);
    assert_eq!(path, "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm?");
    assert_eq!(patch[0]["path"], "/metadata/resourceVersion");
    assert_eq!(patch[1]["path"], "/spec/template/spec/volumes");
    assert_eq!(patch[1]["value"][0]["persistentVolumeClaim"], json!({ "claimName": "claim", "hotpluggable": true }));
    for (operation, body, code) in [
        ("addvolume", "", 400),
        ("addvolume", "{}", 400),
        ("removevolume", "", 400),
        ("removevolume", "name: data", 409),
        ("memorydump", "", 400),
        ("memorydump", "claimName: dump", 409),
        ("removememorydump", "", 409),
    ] {
        assert_eq!(server.request("PUT", &vm(operation), body).await.0, code, "{operation} {body}");
    }
    // Somebody else writes again and again: in the end, that is told.
    let path = "/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm";
    for (code, words, answer) in [(409, "the object has been modified", 409), (422, "spec: no such disk", 422)] {
        let (server, _agent) = Server::with_agent(machine().refuse(path, code, words)).await;
        let (told, body) = server.request("PUT", &vm("addvolume"), &add).await;
        assert_eq!(told, answer, "{body}");
        assert!(message(&body).contains(words), "{body}");
    }
}
