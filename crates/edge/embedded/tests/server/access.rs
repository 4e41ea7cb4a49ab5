//! Who may do what, and requests that are handed on.
#![allow(clippy::unwrap_used)] // a test may fail this way

use crate::common::{TestServer, raw, raw_json, refusal};
use axum::Extension;
use axum::extract::ws::{Message, WebSocketUpgrade};
use axum::routing::{any, put};
use embedded::auth::User;
use futures::{SinkExt as _, StreamExt as _};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

#[tokio::test]
async fn a_stranger_sees_health_and_little_else() {
    let server = TestServer::start().await;
    let anonymous = crate::common::client(&server.authority, server.port(), None).await;
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        assert_eq!(raw(&anonymous, "GET", path, &[], "").await.0, 200, "{path}");
    }
    let (code, answer) = raw_json(&anonymous, "GET", "/api", &Value::Null).await;
    assert_eq!(
        (code, &answer["message"]),
        (403, &json!(r#"forbidden: User "system:anonymous" cannot get path "/api""#))
    );
    let (code, answer) = raw_json(&anonymous, "GET", "/api/v1/namespaces/default/pods/p", &Value::Null).await;
    let expected = r#"pods "p" is forbidden: User "system:anonymous" cannot get resource "pods" in API group "" in the namespace "default""#;
    assert_eq!((code, &answer["message"], &answer["reason"]), (403, &json!(expected), &json!("Forbidden")));
    let (code, answer) = raw(&anonymous, "GET", "/api", &[("authorization", "Bearer x")], "").await;
    assert_eq!(code, 401, "{answer}");
    let admin = server.admin().await;
    let (code, answer) = raw(&admin, "GET", "/api/v1/pods", &[("impersonate-user", "eve")], "").await;
    assert_eq!(code, 400, "{answer}");
}

#[tokio::test]
async fn a_certificate_of_another_authority_opens_nothing() {
    let server = TestServer::start().await;
    let other = crate::common::Authority::new();
    let stranger = other.issue("admin", &[crate::common::MASTERS]);
    let client = crate::common::client(&server.authority, server.port(), Some(&stranger)).await;
    assert!(client.apiserver_version().await.is_err());
}

#[tokio::test]
async fn a_role_given_is_a_role_had() {
    let server = TestServer::start().await;
    let admin = server.admin().await;
    let ada = server.client("ada", &[]).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(ada.clone());
    assert_eq!(refusal(maps.list(&ListParams::default()).await).0, 403);
    let role = json!({
        "metadata": {"name": "maps"},
        "rules": [{"verbs": ["get", "list", "watch"], "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["one"]}],
    });
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    assert_eq!(raw_json(&admin, "POST", &format!("{rbac}/roles"), &role).await.0, 201);
    let binding = json!({
        "metadata": {"name": "maps"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"},
        "subjects": [{"kind": "User", "name": "ada", "apiGroup": "rbac.authorization.k8s.io"}],
    });
    assert_eq!(raw_json(&admin, "POST", &format!("{rbac}/rolebindings"), &binding).await.0, 201);
    assert_eq!(refusal(maps.get("one").await).0, 404, "allowed to ask, there is none");
    assert_eq!(refusal(maps.get("two").await).0, 403);
    assert_eq!(refusal(maps.list(&ListParams::default()).await).0, 403);
    assert!(maps.list(&ListParams::default().fields("metadata.name=one")).await.is_ok());
    let (code, _) = raw_json(&admin, "DELETE", &format!("{rbac}/rolebindings/maps"), &Value::Null).await;
    assert_eq!(code, 200);
    assert_eq!(refusal(maps.get("one").await).0, 403, "taken back at once");
}

#[tokio::test]
async fn a_review_answers_what_the_server_would_do() {
    let server = TestServer::start().await;
    let node = server.client("system:node:n1", &["system:nodes"]).await;
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let question = |verb: &str, resource: &str| {
        json!({"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1",
               "spec": {"resourceAttributes": {"verb": verb, "resource": resource, "namespace": "default"}}})
    };
    let (code, answer) = raw_json(&node, "POST", path, &question("list", "pods")).await;
    assert_eq!((code, &answer["status"]["allowed"]), (201, &json!(true)), "{answer}");
    assert!(answer["status"]["reason"].as_str().unwrap().contains("system:node"));
    let (_, answer) = raw_json(&node, "POST", path, &question("create", "pods")).await;
    assert_eq!(answer["status"]["allowed"], false);
    let admin = server.admin().await;
    let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let body = json!({"spec": {"user": "eve", "groups": ["system:authenticated"], "nonResourceAttributes": {"path": "/version", "verb": "get"}}});
    let (_, answer) = raw_json(&admin, "POST", path, &body).await;
    assert_eq!(answer["status"]["allowed"], true, "{answer}");
    let (code, _) = raw_json(&admin, "POST", path, &json!({"spec": {}})).await;
    assert_eq!(code, 400);
}

#[tokio::test]
async fn a_node_works_with_its_own_certificate() {
    let server = TestServer::start().await;
    let node = server.client("system:node:n1", &["system:nodes"]).await;
    let nodes: Api<Node> = Api::all(node.clone());
    let object = serde_json::from_value(json!({"metadata": {"name": "n1"}})).unwrap();
    nodes.create(&PostParams::default(), &object).await.unwrap();
    let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    nodes.patch_status("n1", &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(node);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a", "image": "b"}]}});
    assert_eq!(refusal(pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await).0, 403);
}

/// A router like the one of the subresource API.
fn subresources() -> axum::Router {
    let base = "/apis/subresources.kubevirt.io/v1/namespaces/{namespace}";
    let start = |Extension(user): Extension<User>| async move { format!("started for {}", user.name) };
    let console = |upgrade: WebSocketUpgrade| async move {
        upgrade.protocols(["plain.kubevirt.io"]).on_upgrade(|mut socket| async move {
            while let Some(Ok(message)) = socket.recv().await {
                if let Message::Binary(bytes) = message {
                    let mut answer = b"echo ".to_vec();
                    answer.extend_from_slice(&bytes);
                    socket.send(Message::Binary(answer.into())).await.unwrap();
                }
            }
        })
    };
    axum::Router::new()
        .route(&format!("{base}/virtualmachines/{{name}}/start"), put(start))
        .route(&format!("{base}/virtualmachineinstances/{{name}}/console"), any(console))
}

#[tokio::test]
async fn subresources_are_authorised_and_handed_on() {
    let server = TestServer::start().await;
    let admin = server.admin().await;
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachines/v/start";
    assert_eq!(raw(&admin, "PUT", path, &[], "").await.0, 404, "nothing is mounted yet");
    server.server.mount_subresources(subresources());
    assert_eq!(raw(&admin, "PUT", path, &[], "").await, (200, "started for admin".into()));
    let eve = server.client("eve", &[]).await;
    let (code, answer) = raw_json(&eve, "PUT", path, &Value::Null).await;
    assert_eq!(code, 403);
    assert!(
        answer["message"].as_str().unwrap().contains("cannot update resource \"virtualmachines/start\""),
        "{answer}"
    );
}

#[tokio::test]
async fn a_websocket_goes_through() {
    let server = TestServer::start().await;
    server.server.mount_subresources(subresources());
    let admin = server.admin().await;
    let path = "/apis/subresources.kubevirt.io/v1/namespaces/default/virtualmachineinstances/v/console";
    let request = http::Request::builder()
        .uri(path)
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
        .header("sec-websocket-protocol", "plain.kubevirt.io")
        .body(kube::client::Body::empty())
        .unwrap();
    let response = admin.send(request).await.unwrap();
    assert_eq!(response.status(), 101);
    assert_eq!(response.headers()["sec-websocket-protocol"], "plain.kubevirt.io");
    let upgraded = hyper::upgrade::on(response).await.unwrap();
    let role = tokio_tungstenite::tungstenite::protocol::Role::Client;
    let mut socket = tokio_tungstenite::WebSocketStream::from_raw_socket(TokioIo::new(upgraded), role, None).await;
    socket.send(tokio_tungstenite::tungstenite::Message::Binary("hello".into())).await.unwrap();
    let answer = socket.next().await.unwrap().unwrap();
    assert_eq!(answer.into_data(), "echo hello");
}
