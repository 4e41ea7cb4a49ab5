//! Just enough of an API server, in memory, for the two clients in this crate that write: create, get, replace with a
//! check of the resource version, and merge patch.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};

#[derive(Clone, Default)]
pub(super) struct FakeApi {
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    objects: BTreeMap<String, Value>,
    version: u64,
    requests: Vec<String>,
    /// Answer every request with 503 while set.
    down: bool,
}

impl FakeApi {
    pub(super) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
                let (code, answer) = api.answer(&parts.method, parts.uri.path(), body);
                let response = Response::builder().status(code).body(Body::from(serde_json::to_vec(&answer)?))?;
                Ok::<_, tower::BoxError>(response)
            }
        });
        Client::new(service, "default")
    }

    fn answer(&self, method: &Method, path: &str, body: Value) -> (u16, Value) {
        let mut state = self.state.lock();
        state.requests.push(format!("{method} {path}"));
        if state.down {
            return refusal(503, "ServiceUnavailable");
        }
        let path = match (method, body["metadata"]["name"].as_str()) {
            (&Method::POST, Some(name)) => format!("{path}/{name}"),
            _ => path.to_owned(),
        };
        let current = state.objects.get(&path).cloned();
        let new = match (method, current) {
            (&Method::GET, Some(object)) => return (200, object),
            (&Method::POST, Some(_)) => return refusal(409, "AlreadyExists"),
            (&Method::POST, None) => body,
            (&Method::PUT, Some(old)) if body["metadata"]["resourceVersion"] == old["metadata"]["resourceVersion"] => {
                body
            }
            (&Method::PUT, Some(_)) => return refusal(409, "Conflict"),
            (&Method::PATCH, Some(mut object)) => {
                let fields = body.as_object().cloned().unwrap_or_default();
                fields.into_iter().for_each(|(field, value)| object[field] = value);
                object
            }
            _ => return refusal(404, "NotFound"),
        };
        state.version += 1;
        let mut new = new;
        new["metadata"]["resourceVersion"] = json!(state.version.to_string());
        state.objects.insert(path, new.clone());
        (200, new)
    }

    pub(super) fn objects(&self) -> Vec<Value> {
        self.state.lock().objects.values().cloned().collect()
    }

    /// Changes every object as somebody else would.
    pub(super) fn edit(&self, change: impl Fn(&mut Value)) {
        let mut state = self.state.lock();
        let State { objects, version, .. } = &mut *state;
        for object in objects.values_mut() {
            change(object);
            *version += 1;
            object["metadata"]["resourceVersion"] = json!(version.to_string());
        }
    }

    pub(super) fn remove_all(&self) {
        self.state.lock().objects.clear();
    }

    pub(super) fn requests(&self) -> usize {
        self.state.lock().requests.len()
    }

    pub(super) fn set_down(&self, down: bool) {
        self.state.lock().down = down;
    }
}

fn refusal(code: u16, reason: &str) -> (u16, Value) {
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": reason});
    (code, status)
}
