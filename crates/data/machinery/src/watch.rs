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
    /// It exists now, or was there when the watch began.
    Added,
    /// It changed.
    Modified,
    /// It is gone; the event holds its last state.
    Deleted,
    /// Nothing: the event only tells how far the watch has come.
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

    /// Says that all changes up to this resource version have been sent; with `initial_events_end`, all that was there
    /// when the watch began.
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

    /// The event as it goes over the wire, line end included.
    pub fn to_line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).expect("a JSON value always serializes");
        line.push(b'\n');
        line
    }
}
