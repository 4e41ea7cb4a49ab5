//! Bodies of requests.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Refusal;

/// How to start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StartOptions {
    /// The guest is left paused, for somebody to look at its first instructions.
    pub paused: bool,
    /// `All`: decide and check, but change nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// How to stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StopOptions {
    /// Seconds the guest gets to shut down; the instance's own if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i64>,
    /// `All`: decide and check, but change nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// How to restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RestartOptions {
    /// 0 forces the restart; no other value is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// `All`: decide and check, but change nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// How to move a guest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrateOptions {
    /// Labels that the node to go to must have, besides those that the instance wants.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub added_node_selector: BTreeMap<String, String>,
    /// `All`: decide and check, but change nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Which evacuation to call off.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EvacuateCancelOptions {
    /// The node that the guest was to leave. If the guest is to leave another one by now, nothing happens.
    pub evacuation_node_name: String,
    /// `All`: decide and check, but change nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// How to pause and unpause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PauseOptions {
    /// `All` as the first element: decide and check, but change nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Reads a body that may be empty, JSON or YAML.
pub fn parse<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Refusal> {
    parse_present(body).map(Option::unwrap_or_default)
}

/// The same, telling whether there was one.
pub fn parse_present<T: DeserializeOwned>(body: &[u8]) -> Result<Option<T>, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::bad_request("the request body is not UTF-8 text"))?;
    let text = text.trim();
    if text.is_empty() {
        return Ok(None);
    }
    let parsed = if text.starts_with('{') {
        serde_json::from_str(text).map_err(|error| error.to_string())
    } else {
        serde_saphyr::from_str(text).map_err(|error| error.to_string())
    };
    parsed.map(Some).map_err(|error| Refusal::bad_request(format!("the request body cannot be read: {error}")))
}

/// Whether a request only wants to know. Only the first element counts, and only `All` is known.
pub fn is_dry_run(dry_run: &[String]) -> Result<bool, Refusal> {
    match dry_run.first().map(String::as_str) {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(Refusal::bad_request(format!("unknown dryRun value {other:?}, use All"))),
    }
}
