//! Request bodies.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Refusal;

/// Options of a start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StartOptions {
    /// The guest starts paused, so that its first instructions can be inspected.
    pub paused: bool,
    /// `All`: a dry run, which checks everything but changes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Options of a stop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StopOptions {
    /// The guest's grace period in seconds; the VMI's own if unset.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period: Option<i64>,
    /// `All`: a dry run, which checks everything but changes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Options of a restart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct RestartOptions {
    /// 0 forces the restart; other values are not allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub grace_period_seconds: Option<i64>,
    /// `All`: a dry run, which checks everything but changes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Options of a migration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MigrateOptions {
    /// Labels that the target node must have, besides those that the VMI requires.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub added_node_selector: BTreeMap<String, String>,
    /// `All`: a dry run, which checks everything but changes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Options for canceling an evacuation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct EvacuateCancelOptions {
    /// The node being evacuated. If the guest is being evacuated from another one by now, nothing happens.
    pub evacuation_node_name: String,
    /// `All`: a dry run, which checks everything but changes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Options of pause and unpause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PauseOptions {
    /// `All` as the first element: a dry run, which checks everything but changes nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dry_run: Vec<String>,
}

/// Options of a memory dump.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct MemoryDumpOptions {
    /// The claim that the dump goes to; that of the last dump if unset.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub claim_name: String,
}

/// Parses a body that may be empty, JSON or YAML.
pub fn parse<T: DeserializeOwned + Default>(body: &[u8]) -> Result<T, Refusal> {
    parse_present(body).map(Option::unwrap_or_default)
}

/// The same, but `None` if the body is empty.
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

/// Whether a request is a dry run. Only the first element counts, and only `All` is known.
pub fn is_dry_run(dry_run: &[String]) -> Result<bool, Refusal> {
    match dry_run.first().map(String::as_str) {
        None => Ok(false),
        Some("All") => Ok(true),
        Some(other) => Err(Refusal::bad_request(format!("unknown dryRun value {other:?}, use All"))),
    }
}
