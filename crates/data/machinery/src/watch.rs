//! Watch events: one JSON object per line, the same for every kind.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Status;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Annotation on the bookmark that ends the initial list of a streaming watch.
pub const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum EventType {
    /// It was created, or existed when the watch started.
    Added,
    /// It changed.
    Modified,
    /// It was deleted; the event holds its last state.
    Deleted,
    /// No change: the event only reports the progress of the watch.
    Bookmark,
    /// The watch ends; the event holds a `Status`.
    Error,
}

/// One event of a watch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WatchEvent {
    #[serde(rename = "type")]
    pub type_: EventType,
    pub object: Value,
}

impl WatchEvent {
    /// An event about an object.
    pub fn new(type_: EventType, object: Value) -> Self {
        WatchEvent { type_, object }
    }

    /// All changes up to this resourceVersion have been sent; with `initial_events_end`, so have all objects that
    /// existed when the watch started.
    pub fn bookmark(api_version: &str, kind: &str, resource_version: &str, initial_events_end: bool) -> Self {
        let mut metadata = json!({ "resourceVersion": resource_version });
        if initial_events_end {
            metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
        }
        let object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
        WatchEvent { type_: EventType::Bookmark, object }
    }

    /// Ends the watch with the reason.
    pub fn error(status: &Status) -> Self {
        let object = serde_json::to_value(status).expect("a Status holds only strings, numbers and lists");
        WatchEvent { type_: EventType::Error, object }
    }

    /// The event in wire format, including the line end.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a JSON value always serializes");
        line.push(b'\n');
        line
    }
}
