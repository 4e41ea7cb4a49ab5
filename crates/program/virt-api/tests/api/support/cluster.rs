//! A Kubernetes API of a few objects. It remembers patches and does not apply them: what a patch does to an object is
//! for the API server's own tests.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Cluster {
    /// Objects and lists by path.
    objects: BTreeMap<String, Value>,
    /// Patches by path and query, in order.
    pub(crate) patches: Mutex<Vec<(String, Value)>>,
    /// Answers to patches that are not to succeed, by path.
    refusals: BTreeMap<String, Value>,
}

impl Cluster {
    pub(crate) fn object(mut self, path: &str, object: Value) -> Self {
        self.objects.insert(path.to_owned(), object);
        self
    }

    /// A virtual machine called `vm`.
    pub(crate) fn vm(self, spec: Value, status: Value) -> Self {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": { "name": "vm", "namespace": "ns", "uid": "vm-uid" }, "spec": spec, "status": status,
        });
        self.object("/apis/kubevirt.io/v1/namespaces/ns/virtualmachines/vm", object)
    }

    /// Its instance, on node `n1`.
    pub(crate) fn vmi(self, status: Value) -> Self {
        let owner = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm", "uid": "vm-uid", "controller": true,
        });
        let mut status = status;
        status["nodeName"] = "n1".into();
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": { "name": "vm", "namespace": "ns", "uid": "vmi-uid", "ownerReferences": [owner] },
            "spec": { "domain": { "devices": {} } }, "status": status,
        });
        self.object("/apis/kubevirt.io/v1/namespaces/ns/virtualmachineinstances/vm", object)
    }

    /// Node `n1`, which says itself where its agent listens.
    pub(crate) fn annotated_node(self) -> Self {
        let annotations = json!({ "ferrovirt.io/handler-address": "10.201.0.11:8186" });
        let object = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": "n1", "annotations": annotations },
        });
        self.object("/api/v1/nodes/n1", object).agent_pods(&[])
    }

    /// Agent Pods, as node and address.
    pub(crate) fn agent_pods(self, pods: &[(&str, &str)]) -> Self {
        let pod = |(node, ip): &(&str, &str)| {
            json!({ "metadata": { "name": format!("virt-handler-{ip}") }, "spec": { "nodeName": node, "containers": [] },
                    "status": { "podIP": ip } })
        };
        let items: Vec<Value> = pods.iter().map(pod).collect();
        let list = json!({ "apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": items });
        self.object("/api/v1/namespaces/kubevirt/pods", list)
    }

    /// Refuses patches of this path.
    pub(crate) fn refuse(mut self, path: &str, code: u16, message: &str) -> Self {
        self.refusals.insert(path.to_owned(), status(code, message));
        self
    }

    pub(crate) fn client(self: &Arc<Self>) -> kube::Client {
        let cluster = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let cluster = cluster.clone();
            async move { Ok::<_, Infallible>(cluster.answer(request).await) }
        });
        kube::Client::new(service, "ns")
    }

    pub(crate) fn patches(&self) -> Vec<(String, Value)> {
        self.patches.lock().clone()
    }

    async fn answer(&self, request: Request<Body>) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let patch = request.method() == http::Method::PATCH;
        if patch {
            let target = request.uri().path_and_query().unwrap().to_string();
            let body = request.into_body().collect().await.unwrap().to_bytes();
            self.patches.lock().push((target, serde_json::from_slice(&body).unwrap()));
        }
        let object = self.objects.get(path.trim_end_matches("/status"));
        let body = match (self.refusals.get(&path).filter(|_| patch), object) {
            (Some(refusal), _) => refusal.clone(),
            (None, Some(object)) => object.clone(),
            (None, None) => status(404, &format!("{path} not found")),
        };
        let code = body.get("code").and_then(Value::as_u64).unwrap_or(200) as u16;
        Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
    }
}

fn status(code: u16, message: &str) -> Value {
    let reason = if code == 404 { "NotFound" } else { "Invalid" };
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason,
        "message": message,
    })
}
