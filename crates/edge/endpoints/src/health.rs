//! Whether the API server can be reached.

use std::time::Duration;

use kube::Client;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

/// How long a check of the API server is cached.
const HOLDS: Duration = Duration::from_secs(5);
/// An API server that takes longer counts as unreachable.
const LIMIT: Duration = Duration::from_secs(5);

/// The last check of the API server.
#[derive(Default)]
pub struct ApiHealth(tokio::sync::Mutex<Option<(Instant, Result<Value, String>)>>);

impl ApiHealth {
    /// Whether the API server answers, and the document for `/healthz`.
    pub async fn check(&self, client: &Client) -> (bool, Value) {
        let mut last = self.0.lock().await;
        let fresh = last.as_ref().is_some_and(|(at, _)| at.elapsed() < HOLDS);
        if !fresh {
            *last = Some((Instant::now(), ask(client).await));
        }
        match last.as_ref().map(|(_, answer)| answer) {
            Some(Ok(version)) => (true, json!({"apiserver": {"connectivity": "ok", "version": version}})),
            Some(Err(error)) => (false, json!({"apiserver": {"connectivity": "failed", "error": error}})),
            None => (false, Value::Null),
        }
    }
}

async fn ask(client: &Client) -> Result<Value, String> {
    match timeout(LIMIT, client.apiserver_version()).await {
        Ok(Ok(version)) => serde_json::to_value(version).map_err(|error| error.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no answer within {LIMIT:?}")),
    }
}
